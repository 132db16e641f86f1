"""A plain model of one worker's files: what every acknowledged operation must have left on the mount.

A path is relative to the mount and belongs to one worker: it lies below `w<worker>` or is `common/w<worker>-…`.
"""

import itertools
import os
import stat
import zlib

PAGE = 4096


def describe(operation):
    """An operation without its data."""
    return " ".join(f"<{len(word)} bytes>" if isinstance(word, bytes) else str(word) for word in operation)


class Node:
    """One inode. `mtime` is None where the time is the file system's choice."""

    def __init__(self, kind, mode=0o644, target=""):
        self.kind, self.mode, self.target = kind, mode, target
        self.data = bytearray()
        self.xattrs = {}
        self.mtime = None

    def put(self, offset, data):
        if offset > len(self.data):
            self.data.extend(bytes(offset - len(self.data)))
        self.data[offset:offset + len(data)] = data


class Model:
    """All paths of one worker. Several paths can name one node."""

    def __init__(self, worker):
        self.worker = worker
        self.paths = {f"w{worker}": Node("dir", 0o755)}
        self.records = 0  # in the shared log
        self.history = []  # of operations, for those who look for a mistake

    def parent(self, path):
        return os.path.dirname(path)

    def children(self, directory):
        return [path for path in self.paths if self.parent(path) == directory]

    def of_kind(self, *kinds):
        return sorted(path for path, node in self.paths.items() if node.kind in kinds)

    def move(self, source, target):
        """Renames `source` and all below it."""
        moved = {}
        for path in list(self.paths):
            if path == source or path.startswith(source + "/"):
                moved[target + path[len(source):]] = self.paths.pop(path)
        return moved

    def apply(self, name, *arguments):
        """The effect of one operation (the same names and arguments as `operations.perform`)."""
        getattr(self, "apply_" + name)(*arguments)
        self.history = self.history[-400:] + [describe((name, *arguments))]

    def apply_create(self, path, mode):
        self.paths[path] = Node("file", mode)

    def apply_mkdir(self, path, mode):
        self.paths[path] = Node("dir", mode)

    def apply_symlink(self, path, target):
        self.paths[path] = Node("link", 0o777, target)

    def apply_link(self, path, other):
        self.paths[other] = self.paths[path]

    def apply_remove(self, path):
        del self.paths[path]

    def apply_rename(self, source, target, _flags):
        if self.paths.get(target) is self.paths[source]:
            return  # two names of one file: POSIX says that nothing happens
        moved = self.move(source, target)
        self.paths.pop(target, None)
        self.paths.update(moved)

    def apply_exchange(self, first, second):
        to_second, to_first = self.move(first, second), self.move(second, first)
        self.paths.update(to_second)
        self.paths.update(to_first)

    def change(self, path):
        node = self.paths[path]
        node.mtime = None
        return node

    def apply_write(self, path, offset, data):
        self.change(path).put(offset, data)

    apply_direct = apply_mapped = apply_write

    def apply_append(self, path, data):
        node = self.change(path)
        node.put(len(node.data), data)

    def apply_truncate(self, path, size):
        node = self.change(path)
        if size <= len(node.data):
            del node.data[size:]
        else:
            node.data.extend(bytes(size - len(node.data)))

    def apply_punch(self, path, offset, length):
        node = self.change(path)
        end = min(offset + length, len(node.data))
        if offset < end:
            node.data[offset:end] = bytes(end - offset)

    def apply_allocate(self, path, offset, length):
        node = self.change(path)
        if offset + length > len(node.data):
            node.data.extend(bytes(offset + length - len(node.data)))

    def apply_chmod(self, path, mode):
        self.paths[path].mode = mode

    def apply_utime(self, path, moment):
        self.paths[path].mtime = moment

    def apply_setxattr(self, path, name, value):
        self.paths[path].xattrs[name] = value

    def apply_removexattr(self, path, name):
        del self.paths[path].xattrs[name]

    def apply_record(self, number):
        self.records = number

    def describe(self):
        """Path → everything that can be seen of it."""
        names = {}
        for path, node in self.paths.items():
            names.setdefault(id(node), []).append(path)
        seen = {}
        for path, node in self.paths.items():
            if node.kind == "dir":
                links = 2 + sum(1 for child in self.children(path) if self.paths[child].kind == "dir")
                seen[path] = ("dir", node.mode, links)
            elif node.kind == "link":
                seen[path] = ("link", node.target)
            else:
                seen[path] = ("file", node.mode, tuple(sorted(names[id(node)])), bytes(node.data),
                              tuple(sorted(node.xattrs.items())), node.mtime)
        return seen


