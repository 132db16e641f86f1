"""File content: every way of reading and writing sees the same bytes."""

import errno
import fcntl
import mmap
import os
import random
import threading

from common import (FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE, Case, fallocate, in_child, join)

PAGE = 4096
TIB = 1 << 40


class Mappings(Case):
    def test_shared_mapping_and_calls_agree(self):
        fd = self.open("f")
        os.ftruncate(fd, 64 * PAGE)
        with mmap.mmap(fd, 64 * PAGE) as view:
            generator = random.Random(1)
            model = bytearray(64 * PAGE)
            for _ in range(2000):
                offset = generator.randrange(64 * PAGE - 5000)
                data = generator.randbytes(generator.randrange(1, 5000))
                if generator.random() < 0.5:
                    view[offset:offset + len(data)] = data
                else:
                    os.pwrite(fd, data, offset)
                model[offset:offset + len(data)] = data
                probe = generator.randrange(64 * PAGE - 100)
                self.assertEqual(os.pread(fd, 100, probe), model[probe:probe + 100])
                self.assertEqual(view[probe:probe + 100], model[probe:probe + 100])
            view.flush()
        self.assertEqual(self.read("f"), model)

    def test_shared_between_processes(self):
        fd = self.open("f")
        os.ftruncate(fd, PAGE)
        view = mmap.mmap(fd, PAGE)

        def write():
            other = os.open(self.path("f"), os.O_RDWR)
            with mmap.mmap(other, PAGE) as theirs:
                theirs[100:105] = b"hello"
            os.close(other)

        join(in_child(write))
        self.assertEqual(view[100:105], b"hello")
        view.close()

    def test_private_mapping_is_private(self):
        self.write("f", b"a" * PAGE)
        fd = self.open("f")
        with mmap.mmap(fd, PAGE, flags=mmap.MAP_PRIVATE) as view:
            view[0:3] = b"xyz"
            self.assertEqual(os.pread(fd, 3, 0), b"aaa")
        self.assertEqual(self.read("f"), b"a" * PAGE)

    def test_mapping_outlives_descriptor_and_name(self):
        fd = os.open(self.path("f"), os.O_RDWR | os.O_CREAT)
        os.ftruncate(fd, PAGE)
        view = mmap.mmap(fd, PAGE)
        os.close(fd)
        os.unlink(self.path("f"))
        view[0:4] = b"kept"
        view.flush()
        self.assertEqual(view[0:4], b"kept")
        view.close()

    def test_extension_reads_zeros_after_a_shrink(self):
        fd = self.open("f")
        os.pwrite(fd, b"x" * 3 * PAGE, 0)
        os.ftruncate(fd, 100)
        os.ftruncate(fd, 3 * PAGE)
        self.assertEqual(self.read("f"), b"x" * 100 + bytes(3 * PAGE - 100))

    def test_bytes_written_by_a_mapping_beyond_the_end_are_not_kept(self):
        fd = self.open("f")
        os.ftruncate(fd, PAGE)
        with mmap.mmap(fd, PAGE) as view:
            os.ftruncate(fd, 100)
            view[100:200] = b"y" * 100
            view.flush()
        os.ftruncate(fd, 200)
        self.assertEqual(os.pread(fd, 100, 100), bytes(100))


