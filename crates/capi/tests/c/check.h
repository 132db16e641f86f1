/* What the test programs share. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <perdure.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Members that are not named are 0, in both languages without a warning. */
#ifdef __cplusplus
#define ZERO {}
#else
#define ZERO {0}
#endif

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("%s:%d: %s\n    last error: %s\n", __FILE__, __LINE__, #condition,              \
                   perdure_last_error());                                                          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* It failed, with this code in both places, and a sentence that holds this text. */
#define FAILS(call, code, text)                                                                    \
    do {                                                                                           \
        errno = 0;                                                                                 \
        CHECK((call) == -1);                                                                       \
        CHECK(errno == (code));                                                                    \
        CHECK(perdure_last_errno() == (code));                                                     \
        CHECK(strstr(perdure_last_error(), (text)) != NULL);                                       \
    } while (0)

#endif