def observe(root, worker):
    """What `describe` should say, read from the mount."""
    names, kinds = {}, {}
    pending = [f"w{worker}"] + [f"common/{name}" for name in os.listdir(f"{root}/common")
                                if name.startswith(f"w{worker}-")]
    while pending:
        path = pending.pop()
        status = os.lstat(f"{root}/{path}")
        kinds[path] = status
        if stat.S_ISDIR(status.st_mode):
            pending.extend(f"{path}/{name}" for name in os.listdir(f"{root}/{path}"))
        else:
            names.setdefault(status.st_ino, []).append(path)
    seen = {}
    for path, status in kinds.items():
        full = f"{root}/{path}"
        mode = stat.S_IMODE(status.st_mode)
        if stat.S_ISDIR(status.st_mode):
            seen[path] = ("dir", mode, status.st_nlink)
        elif stat.S_ISLNK(status.st_mode):
            seen[path] = ("link", os.readlink(full))
        else:
            links = tuple(sorted(names[status.st_ino]))
            if status.st_nlink != len(links):
                raise AssertionError(f"{path}: link count {status.st_nlink}, but the names are {links}")
            with open(full, "rb") as file:
                data = file.read()
            if len(data) != status.st_size:
                raise AssertionError(f"{path}: size {status.st_size}, but {len(data)} bytes can be read")
            xattrs = tuple(sorted((name, os.getxattr(full, name)) for name in os.listxattr(full)))
            seen[path] = ("file", mode, links, data, xattrs, status.st_mtime_ns)
    return seen


def differences(expected, found, mixed=None):
    """Sentences on what differs. `mixed` = (path, before, after): there each page may be of either."""
    told = []
    for path in sorted(expected.keys() | found.keys()):
        if path not in found:
            told.append(f"{path}: is missing")
        elif path not in expected:
            told.append(f"{path}: should not be there")
        else:
            told.extend(f"{path}: {text}" for text in differences_of(expected[path], found[path], mixed, path))
    return told


def differences_of(expected, found, mixed, path):
    if expected[0] != "file" or found[0] != "file":
        if expected != found:
            yield f"expected {expected}, found {found}"
        return
    for name, wanted, got in zip(("mode", "names", "data", "xattrs", "mtime"), expected[1:], found[1:]):
        if name == "mtime" and wanted is None or wanted == got:
            continue
        if name == "data":
            if mixed and path in mixed[0] and page_mix(got, mixed[1], mixed[2]):
                continue
            yield f"{len(wanted)} bytes expected, {len(got)} found, different: {differing(wanted, got)}"
        else:
            yield f"{name}: expected {wanted}, found {got}"


def page_mix(data, before, after):
    """Is every page of `data` the page of `before` or of `after`?"""
    return len(data) == len(before) == len(after) and all(
        data[start:start + PAGE] in (before[start:start + PAGE], after[start:start + PAGE])
        for start in range(0, len(data), PAGE))


def differing(first, second):
    """The first few ranges in which the bytes differ, and whether the second has zeros there."""
    ranges = []
    for number in range(max(len(first), len(second))):
        if first[number:number + 1] == second[number:number + 1]:
            continue
        if ranges and ranges[-1][1] >= number - 8:
            ranges[-1][1] = number + 1
        else:
            ranges.append([number, number + 1])
    told = [f"{start}..{end}{' (zeros)' if not any(second[start:end]) else ''}" for start, end in ranges[:4]]
    return ", ".join(told) + (f" and {len(ranges) - 4} more" if len(ranges) > 4 else "")


def record(worker, number):
    """One line of the log that all workers append to."""
    text = f"{worker} {number} ".ljust(54, ".")
    return f"{text} {zlib.crc32(text.encode()):08x}\n".encode()


def records_of(data, worker):
    """How many records of `worker` the shared log holds; they must be whole, in order and without a gap."""
    size = len(record(0, 0))
    if len(data) % size:
        raise AssertionError(f"the shared log has {len(data)} bytes, not a multiple of {size}")
    expected = itertools.count(1)
    count = 0
    for start in range(0, len(data), size):
        line = data[start:start + size]
        owner, number = (int(word) for word in line.split()[:2])
        if line != record(owner, number):
            raise AssertionError(f"the shared log is damaged at {start}: {line!r}")
        if owner == worker:
            if number != next(expected):
                raise AssertionError(f"the shared log has record {number} of worker {worker} after {count}")
            count = number
    return count
