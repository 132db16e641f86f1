"""A store through a mapping into a hole of a full pool: the error stays until there is room, and the data is not lost.

usage: full.py DIR   on a small file system of its own, which it fills
"""
import errno
import mmap
import os
import sys

AT = 4 << 20


def said(call):
    try:
        call()
        return None
    except OSError as error:
        return error.errno


def fill(path):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    for size in (1 << 20, 65536, 4096):
        while said(lambda: os.write(fd, b"f" * size)) is None:
            pass
    os.close(fd)


def read_past_cache(path):
    buffer = mmap.mmap(-1, 4096)
    os.preadv(os.open(path, os.O_RDONLY | os.O_DIRECT), [buffer], AT)
    return buffer[:5]


def check(is_true, what):
    if not is_true:
        sys.exit(f"wrong: {what}")


def main(folder):
    path = f"{folder}/db"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 8 << 20)
    mapping = mmap.mmap(fd, 8 << 20)
    fill(f"{folder}/fill")
    mapping[AT:AT + 5] = b"hello"
    for round in range(3):
        check(said(mapping.flush) == errno.ENOSPC, f"msync {round} in a full pool is ENOSPC")
        check(said(lambda: os.fsync(fd)) == errno.ENOSPC, f"fsync {round} in a full pool is ENOSPC")
    check(read_past_cache(path) == b"hello", "the page is read past the cache")
    check(os.lseek(fd, 0, os.SEEK_DATA) == AT, "SEEK_DATA finds the page")
    # A page that is cut off is not an error.
    os.ftruncate(fd, AT)
    check(said(lambda: os.fsync(fd)) is None, "nothing is unsaved behind the end")
    os.ftruncate(fd, 8 << 20)
    check(os.pread(fd, 5, AT) == bytes(5), "what was cut off is zeros")
    mapping[AT:AT + 5] = b"again"
    check(said(mapping.flush) == errno.ENOSPC, "msync is ENOSPC again")
    # A copy onto the page, when there is room for it, is what stays.
    os.truncate(f"{folder}/fill", os.stat(f"{folder}/fill").st_size - (1 << 20))
    source = os.open(f"{folder}/fill", os.O_RDONLY)
    check(os.copy_file_range(source, fd, 3, 0, AT) == 3, "copy onto the page")
    check(os.pread(fd, 5, AT) == b"fffin", "the copy is read")
    check(said(lambda: os.fsync(fd)) is None, "fsync after the copy")
    check(read_past_cache(path) == b"fffin", "the copy is saved, with the rest of the page")
    os.close(source)
    mapping[AT:AT + 5] = b"again"
    os.unlink(f"{folder}/fill")
    check(said(mapping.flush) is None, "msync with room")
    check(said(lambda: os.fsync(fd)) is None, "fsync with room")
    check(read_past_cache(path) == b"again", "the page is saved")


main(sys.argv[1])
