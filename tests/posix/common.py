"""What the POSIX checks share: a directory per case, system calls that Python does not wrap, small helpers."""

import ctypes
import os
import shutil
import tempfile
import unittest

libc = ctypes.CDLL(None, use_errno=True)

AT_FDCWD = -100
RENAME_NOREPLACE = 1
RENAME_EXCHANGE = 2
RENAME_WHITEOUT = 4
FALLOC_FL_KEEP_SIZE = 1
FALLOC_FL_PUNCH_HOLE = 2
FALLOC_FL_ZERO_RANGE = 16
AT_SYMLINK_FOLLOW = 0x400
AT_EMPTY_PATH = 0x1000

# Where the cases work; set by __main__.
root = None


def check(result):
    """The result of a libc call, or its errno as an OSError."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def renameat2(source, target, flags):
    """rename(2) with flags."""
    check(libc.renameat2(AT_FDCWD, os.fsencode(source), AT_FDCWD, os.fsencode(target), ctypes.c_uint(flags)))


def fallocate(fd, mode, offset, length):
    """fallocate(2)."""
    check(libc.fallocate(fd, mode, ctypes.c_int64(offset), ctypes.c_int64(length)))


def in_child(work):
    """Runs `work` in a child process; its exception becomes an assertion in the parent."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:  # the child must never return into the test runner
            os.write(writer, repr(error).encode()[:4000])
            os._exit(1)
    os.close(writer)
    return child, reader


def join(*children):
    """Waits for processes started by `in_child`."""
    for child, reader in children:
        _, status = os.waitpid(child, 0)
        with os.fdopen(reader, "rb") as pipe:
            message = pipe.read().decode()
        if status != 0:
            raise AssertionError(f"child: status {status}: {message}")


class Case(unittest.TestCase):
    """A test with a directory of its own (`self.dir`)."""

    def setUp(self):
        self.dir = tempfile.mkdtemp(dir=root)
        os.chmod(self.dir, 0o755)
        self.addCleanup(shutil.rmtree, self.dir)

    def path(self, name="f"):
        """A path inside the case's directory."""
        return os.path.join(self.dir, name)

    def write(self, name, data=b""):
        """Creates a file with the given content and returns its path."""
        path = self.path(name)
        with open(path, "wb") as file:
            file.write(data)
        return path

    def read(self, name):
        """The whole content of a file."""
        with open(self.path(name), "rb") as file:
            return file.read()

    def open(self, name, flags=os.O_RDWR | os.O_CREAT, mode=0o644):
        """A file descriptor that is closed when the case ends."""
        fd = os.open(self.path(name), flags, mode)
        self.addCleanup(os.close, fd)
        return fd

    def fails(self, number, work, *arguments, **keywords):
        """`work` must fail with exactly this errno."""
        with self.assertRaises(OSError) as caught:
            work(*arguments, **keywords)
        self.assertEqual(caught.exception.errno, number, os.strerror(caught.exception.errno))
