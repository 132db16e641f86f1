"""Ways to write × states of the file × questions: every answer is that of the stored block.

usage: matrix.py ask DIR STORE PRELOAD      all questions
       matrix.py keep DIR STORE PRELOAD     leaves files whose writers have synced, for `check`
       matrix.py check DIR                  after the server was killed and the pool mounted again
"""
import mmap
import os
import socket
import subprocess
import sys

BLOCK = 4096
AT = 100 * BLOCK
SIZE = 1 << 20
OLD = 1_000_000_000
WAYS = ("mapped", "buffered", "direct", "aio", "uring", "library")
STATES = ("hole", "reserved", "written", "beyond")
STORED = b"X" * BLOCK


def prepare(path, state):
    """Makes the file in `state` and returns the bytes that it must have after the store."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    content = bytearray(SIZE)
    if state == "hole":
        os.ftruncate(fd, SIZE)
    elif state == "reserved":
        os.posix_fallocate(fd, 0, SIZE)
    elif state == "written":
        content = bytearray(b"-" * SIZE)
        os.write(fd, content)
    else:
        content = bytearray(b"-" * BLOCK) + bytes(AT)
        os.write(fd, content[:BLOCK])
    content[AT:AT + BLOCK] = STORED
    os.close(fd)
    os.utime(path, (OLD, OLD))
    return bytes(content)


class Writer:
    """A process that has stored the block and still has the file open."""

    def __init__(self, store, preload, way, path):
        # The library goes to "library" only, so that others' requests come through the kernel.
        environment = {**os.environ, "LD_PRELOAD": preload} if way == "library" and preload else os.environ
        self.process = subprocess.Popen([store, way, path, str(AT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        said = self.process.stdout.readline()
        assert said == "stored\n", f"{way} {path}: {said!r}"

    def sync(self):
        self.process.stdin.write("sync\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "synced\n"

    def end(self):
        self.process.stdin.close()
        assert self.process.wait() == 0


def opened(path, flags=0):
    return os.open(path, os.O_RDONLY | flags)


def read(path, content, state):
    with open(path, "rb") as file:
        return file.read() == content


def pread(path, content, state):
    return os.pread(opened(path), BLOCK, AT) == STORED


def mapped_load(path, content, state):
    return mmap.mmap(opened(path), 0, prot=mmap.PROT_READ)[AT:AT + BLOCK] == STORED


def direct_read(path, content, state):
    buffer = mmap.mmap(-1, BLOCK)
    return os.preadv(opened(path, os.O_DIRECT), [buffer], AT) == BLOCK and buffer[:] == STORED


def seek_data(path, content, state):
    fd = opened(path)
    first = {"hole": AT, "reserved": AT, "written": 0, "beyond": 0}[state]
    return os.lseek(fd, 0, os.SEEK_DATA) == first and os.lseek(fd, AT, os.SEEK_DATA) == AT


def seek_hole(path, content, state):
    found = os.lseek(opened(path), AT, os.SEEK_HOLE)
    return found == (AT + BLOCK if state in ("hole", "reserved") else len(content))


def size(path, content, state):
    return os.stat(path).st_size == len(content)


def blocks(path, content, state):
    least = {"hole": 8, "reserved": 2048, "written": 2048, "beyond": 16}[state]
    return os.stat(path).st_blocks >= least


def times(path, content, state):
    found = os.stat(path)
    return found.st_mtime > OLD and found.st_ctime > OLD


def time_set_later_stays(path, content, state):
    os.utime(path, (2 * OLD // 3, 2 * OLD // 3))
    subprocess.run(["sync", path], check=True)
    return os.stat(path).st_mtime == 2 * OLD // 3


def copied(path, content, state):
    target = path + ".copy"
    fd = os.open(target, os.O_RDWR | os.O_CREAT)
    done = os.copy_file_range(opened(path), fd, BLOCK, AT, 0)
    found = os.pread(fd, BLOCK, 0)
    os.close(fd)
    os.unlink(target)
    return done == BLOCK and found == STORED


def sendfile(path, content, state):
    one, other = socket.socketpair()
    done = os.sendfile(one.fileno(), opened(path), AT, BLOCK)
    return done == BLOCK and other.recv(BLOCK, socket.MSG_WAITALL) == STORED


def whole_copy(*command):
    def ask(path, content, state):
        target = path + ".copy"
        subprocess.run([*command, path, target], check=True)
        with open(target, "rb") as file:
            found = file.read()
        os.unlink(target)
        return found == content
    ask.__name__ = " ".join(command)
    return ask


def tar_sparse(path, content, state):
    folder, name = os.path.split(path)
    archive = path + ".tar"
    subprocess.run(["tar", "-S", "-C", folder, "-cf", archive, name], check=True)
    found = subprocess.run(["tar", "-xOf", archive], check=True, capture_output=True).stdout
    os.unlink(archive)
    return found == content


QUESTIONS = (read, pread, mapped_load, direct_read, seek_data, seek_hole, size, blocks, times, time_set_later_stays,
             copied, sendfile, whole_copy("cp"), whole_copy("cp", "--sparse=always"), tar_sparse)


def is_right(question, *about):
    try:
        return question(*about)
    except OSError:
        return False


def ask_all(folder, store, preload):
    asked, wrong = 0, []
    for state in STATES:
        for way in WAYS:
            for question in QUESTIONS:
                path = f"{folder}/file"
                content = prepare(path, state)
                writer = Writer(store, preload, way, path)
                asked += 1
                if not is_right(question, path, content, state):
                    wrong.append(f"{question.__name__}, {way}, {state}")
                writer.end()
                os.unlink(path)
    for line in wrong:
        print("wrong:", line)
    print(f"{asked} answers, {len(wrong)} wrong")
    return not wrong


def keep(folder, store, preload):
    for state in STATES:
        for way in WAYS:
            path = f"{folder}/{way}.{state}"
            content = prepare(path, state)
            writer = Writer(store, preload, way, path)
            writer.sync()
            with open(f"{folder}/{way}.{state}.wanted", "wb") as file:
                file.write(content)
            writer.end()
    return True


def check(folder):
    wrong = 0
    for state in STATES:
        for way in WAYS:
            with open(f"{folder}/{way}.{state}", "rb") as file, open(f"{folder}/{way}.{state}.wanted", "rb") as wanted:
                if file.read() != wanted.read():
                    print(f"lost by kill -9: {way}, {state}")
                    wrong += 1
    print(f"{len(STATES) * len(WAYS)} files after kill -9, {wrong} wrong")
    return not wrong


if __name__ == "__main__":
    what, arguments = sys.argv[1], sys.argv[2:]
    outcome = {"ask": ask_all, "keep": keep, "check": check}[what](*arguments)
    sys.exit(0 if outcome else 1)
