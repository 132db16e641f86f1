"""Reads the log of dm-log-writes (the kernel's Documentation/admin-guide/device-mapper/log-writes.rst)."""

import os
import struct
from dataclasses import dataclass

MAGIC, VERSION = 0x6A736677736872, 1
FLUSH, FUA, DISCARD, MARK = 1, 2, 4, 8
SUPER, ENTRY = struct.Struct("<QQQI"), struct.Struct("<QQQQ")


@dataclass
class Entry:
    """One write, discard, flush or mark. Places are bytes."""
    number: int
    flags: int
    at: int
    length: int
    # Where the data lies in the log.
    data_at: int
    mark: str = ""

    @property
    def is_write(self):
        return self.length > 0 and not self.flags & (DISCARD | MARK)


class WriteLog:
    """All entries of a log, in its order: writes that completed before a flush come before it."""

    def __init__(self, path):
        self.file = os.open(path, os.O_RDONLY)
        magic, version, self.count, self.sector = SUPER.unpack(os.pread(self.file, SUPER.size, 0))
        if (magic, version) != (MAGIC, VERSION):
            raise ValueError(f"{path}: not a log of dm-log-writes, version {VERSION}")
        self.entries = list(self.read())

    def read(self):
        place = self.sector
        for number in range(self.count):
            head = os.pread(self.file, self.sector, place)
            at, length, flags, data_bytes = ENTRY.unpack(head[:ENTRY.size])
            mark = head[ENTRY.size:ENTRY.size + data_bytes].decode() if flags & MARK else ""
            entry = Entry(number, flags, at * self.sector, length * self.sector, place + self.sector, mark)
            yield entry
            place += self.sector + (entry.length if entry.is_write else 0)

    def data(self, entry):
        data = os.pread(self.file, entry.length, entry.data_at)
        if len(data) != entry.length:
            raise ValueError(f"the log ends in entry {entry.number}")
        return data

    def apply(self, entry, disk):
        """Does to `disk` what the entry did."""
        if entry.is_write:
            os.pwrite(disk, self.data(entry), entry.at)
        elif entry.flags & DISCARD:
            os.pwrite(disk, bytes(entry.length), entry.at)

    def apply_part(self, entry, disk, random):
        """A write that was under way at a power failure: some of its sectors, or none, or all."""
        if not entry.is_write:
            return
        data, sectors = self.data(entry), range(0, entry.length, self.sector)
        wanted = random.choice([0, 0, len(sectors), len(sectors), random.randrange(len(sectors) + 1)])
        for start in random.sample(sectors, wanted):
            os.pwrite(disk, data[start:start + self.sector], entry.at + start)
