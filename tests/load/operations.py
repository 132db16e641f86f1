"""The operations of the load: a choice of the next one that fits the model, and the system calls that perform it."""

import contextlib
import ctypes
import errno
import mmap
import os

from model import PAGE, record

libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, NOREPLACE, EXCHANGE = -100, 1, 2
KEEP_SIZE, PUNCH_HOLE = 1, 2
FILE_LIMIT = 384 * 1024
LARGE_WRITE = 1024 * 1024 - 2 * PAGE


def choose(random, model):
    """(name, arguments…) of an operation that must succeed."""
    name = random.choices(list(CHOICES), weights=[weight for weight, _ in CHOICES.values()])[0]
    return CHOICES[name][1](random, model) or choose(random, model)


def new_path(random, model):
    """A path in one of the worker's directories; in the common one the name tells the owner."""
    directory = random.choice(model.of_kind("dir") + ["common"])
    if directory.count("/") > 4:
        return None
    name = f"{random.choice('abcdefgh')}{random.randrange(12)}" + "x" * random.choice([0, 0, 0, 5, 100, 200])
    return f"{directory}/w{model.worker}-{name}" if directory == "common" else f"{directory}/{name}"


def free_path(random, model):
    path = new_path(random, model)
    return path if path and path not in model.paths else None


def a_file(random, model):
    files = model.of_kind("file")
    return random.choice(files) if files else None


def create(random, model):
    path = free_path(random, model)
    return path and len(model.paths) < 80 and ("create", path, random.choice([0o600, 0o644, 0o640]))


def mkdir(random, model):
    path = free_path(random, model)
    return path and len(model.of_kind("dir")) < 12 and ("mkdir", path, random.choice([0o700, 0o755]))


def symlink(random, model):
    path = free_path(random, model)
    return path and len(model.paths) < 80 and ("symlink", path, "t" * random.choice([1, 30, 59, 60, 61, 1000]))


def link(random, model):
    path, other = a_file(random, model), free_path(random, model)
    return path and other and ("link", path, other)


def remove(random, model):
    path = random.choice(sorted(model.paths))
    if path == f"w{model.worker}" or model.children(path) or len(model.paths) < 10:
        return None
    return "remove", path


def rename(random, model):
    source, target = random.choice(sorted(model.paths)), new_path(random, model)
    if not target or source == f"w{model.worker}" or target == source or target.startswith(source + "/"):
        return None
    if target in model.paths:
        if model.children(target) or (model.paths[target].kind == "dir") != (model.paths[source].kind == "dir"):
            return None
        return "rename", source, target, 0
    return "rename", source, target, random.choice([0, NOREPLACE])


def exchange(random, model):
    first, second = (random.choice(sorted(model.paths)) for _ in range(2))
    if first == second or f"w{model.worker}" in (first, second) or model.paths[first] is model.paths[second]:
        return None
    if first.startswith(second + "/") or second.startswith(first + "/"):
        return None
    return "exchange", first, second


def write(random, model):
    path = a_file(random, model)
    if not path:
        return None
    if random.random() < 0.02:
        return "write", path, random.randrange(PAGE), random.randbytes(LARGE_WRITE)
    length = random.choice([1, 8, 64, random.randrange(1, 500), PAGE, 2 * PAGE, random.randrange(1, 100_000)])
    offset = random.randrange(FILE_LIMIT)
    if random.random() < 0.4:
        offset -= offset % PAGE
    return "write", path, offset, random.randbytes(length)


