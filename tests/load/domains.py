"""Files of several users.

  domains.py make DIRECTORY SECRET    as root: a file that anybody may read, one of root's and one of a third user's with SECRET in them
  domains.py own DIRECTORY            as another user: works on a file of its own in DIRECTORY/home
  domains.py others DIRECTORY         as another user: reads what it may, is refused the rest
"""

import os
import sys
import time

LINES = 20000
PUBLIC = "anybody may read this"


def make(directory, secret):
    for name, mode in (("readable", 0o644), ("secret", 0o600), ("others", 0o600)):
        with open(f"{directory}/{name}", "w") as file:
            for number in range(LINES):
                file.write(f"{number} {secret if mode == 0o600 else PUBLIC}\n")
        os.chmod(f"{directory}/{name}", mode)
    os.chown(f"{directory}/others", 777, 777)


def own(directory):
    file = os.open(f"{directory}/home/own", os.O_RDWR | os.O_CREAT, 0o600)
    for number in range(2000):
        assert os.pwrite(file, b"%08d" % number * 512, number % 100 * 4096) == 4096
    for number in range(1900, 2000):
        assert os.pread(file, 4096, number % 100 * 4096) == b"%08d" % number * 512


def others(directory):
    file = os.open(f"{directory}/readable", os.O_RDONLY)
    whole = b"".join(os.pread(file, 1000, at) for at in range(0, os.fstat(file).st_size, 1000))
    assert whole == b"".join(b"%d %s\n" % (number, PUBLIC.encode()) for number in range(LINES))
    for flags in (os.O_RDONLY, os.O_RDWR):
        try:
            os.open(f"{directory}/secret", flags)
        except PermissionError:
            continue
        sys.exit("a secret was opened")


COMMANDS = {"make": (make, 2), "own": (own, 1), "others": (others, 1)}
if len(sys.argv) > 1 and sys.argv[1] in COMMANDS and len(sys.argv) - 2 == COMMANDS[sys.argv[1]][1]:
    COMMANDS[sys.argv[1]][0](*sys.argv[2:])
    # So that whoever watches has seen the last counts.
    time.sleep(0.05)
else:
    sys.exit(__doc__)
