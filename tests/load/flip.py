"""Damage for a pool, and a way to tell whether its tree is still the same.

  flip.py fill DIRECTORY     many names, links, attributes, sparse and small files
  flip.py list DIRECTORY     every name with its attributes, extended attributes and target; no content
  flip.py flip POOL SEED     flips one bit of a line that is not all zeros, half of them in the header; prints where
"""

import os
import random
import sys

LINE = 64


def fill(base):
    generator = random.Random(3)
    os.chdir(base)
    for number in range(400):
        folder = f"d{number % 12}"
        os.makedirs(folder, exist_ok=True)
        path = f"{folder}/{'n' * generator.randrange(1, 60)}-{number}"
        with open(path, "wb") as file:
            for _ in range(number % 4):
                file.seek(generator.randrange(1 << generator.randrange(12, 40)))
                file.write(b"x")
        if number % 5 == 0:
            os.symlink("t" * generator.randrange(1, 300), f"{folder}/link-{number}")
            os.link(path, f"{folder}/other-{number}")
            os.setxattr(path, "user.a", b"v" * generator.randrange(100))
        if number % 7 == 0:
            os.unlink(path)


def listing(base):
    for folder, folders, names in os.walk(base, onerror=stop):
        folders.sort()
        for name in sorted(names) + ["."]:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            xattrs = [(key, os.getxattr(path, key, follow_symlinks=False))
                      for key in sorted(os.listxattr(path, follow_symlinks=False))]
            target = os.readlink(path) if os.path.islink(path) else ""
            print(os.path.relpath(path, base), oct(status.st_mode), status.st_uid, status.st_gid, status.st_size,
                  status.st_nlink, status.st_blocks, status.st_mtime_ns, xattrs, target)


def stop(error):
    raise error


def flip(pool, seed):
    generator = random.Random(seed)
    lines = {}
    for name in sorted(os.listdir(pool)):
        with open(f"{pool}/{name}", "rb") as file:
            data = file.read()
        lines[name] = [start for start in range(0, len(data), LINE) if any(data[start:start + LINE])]
    segments = [name for name in lines if lines[name] and name != "super"]
    name = "super" if generator.random() < 0.3 else generator.choice(segments)
    offset = generator.choice(lines[name]) + generator.randrange(LINE)
    bit = generator.randrange(8)
    with open(f"{pool}/{name}", "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1 << bit]))
    print(f"{name}, byte {offset}, bit {bit}")


if len(sys.argv) == 3 and sys.argv[1] in ("fill", "list"):
    {"fill": fill, "list": listing}[sys.argv[1]](sys.argv[2])
elif len(sys.argv) == 4 and sys.argv[1] == "flip":
    flip(sys.argv[2], sys.argv[3])
else:
    sys.exit(__doc__)
