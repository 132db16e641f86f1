"""Names, directories, links, attributes and times."""

import errno
import os
import stat
import threading
import time

from common import (AT_FDCWD, AT_SYMLINK_FOLLOW, RENAME_EXCHANGE, RENAME_NOREPLACE, Case, check, in_child, join, libc,
                    renameat2)


class Rename(Case):
    def test_replace(self):
        self.write("a", b"new")
        self.write("b", b"old")
        inode = os.stat(self.path("a")).st_ino
        os.rename(self.path("a"), self.path("b"))
        self.assertEqual(self.read("b"), b"new")
        self.assertEqual(os.stat(self.path("b")).st_ino, inode)
        self.assertEqual(os.listdir(self.dir), ["b"])

    def test_noreplace(self):
        self.write("a", b"1")
        self.write("b", b"2")
        self.fails(errno.EEXIST, renameat2, self.path("a"), self.path("b"), RENAME_NOREPLACE)
        renameat2(self.path("a"), self.path("c"), RENAME_NOREPLACE)
        self.assertEqual(sorted(os.listdir(self.dir)), ["b", "c"])

    def test_exchange_of_a_file_and_a_directory(self):
        os.makedirs(self.path("d/inner"))
        os.mkdir(self.path("other"))
        self.write("other/f", b"file")
        self.fails(errno.ENOENT, renameat2, self.path("d"), self.path("none"), RENAME_EXCHANGE)
        renameat2(self.path("d"), self.path("other/f"), RENAME_EXCHANGE)
        self.assertEqual(self.read("d"), b"file")
        self.assertEqual(os.listdir(self.path("other/f")), ["inner"])
        self.assertEqual(os.stat(self.dir).st_nlink, 3)
        self.assertEqual(os.stat(self.path("other")).st_nlink, 3)

    def test_unknown_flags(self):
        self.write("a")
        self.fails(errno.EINVAL, renameat2, self.path("a"), self.path("b"), 0x40)
        self.fails(errno.EINVAL, renameat2, self.path("a"), self.path("b"), RENAME_EXCHANGE | RENAME_NOREPLACE)

    def test_a_directory_never_goes_below_itself(self):
        os.makedirs(self.path("a/b"))
        self.fails(errno.EINVAL, os.rename, self.path("a"), self.path("a/b/c"))

    def test_directory_over_directory(self):
        os.mkdir(self.path("a"))
        os.makedirs(self.path("full/x"))
        os.mkdir(self.path("empty"))
        self.fails(errno.ENOTEMPTY, os.rename, self.path("a"), self.path("full"))
        os.rename(self.path("a"), self.path("empty"))
        self.write("file")
        self.fails(errno.ENOTDIR, os.rename, self.path("empty"), self.path("file"))
        self.fails(errno.EISDIR, os.rename, self.path("file"), self.path("empty"))

    def test_link_counts_across_directories(self):
        os.makedirs(self.path("a/child"))
        os.mkdir(self.path("b"))
        os.rename(self.path("a/child"), self.path("b/child"))
        self.assertEqual(os.stat(self.path("a")).st_nlink, 2)
        self.assertEqual(os.stat(self.path("b")).st_nlink, 3)
        self.assertEqual(os.stat(self.path("b/child/..")).st_ino, os.stat(self.path("b")).st_ino)

    def test_renames_against_each_other(self):
        for name in "ab":
            os.mkdir(self.path(name))

        def shuttle(first, second):
            for number in range(300):
                name = f"{first}{number % 7}"
                with open(self.path(f"{first}/{name}"), "w"):
                    pass
                os.rename(self.path(f"{first}/{name}"), self.path(f"{second}/{name}"))

        join(in_child(lambda: shuttle("a", "b")), in_child(lambda: shuttle("b", "a")))
        self.assertEqual(sorted(os.listdir(self.path("a"))), [f"b{number}" for number in range(7)])
        self.assertEqual(sorted(os.listdir(self.path("b"))), [f"a{number}" for number in range(7)])