def direct(random, model):
    path = a_file(random, model)
    return path and ("direct", path, random.randrange(FILE_LIMIT // PAGE) * PAGE,
                     random.randbytes(random.randrange(1, 16) * PAGE))


def mapped(random, model):
    path = a_file(random, model)
    if not path or len(model.paths[path].data) < 2:
        return None
    size = len(model.paths[path].data)
    offset = random.randrange(size - 1)
    return "mapped", path, offset, random.randbytes(min(size - offset, random.randrange(1, 20_000)))


def append(random, model):
    path = a_file(random, model)
    if not path or len(model.paths[path].data) > FILE_LIMIT:
        return None
    return "append", path, random.randbytes(random.choice([1, 100, PAGE, random.randrange(1, 20_000)]))


def truncate(random, model):
    path = a_file(random, model)
    return path and ("truncate", path, random.choice([0, random.randrange(FILE_LIMIT), random.randrange(FILE_LIMIT)]))


def punch(random, model):
    path = a_file(random, model)
    return path and ("punch", path, random.randrange(FILE_LIMIT), random.randrange(1, 50_000))


def allocate(random, model):
    path = a_file(random, model)
    return path and ("allocate", path, random.randrange(FILE_LIMIT), random.randrange(1, 50_000))


def chmod(random, model):
    path = a_file(random, model)
    return path and ("chmod", path, random.choice([0o600, 0o644, 0o640, 0o755]))


def utime(random, model):
    path = a_file(random, model)
    return path and ("utime", path, random.randrange(2 * 10**18))


def setxattr(random, model):
    path = a_file(random, model)
    return path and ("setxattr", path, f"user.{random.choice('abcde')}", random.randbytes(random.randrange(200)))


def removexattr(random, model):
    path = a_file(random, model)
    if not path or not model.paths[path].xattrs:
        return None
    return "removexattr", path, random.choice(sorted(model.paths[path].xattrs))


def shared(_random, model):
    return "record", model.records + 1


# name → (weight, how to choose its arguments)
CHOICES = {
    "create": (10, create), "mkdir": (3, mkdir), "symlink": (2, symlink), "link": (3, link), "remove": (8, remove),
    "rename": (8, rename), "exchange": (2, exchange), "write": (20, write), "direct": (4, direct),
    "mapped": (4, mapped), "append": (10, append), "truncate": (5, truncate), "punch": (3, punch),
    "allocate": (2, allocate), "chmod": (2, chmod), "utime": (2, utime), "setxattr": (3, setxattr),
    "removexattr": (1, removexattr), "record": (6, shared),
}


def perform(root, worker, name, *arguments):
    """One operation by system calls. Returning is the acknowledgement."""
    if name == "record":
        with opened(f"{root}/common/shared.log", os.O_WRONLY | os.O_APPEND) as fd:
            whole(os.write(fd, record(worker, *arguments)), record(worker, *arguments))
        return
    path, rest = f"{root}/{arguments[0]}", arguments[1:]
    PERFORM[name](root, path, *rest)


@contextlib.contextmanager
def opened(path, flags):
    """A file descriptor. What close says does not matter: by then the operation is acknowledged."""
    fd = os.open(path, flags, 0o600)
    try:
        yield fd
    finally:
        with contextlib.suppress(OSError):
            os.close(fd)


class ShortWrite(OSError):
    """The mount died inside a write call that the kernel had split: the first `count` bytes are acknowledged."""

    def __init__(self, count, length):
        super().__init__(f"{count} of {length} bytes were written")
        self.count = count


def whole(count, data):
    if count != len(data):
        raise ShortWrite(count, len(data))


def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def perform_create(_root, path, mode):
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
    with contextlib.suppress(OSError):
        os.close(fd)


def perform_write(_root, path, offset, data):
    with opened(path, os.O_WRONLY) as fd:
        whole(os.pwrite(fd, data, offset), data)


def perform_direct(_root, path, offset, data):
    with opened(path, os.O_WRONLY | os.O_DIRECT) as fd, mmap.mmap(-1, len(data)) as aligned:
        aligned[:] = data
        whole(os.pwritev(fd, [aligned], offset), data)


def perform_mapped(_root, path, offset, data):
    """In a child: a fault in a mapping of a dead mount is a signal, not an error."""
    child = os.fork()
    if child == 0:
        try:
            with opened(path, os.O_RDWR) as fd, mmap.mmap(fd, 0) as view:
                view[offset:offset + len(data)] = data
                view.flush()
                os.fsync(fd)
            os._exit(0)
        finally:
            os._exit(1)
    if os.waitpid(child, 0)[1] != 0:
        raise OSError(errno.EIO, "the child that wrote to a mapping failed")


def perform_append(_root, path, data):
    with opened(path, os.O_WRONLY | os.O_APPEND) as fd:
        whole(os.write(fd, data), data)


def fallocate(path, mode, offset, length):
    with opened(path, os.O_WRONLY) as fd:
        check(libc.fallocate(fd, mode, ctypes.c_int64(offset), ctypes.c_int64(length)))


def rename2(source, target, flags):
    check(libc.renameat2(AT_FDCWD, source.encode(), AT_FDCWD, target.encode(), ctypes.c_uint(flags)))


PERFORM = {
    "create": perform_create,
    "mkdir": lambda _root, path, mode: os.mkdir(path, mode),
    "symlink": lambda _root, path, target: os.symlink(target, path),
    "link": lambda root, path, other: os.link(path, f"{root}/{other}"),
    "remove": lambda _root, path: os.rmdir(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path),
    "rename": lambda root, path, target, flags: rename2(path, f"{root}/{target}", flags),
    "exchange": lambda root, path, other: rename2(path, f"{root}/{other}", EXCHANGE),
    "write": perform_write,
    "direct": perform_direct,
    "mapped": perform_mapped,
    "append": perform_append,
    "truncate": lambda _root, path, size: os.truncate(path, size),
    "punch": lambda _root, path, offset, length: fallocate(path, KEEP_SIZE | PUNCH_HOLE, offset, length),
    "allocate": lambda _root, path, offset, length: fallocate(path, 0, offset, length),
    "chmod": lambda _root, path, mode: os.chmod(path, mode),
    "utime": lambda _root, path, moment: os.utime(path, ns=(moment, moment)),
    "setxattr": lambda _root, path, name, value: os.setxattr(path, name, value),
    "removexattr": lambda _root, path, name: os.removexattr(path, name),
}