class Direct(Case):
    def test_direct_and_cached_agree(self):
        direct = self.open("f", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
        cached = self.open("f")
        buffer = mmap.mmap(-1, 16 * PAGE)  # page aligned
        for round_number in range(50):
            buffer[:] = bytes([round_number]) * (16 * PAGE)
            self.assertEqual(os.pwritev(direct, [buffer], 0), 16 * PAGE)
            self.assertEqual(os.pread(cached, 16 * PAGE, 0), buffer[:])
            os.pwrite(cached, b"!" * 10, 5 * PAGE + 7)
            self.assertEqual(os.preadv(direct, [buffer], 0), 16 * PAGE)
            self.assertEqual(buffer[5 * PAGE + 7:5 * PAGE + 17], b"!" * 10)
        buffer.close()

    def test_direct_write_invalidates_a_mapping(self):
        cached = self.open("f")
        os.pwrite(cached, b"a" * PAGE, 0)
        view = mmap.mmap(cached, PAGE)
        self.assertEqual(view[0:1], b"a")
        direct = self.open("f", os.O_RDWR | os.O_DIRECT)
        buffer = mmap.mmap(-1, PAGE)
        buffer[:] = b"b" * PAGE
        os.pwritev(direct, [buffer], 0)
        self.assertEqual(os.pread(cached, 1, 0), b"b")
        self.assertEqual(view[0:1], b"b")
        view.close()
        buffer.close()


class Append(Case):
    def test_processes_append_whole_records(self):
        writers, records, size = 4, 1000, 100

        def append(writer):
            fd = os.open(self.path("log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            for number in range(records):
                record = f"{writer} {number} ".encode().ljust(size - 1, b".") + b"\n"
                assert os.write(fd, record) == size
            os.close(fd)

        join(*[in_child(lambda writer=writer: append(writer)) for writer in range(writers)])
        data = self.read("log")
        self.assertEqual(len(data), writers * records * size)
        next_number = [0] * writers
        for start in range(0, len(data), size):
            writer, number = map(int, data[start:start + size].split()[:2])
            self.assertEqual(number, next_number[writer])
            next_number[writer] += 1

    def test_append_ignores_the_position(self):
        self.write("f", b"start")
        fd = self.open("f", os.O_RDWR | os.O_APPEND)
        os.lseek(fd, 0, os.SEEK_SET)
        os.write(fd, b" end")
        self.assertEqual(self.read("f"), b"start end")


class Space(Case):
    def test_holes_and_data_are_found(self):
        fd = self.open("f")
        os.ftruncate(fd, 1 << 24)
        os.pwrite(fd, b"x" * PAGE, 1 << 20)
        self.assertEqual(os.lseek(fd, 0, os.SEEK_DATA), 1 << 20)
        self.assertEqual(os.lseek(fd, 0, os.SEEK_HOLE), 0)
        self.assertEqual(os.lseek(fd, 1 << 20, os.SEEK_HOLE), (1 << 20) + PAGE)
        self.fails(errno.ENXIO, os.lseek, fd, 1 << 21, os.SEEK_DATA)
        self.assertEqual(os.lseek(fd, (1 << 24) - 1, os.SEEK_HOLE), (1 << 24) - 1)
        self.fails(errno.ENXIO, os.lseek, fd, 1 << 24, os.SEEK_HOLE)

    def test_fallocate_reserves_and_keeps_the_size(self):
        fd = self.open("f")
        fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 1 << 20)
        self.assertEqual(os.fstat(fd).st_size, 0)
        self.assertGreaterEqual(os.fstat(fd).st_blocks * 512, 1 << 20)
        fallocate(fd, 0, 0, 1 << 20)
        self.assertEqual(os.fstat(fd).st_size, 1 << 20)
        self.assertEqual(self.read("f"), bytes(1 << 20))

    def test_punch_frees_whole_blocks_and_zeroes_the_rest(self):
        fd = self.open("f")
        os.pwrite(fd, b"x" * 16 * PAGE, 0)
        before = os.fstat(fd).st_blocks
        fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, PAGE + 100, 8 * PAGE)
        self.assertEqual(os.fstat(fd).st_blocks, before - 7 * 8)
        self.assertEqual(os.fstat(fd).st_size, 16 * PAGE)
        expected = b"x" * (PAGE + 100) + bytes(8 * PAGE) + b"x" * (7 * PAGE - 100)
        self.assertEqual(self.read("f"), expected)
        self.fails(errno.EOPNOTSUPP, fallocate, fd, FALLOC_FL_PUNCH_HOLE, 0, PAGE)

    def test_zero_range(self):
        fd = self.open("f")
        os.pwrite(fd, b"x" * 4 * PAGE, 0)
        fallocate(fd, FALLOC_FL_ZERO_RANGE, 100, 2 * PAGE)
        self.assertEqual(self.read("f"), b"x" * 100 + bytes(2 * PAGE) + b"x" * (2 * PAGE - 100))
        fallocate(fd, FALLOC_FL_ZERO_RANGE, 3 * PAGE, 4 * PAGE)
        self.assertEqual(os.fstat(fd).st_size, 7 * PAGE)

    def test_fallocate_refuses_nonsense(self):
        fd = self.open("f")
        self.fails(errno.EINVAL, fallocate, fd, 0, 0, 0)
        self.fails(errno.EINVAL, fallocate, fd, 0, -1, 10)
        readonly = self.open("f", os.O_RDONLY)
        self.fails(errno.EBADF, fallocate, readonly, 0, 0, 10)

    def test_sixteen_tebibytes(self):
        fd = self.open("f")
        offset = 16 * TIB - PAGE
        os.pwrite(fd, b"far", offset)
        self.assertEqual(os.fstat(fd).st_size, offset + 3)
        self.assertEqual(os.pread(fd, 10, offset), b"far")
        self.assertEqual(os.pread(fd, 10, 8 * TIB), bytes(10))
        self.assertLess(os.fstat(fd).st_blocks, 1000)
        self.assertEqual(os.lseek(fd, 0, os.SEEK_DATA), offset)
        os.ftruncate(fd, 5)
        self.assertEqual(os.fstat(fd).st_size, 5)

    def test_a_size_past_the_limit_is_refused(self):
        fd = self.open("f")
        self.fails(errno.EFBIG, os.ftruncate, fd, (1 << 63) - 1)
        self.assertEqual(os.fstat(fd).st_size, 0)

    def test_space_returns_after_removal(self):
        before = os.statvfs(self.dir)
        for number in range(20):
            self.write(f"f{number}", os.urandom(200_000))
        for number in range(20):
            os.unlink(self.path(f"f{number}"))
        os.sync()
        after = os.statvfs(self.dir)
        self.assertLess(before.f_bfree - after.f_bfree, 64)


class Calls(Case):
    def test_copy_between_files_in_the_kernel(self):
        data = os.urandom(300_000)
        self.write("a", data)
        source = self.open("a", os.O_RDONLY)
        target = self.open("b")
        done = 0
        while done < len(data):
            done += os.copy_file_range(source, target, len(data) - done)
        self.assertEqual(self.read("b"), data)
        other = self.open("c")
        done = 0
        while done < len(data):
            done += os.sendfile(other, source, done, len(data) - done)
        self.assertEqual(self.read("c"), data)

    def test_vectors_spanning_blocks(self):
        fd = self.open("f")
        parts = [os.urandom(size) for size in (1, 4095, 4097, 100_000, 3)]
        self.assertEqual(os.pwritev(fd, parts, 4090), sum(map(len, parts)))
        self.assertEqual(os.pread(fd, 200_000, 4090), b"".join(parts))

    def test_large_writes_are_whole(self):
        data = os.urandom((8 << 20) + 12345)
        fd = self.open("f")
        done = 0
        while done < len(data):
            done += os.pwrite(fd, data[done:], 777 + done)
        self.assertEqual(self.read("f"), bytes(777) + data)

    def test_threads_on_one_file(self):
        fd = self.open("f")
        size, rounds = 64 * 1024, 40

        def fill(part):
            for number in range(rounds):
                os.pwrite(fd, bytes([part * 50 + number % 50]) * size, part * size)

        threads = [threading.Thread(target=fill, args=(part,)) for part in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        expected = b"".join(bytes([part * 50 + (rounds - 1) % 50]) * size for part in range(4))
        self.assertEqual(self.read("f"), expected)

    def test_modes_of_opening(self):
        self.write("f", b"data")
        self.fails(errno.EEXIST, os.open, self.path("f"), os.O_CREAT | os.O_EXCL)
        self.fails(errno.ENOENT, os.open, self.path("none"), os.O_RDONLY)
        self.fails(errno.EISDIR, os.open, self.dir, os.O_WRONLY)
        self.fails(errno.ENOTDIR, os.open, self.path("f"), os.O_RDONLY | os.O_DIRECTORY)
        os.symlink("f", self.path("l"))
        self.fails(errno.ELOOP, os.open, self.path("l"), os.O_RDONLY | os.O_NOFOLLOW)
        fd = self.open("f", os.O_RDONLY)
        self.fails(errno.EBADF, os.write, fd, b"x")
        self.open("f", os.O_RDWR | os.O_TRUNC)
        self.assertEqual(os.path.getsize(self.path("f")), 0)

    def test_synchronous_calls(self):
        fd = self.open("f", os.O_RDWR | os.O_CREAT | os.O_SYNC)
        os.write(fd, b"x")
        os.fsync(fd)
        os.fdatasync(fd)
        directory = os.open(self.dir, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)


class Locks(Case):
    def test_flock_excludes_another_process(self):
        fd = self.open("f")
        fcntl.flock(fd, fcntl.LOCK_EX)

        def other():
            theirs = os.open(self.path("f"), os.O_RDWR)
            try:
                fcntl.flock(theirs, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            raise AssertionError("flock was granted twice")

        join(in_child(other))
        fcntl.flock(fd, fcntl.LOCK_UN)
        theirs = self.open("f")
        fcntl.flock(theirs, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def test_record_locks_exclude_overlap_only(self):
        fd = self.open("f")
        fcntl.lockf(fd, fcntl.LOCK_EX, 100, 0)

        def other():
            theirs = os.open(self.path("f"), os.O_RDWR)
            fcntl.lockf(theirs, fcntl.LOCK_EX | fcntl.LOCK_NB, 100, 100)
            try:
                fcntl.lockf(theirs, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 50)
            except BlockingIOError:
                return
            raise AssertionError("an overlapping record lock was granted")

        join(in_child(other))

    def test_a_waiting_lock_is_granted(self):
        fd = self.open("f")
        fcntl.lockf(fd, fcntl.LOCK_EX)

        def other():
            theirs = os.open(self.path("f"), os.O_RDWR)
            fcntl.lockf(theirs, fcntl.LOCK_EX)
            os.write(theirs, b"granted")

        child = in_child(other)
        fcntl.lockf(fd, fcntl.LOCK_UN)
        join(child)
        self.assertEqual(self.read("f"), b"granted")