class Links(Case):
    def test_unlinked_file_lives_while_open(self):
        fd = self.open("f")
        os.write(fd, b"x" * 10_000)
        os.unlink(self.path("f"))
        self.assertEqual(os.fstat(fd).st_nlink, 0)
        os.pwrite(fd, b"y" * 10_000, 5_000)
        self.assertEqual(os.pread(fd, 20_000, 0), b"x" * 5_000 + b"y" * 10_000)
        self.assertFalse(os.path.exists(self.path("f")))

    def nameless(self, flags=0):
        try:
            return os.open(self.dir, os.O_TMPFILE | os.O_RDWR | flags, 0o600)
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            self.skipTest("no O_TMPFILE: the mount refuses FUSE_TMPFILE; the library is tested for it")

    def test_nameless_file_can_get_a_name(self):
        fd = self.nameless()
        os.write(fd, b"content")
        self.assertEqual(os.listdir(self.dir), [])
        self.assertEqual(os.fstat(fd).st_nlink, 0)
        source = f"/proc/self/fd/{fd}".encode()
        check(libc.linkat(AT_FDCWD, source, AT_FDCWD, os.fsencode(self.path("named")), AT_SYMLINK_FOLLOW))
        os.close(fd)
        self.assertEqual(self.read("named"), b"content")
        self.assertEqual(os.stat(self.path("named")).st_nlink, 1)

    def test_nameless_file_opened_exclusively_cannot(self):
        fd = self.nameless(os.O_EXCL)
        source = f"/proc/self/fd/{fd}".encode()
        with self.assertRaises(OSError) as caught:
            check(libc.linkat(AT_FDCWD, source, AT_FDCWD, os.fsencode(self.path("named")), AT_SYMLINK_FOLLOW))
        self.assertEqual(caught.exception.errno, errno.ENOENT)
        os.close(fd)

    def test_hard_links_share_everything(self):
        self.write("a", b"one")
        os.link(self.path("a"), self.path("b"))
        with open(self.path("b"), "ab") as file:
            file.write(b" two")
        os.chmod(self.path("a"), 0o640)
        first, second = os.stat(self.path("a")), os.stat(self.path("b"))
        self.assertEqual((first.st_ino, first.st_size, first.st_mode, first.st_nlink),
                         (second.st_ino, second.st_size, second.st_mode, second.st_nlink))
        self.assertEqual(first.st_nlink, 2)
        self.assertEqual(self.read("a"), b"one two")
        os.unlink(self.path("a"))
        self.assertEqual(os.stat(self.path("b")).st_nlink, 1)

    def test_symbolic_links(self):
        target = "x" * 4000
        os.symlink(target, self.path("long"))
        self.assertEqual(os.readlink(self.path("long")), target)
        self.assertEqual(os.lstat(self.path("long")).st_size, 4000)
        self.fails(errno.ENAMETOOLONG, os.symlink, "x" * 4096, self.path("longer"))
        os.symlink("loop", self.path("loop"))
        self.fails(errno.ELOOP, os.stat, self.path("loop"))
        os.symlink("none", self.path("dangling"))
        self.fails(errno.ENOENT, os.stat, self.path("dangling"))

    def test_special_files(self):
        os.mkfifo(self.path("fifo"))
        self.assertTrue(stat.S_ISFIFO(os.stat(self.path("fifo")).st_mode))
        if os.geteuid() == 0:
            os.mknod(self.path("null"), stat.S_IFCHR | 0o666, os.makedev(1, 3))
            self.assertEqual(os.stat(self.path("null")).st_rdev, os.makedev(1, 3))


