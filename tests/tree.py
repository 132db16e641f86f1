"""python3 tests/tree.py DIRECTORY - fills DIRECTORY with everything a file tree can hold; the same for every run."""

import os
import random
import sys

ODD_NAMES = [b"new\nline", b" leading", b"trailing ", b"-option", b"back\\slash", b"quote'\"", b"\xff\xfe", b"a" * 255,
             "snow\u2603man".encode(), b"*", b"..."]


def put(path, data):
    with open(path, "wb") as file:
        file.write(data)


def main(base):
    generator = random.Random(7)
    os.chdir(base)
    for number in range(200):
        folder = f"dir{number % 10}/sub{number % 3}"
        os.makedirs(folder, exist_ok=True)
        put(f"{folder}/file{number}", generator.randbytes(generator.choice([0, 1, 63, 4095, 4096, 4097, 70_000])))
    for number in range(0, 200, 5):
        os.link(f"dir{number % 10}/sub{number % 3}/file{number}", f"dir{(number + 1) % 10}/link{number}")
        os.symlink(f"../dir{number % 10}/sub{number % 3}/file{number}", f"dir{(number + 2) % 10}/symlink{number}")
    os.mkdir(b"odd")
    for number, name in enumerate(ODD_NAMES):
        put(b"odd/" + name, bytes([number]) * number)
    with open("sparse", "wb") as file:
        for offset in (0, 5_000_000, 98_765_432):
            file.seek(offset)
            file.write(b"island" * 100)
        file.truncate(1 << 27)
    put("attributes", b"x")
    for number in range(8):
        os.setxattr("attributes", f"user.name{number}", generator.randbytes(number * 17))
    os.mkdir("owned")
    for mode in (0o400, 0o755, 0o4711, 0o2750, 0o1777):
        put(f"owned/mode{mode:o}", b"m")
        os.chmod(f"owned/mode{mode:o}", mode)
    os.mkfifo("fifo")
    os.mkdir("empty")
    for folder, _, names in os.walk(b".", topdown=False):
        for name in names:
            moment = generator.randrange(10**18, 17 * 10**17)
            os.utime(os.path.join(folder, name), ns=(moment, moment), follow_symlinks=False)


main(sys.argv[1])
