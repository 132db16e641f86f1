"""Works on files the way Python programs do: descriptors, buffered files, mappings, children that inherit descriptors.

  files_direct.py DIRECTORY       says what is expected in DIRECTORY/expected: a SHA-256 and a name for each file
"""

import hashlib
import mmap
import os
import subprocess
import sys

os.chdir(sys.argv[1])
expected = {}


def block(number, length=4096):
    return hashlib.sha256(str(number).encode()).digest() * (length // 32)


# Descriptors with offsets, then at the position.
fd = os.open("offsets", os.O_RDWR | os.O_CREAT)
content = bytearray()
for number in range(500):
    assert os.pwrite(fd, block(number), number * 4096) == 4096
    content += block(number)
for number in range(0, 500, 7):
    assert os.pwrite(fd, b"x" * 100, number * 4096 + 4000) == 100
    content[number * 4096 + 4000:number * 4096 + 4100] = b"x" * 100
for number in range(500):
    assert os.pread(fd, 4096, number * 4096) == bytes(content[number * 4096:number * 4096 + 4096]), number
os.lseek(fd, 0, os.SEEK_SET)
assert b"".join(iter(lambda: os.read(fd, 10000), b"")) == bytes(content)
os.ftruncate(fd, 1000000)
del content[1000000:]
assert os.lseek(fd, 0, os.SEEK_END) == 1000000
os.close(fd)
expected["offsets"] = bytes(content)

# Buffered files: Python's own, not the C library's.
with open("buffered", "w+b") as file:
    for number in range(300):
        file.write(block(number, 960))
    file.seek(960 * 100)
    assert file.read(960) == block(100, 960)
    file.seek(960 * 200)
    file.write(block(7, 960))
    file.flush()
    file.seek(0)
    expected["buffered"] = file.read()
assert expected["buffered"][960 * 200:960 * 201] == block(7, 960)
lines = []
for number in range(200):
    with open("appended", "a") as file:
        file.write(f"line {number}\n")
        lines.append(f"line {number}\n")
expected["appended"] = "".join(lines).encode()
with open("unbuffered", "ab", buffering=0) as file:
    for number in range(300):
        file.write(b"%06d\n" % number)
        assert file.tell() == 7 * (number + 1), (file.tell(), number)
expected["unbuffered"] = b"".join(b"%06d\n" % number for number in range(300))

# A mapping and writes by turns.
fd = os.open("mapped", os.O_RDWR | os.O_CREAT)
content = bytearray(64 * 4096)
os.ftruncate(fd, len(content))
with mmap.mmap(fd, len(content)) as view:
    for number in range(400):
        at = number * 4096 * 5 % len(content)
        if number % 3:
            assert os.pwrite(fd, block(number, 320), at + 64) == 320
            assert view[at + 64:at + 384] == block(number, 320), number
        else:
            view[at + 64:at + 384] = block(number, 320)
            assert os.pread(fd, 320, at + 64) == block(number, 320), number
        content[at + 64:at + 384] = block(number, 320)
    view.flush()
os.close(fd)
expected["mapped"] = bytes(content)

# Children go on at the parent's position, and the parent at theirs.
fd = os.open("inherited", os.O_RDWR | os.O_CREAT)
content = b""
for number in range(60):
    os.write(fd, b"parent %03d\n" % number)
    content += b"parent %03d\n" % number
    if number % 6 == 5:
        subprocess.run([sys.executable, "-c", f"import os\nfor i in range(20): os.write({fd}, b'child %03d %03d\\n' % ({number}, i))"], pass_fds=[fd], check=True)
        content += b"".join(b"child %03d %03d\n" % (number, i) for i in range(20))
        subprocess.run(["echo", "echo", str(number)], stdout=fd, check=True)
        content += b"echo %d\n" % number
assert os.lseek(fd, 0, os.SEEK_CUR) == len(content)
os.close(fd)
expected["inherited"] = content

with open("expected", "w") as out:
    for name, content in expected.items():
        out.write(f"{hashlib.sha256(content).hexdigest()}  {name}\n")