class Names(Case):
    def test_odd_names(self):
        names = [b"\xff\xfe\x80", b"new\nline", b" ", b"...", b"-rf", b"\\", b"a" * 255, "é".encode() * 127, b"*?[",
                 bytes(range(1, 47)) + bytes(range(48, 256))]
        base = os.fsencode(self.dir)
        for number, name in enumerate(names):
            with open(os.path.join(base, name), "wb") as file:
                file.write(bytes([number]))
        self.assertEqual(sorted(os.listdir(base)), sorted(names))
        for number, name in enumerate(names):
            with open(os.path.join(base, name), "rb") as file:
                self.assertEqual(file.read(), bytes([number]))

    def test_a_name_of_256_bytes_is_refused(self):
        for work in (lambda path: os.open(path, os.O_CREAT), os.mkdir, os.stat, os.unlink,
                     lambda path: os.rename(self.dir, path)):
            self.fails(errno.ENAMETOOLONG, work, self.path("n" * 256))

    def test_case_and_normal_form_matter(self):
        for name in ("A", "a", "\u00e9", "e\u0301"):
            self.write(name)
        self.assertEqual(len(os.listdir(self.dir)), 4)

    def test_deep_tree(self):
        here = os.open(self.dir, os.O_RDONLY)
        for _ in range(200):
            os.mkdir("d" * 20, dir_fd=here)
            deeper = os.open("d" * 20, os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = deeper
        for _ in range(200):
            parent = os.open("..", os.O_RDONLY, dir_fd=here)
            os.close(here)
            os.rmdir("d" * 20, dir_fd=parent)
            here = parent
        self.assertEqual(os.fstat(here).st_ino, os.stat(self.dir).st_ino)
        os.close(here)


class Listing(Case):
    def test_names_that_stay_are_listed_exactly_once(self):
        """While other names come and go, as POSIX demands: readdir's cookies stay valid."""
        stable = {f"stable-{number}" for number in range(2000)}
        for name in stable:
            self.write(name)
        stop = threading.Event()
        failures = []

        def churn(worker):
            try:
                number = 0
                while not stop.is_set():
                    number += 1
                    path = self.path(f"churn-{worker}-{number % 500}-{'x' * (number % 60)}")
                    with open(path, "w"):
                        pass
                    if number % 3:
                        os.rename(path, path + "-moved")
                        path += "-moved"
                    os.unlink(path)
            except OSError as error:
                failures.append(error)

        workers = [threading.Thread(target=churn, args=(worker,)) for worker in range(2)]
        for worker in workers:
            worker.start()
        try:
            for _ in range(15):
                seen = [name for name in self.list_slowly() if name.startswith("stable")]
                self.assertEqual(len(seen), len(set(seen)), "a name was listed twice")
                self.assertEqual(set(seen), stable)
        finally:
            stop.set()
            for worker in workers:
                worker.join()
        self.assertEqual(failures, [])

    def list_slowly(self):
        """All names, with room for changes between the calls of getdents."""
        names = []
        with os.scandir(self.dir) as entries:
            for entry in entries:
                names.append(entry.name)
                if len(names) % 200 == 0:
                    time.sleep(0.002)
        return names

    def test_removing_while_listing(self):
        for number in range(3000):
            self.write(f"f{number}")
        with os.scandir(self.dir) as entries:
            for entry in entries:
                os.unlink(entry.path)
        self.assertEqual(os.listdir(self.dir), [])

    def test_hundred_thousand_names(self):
        count = 100_000
        directory = os.open(self.dir, os.O_RDONLY)
        for number in range(count):
            os.close(os.open(f"name-{number}", os.O_CREAT | os.O_WRONLY, dir_fd=directory))
        names = os.listdir(self.dir)
        self.assertEqual(len(names), count)
        self.assertEqual(len(set(names)), count)
        for number in range(0, count, 97):
            os.stat(f"name-{number}", dir_fd=directory)
        self.fails(errno.ENOENT, os.stat, "name-x", dir_fd=directory)
        for number in range(0, count):
            os.unlink(f"name-{number}", dir_fd=directory)
        os.close(directory)
        self.assertEqual(os.listdir(self.dir), [])

    def test_a_removed_directory_is_empty_and_closed(self):
        os.mkdir(self.path("d"))
        directory = os.open(self.path("d"), os.O_RDONLY)
        os.rmdir(self.path("d"))
        self.assertEqual(os.listdir(directory), [])
        self.fails(errno.ENOENT, os.open, "f", os.O_CREAT | os.O_WRONLY, dir_fd=directory)
        os.close(directory)

    def test_types_in_listings(self):
        self.write("file")
        os.mkdir(self.path("dir"))
        os.symlink("x", self.path("link"))
        kinds = {entry.name: (entry.is_dir(follow_symlinks=False), entry.is_symlink()) for entry in os.scandir(self.dir)}
        self.assertEqual(kinds, {"file": (False, False), "dir": (True, False), "link": (False, True)})


class Attributes(Case):
    def test_xattr_round_trip_of_a_file(self):
        self.round_trip(self.write("f"))

    def test_xattr_round_trip_of_a_directory(self):
        os.mkdir(self.path("d"))
        self.round_trip(self.path("d"))

    def round_trip(self, path):
        values = {f"user.{number}": os.urandom(number * 37 % 200) for number in range(20)}
        for name, value in values.items():
            os.setxattr(path, name, value)
        self.assertEqual({name: os.getxattr(path, name) for name in os.listxattr(path)}, values)
        for name in list(values)[::2]:
            os.removexattr(path, name)
            del values[name]
        self.assertEqual({name: os.getxattr(path, name) for name in os.listxattr(path)}, values)
        self.fails(errno.ENODATA, os.getxattr, path, "user.none")
        self.fails(errno.ENODATA, os.removexattr, path, "user.none")

    def test_xattr_limits(self):
        path = self.write("f")
        name = "user." + "n" * 250
        os.setxattr(path, name, b"v")
        self.assertEqual(os.listxattr(path), [name])
        self.fails(errno.ERANGE, os.setxattr, path, name + "n", b"v")
        os.setxattr(path, "user.empty", b"")
        self.assertEqual(os.getxattr(path, "user.empty"), b"")
        self.fails(errno.E2BIG, os.setxattr, path, "user.big", bytes(65537))
        self.fails(errno.EOPNOTSUPP, os.setxattr, path, "unknown.x", b"v")

    def test_xattr_flags(self):
        path = self.write("f")
        self.fails(errno.ENODATA, os.setxattr, path, "user.a", b"v", os.XATTR_REPLACE)
        os.setxattr(path, "user.a", b"v", os.XATTR_CREATE)
        self.fails(errno.EEXIST, os.setxattr, path, "user.a", b"v", os.XATTR_CREATE)

    def test_nanoseconds(self):
        path = self.write("f")
        for moment in (0, 1, 999_999_999, 1_700_000_000_123_456_789, 4_102_444_800_987_654_321, 10**18 * 4 + 7):
            os.utime(path, ns=(moment, moment + 1))
            found = os.stat(path)
            self.assertEqual((found.st_atime_ns, found.st_mtime_ns), (moment, moment + 1))

    def test_times_before_1970(self):
        path = self.write("f")
        os.utime(path, ns=(-1_500_000_000, -1))
        self.assertEqual(os.stat(path).st_mtime_ns, -1)

    def test_changes_move_the_times(self):
        path = self.write("f", b"x")
        fd = self.open("f")

        def moves(work, *fields):
            before = os.stat(path)
            time.sleep(0.02)
            work()
            after = os.stat(path)
            changed = tuple(name for name in ("st_mtime_ns", "st_ctime_ns")
                            if getattr(after, name) > getattr(before, name))
            self.assertEqual(changed, fields)

        moves(lambda: os.write(fd, b"y"), "st_mtime_ns", "st_ctime_ns")
        moves(lambda: os.ftruncate(fd, 100), "st_mtime_ns", "st_ctime_ns")
        moves(lambda: os.chmod(path, 0o600), "st_ctime_ns")
        moves(lambda: os.link(path, self.path("g")), "st_ctime_ns")
        moves(lambda: os.setxattr(path, "user.a", b"1"), "st_ctime_ns")
        moves(lambda: os.pread(fd, 1, 0))

    def test_writing_drops_setuid(self):
        path = self.write("f", b"x")
        os.chmod(path, 0o6755)

        def write():
            os.setgid(65534)
            os.setuid(65534)
            fd = os.open(path, os.O_WRONLY)
            os.write(fd, b"y")

        if os.geteuid() == 0:
            os.chmod(path, 0o6777)
            join(in_child(write))
            self.assertEqual(os.stat(path).st_mode & 0o7777, 0o777)

    def test_new_names_inherit_the_group_of_a_setgid_directory(self):
        if os.geteuid() != 0:
            return
        os.mkdir(self.path("d"))
        os.chown(self.path("d"), 0, 1)
        os.chmod(self.path("d"), 0o2755)
        self.write("d/f")
        os.mkdir(self.path("d/sub"))
        self.assertEqual(os.stat(self.path("d/f")).st_gid, 1)
        self.assertEqual(os.stat(self.path("d/sub")).st_gid, 1)
        self.assertTrue(os.stat(self.path("d/sub")).st_mode & stat.S_ISGID)

    def test_space_figures_are_sane(self):
        figures = os.statvfs(self.dir)
        self.assertEqual(figures.f_namemax, 255)
        self.assertLessEqual(figures.f_bavail, figures.f_bfree)
        self.assertLessEqual(figures.f_bfree, figures.f_blocks)
        self.assertLessEqual(figures.f_ffree, figures.f_files)
