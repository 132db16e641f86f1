"""Replays the log of dm-log-writes to each moment that a power failure can leave, recovers the pool, and checks it.

  replay.py LOG BASE SPARE SEED COUNT MOMENTS     runs in the guest; needs dmsetup, and PERDURE

BASE is the disk as it was before the log began; SPARE takes what a recovery changes. COUNT is the number of operations.
All moments behind a flush are recovered, and as many others as make MOMENTS. Each third one has torn writes, too.
"""

import os
import random
import subprocess
import sys
import time

from guest import FILES, PERDURE, POOL, VOLUME, run
from history import Checker
from write_log import FLUSH, FUA, MARK, WriteLog

POINT = "point"
PREFIX = "acknowledged-"


class Point:
    """The disk at a moment: BASE, and above it what happens from there on."""

    def __init__(self, base, spare):
        self.base, self.spare = base, spare

    def __enter__(self):
        sectors = run("blockdev", "--getsz", self.base).strip()
        run("dmsetup", "create", POINT, "--table", f"0 {sectors} snapshot {self.base} {self.spare} N 8")
        run("dmsetup", "mknodes", POINT)
        return f"/dev/mapper/{POINT}"

    def __exit__(self, *_):
        # After a failed check, too.
        for mount in (FILES, VOLUME):
            if os.path.ismount(mount):
                subprocess.run(["umount", "-l", mount], check=False)
        for _ in range(50):
            if subprocess.run(["dmsetup", "remove", POINT], stderr=subprocess.DEVNULL, check=False).returncode == 0:
                return
            time.sleep(0.1)
        raise AssertionError(f"{POINT} is still in use")


def recover_and_check(device, checker, acknowledged, is_checked):
    """Mounts the file system of the disk, then the pool on it; the number of the operation that it is after."""
    run("mount", "-t", "ext4", device, VOLUME)
    run(PERDURE, "mount", "--read-cache", "off", POOL, FILES)
    found = checker.check(FILES, acknowledged)
    run(PERDURE, "umount", FILES)
    if is_checked:
        run(PERDURE, "fsck", POOL)
    run("umount", VOLUME)
    return found


def moments(entries):
    """(index of the first entry after it, acknowledged operations, whether it is behind a flush): each moment behind a
    flush, a durable write or a mark."""
    acknowledged, news = None, 0
    for index, entry in enumerate(entries):
        if entry.is_write and news and acknowledged is not None:
            yield index, acknowledged, bool(news & FLUSH)
            news = 0
        if entry.flags & MARK and entry.mark.startswith(PREFIX):
            acknowledged = int(entry.mark.removeprefix(PREFIX))
        news |= entry.flags & (FLUSH | FUA | MARK)
    yield len(entries), acknowledged, True


def chosen(entries, most, chooser):
    """Of all moments those behind a flush, and so many others that it is `most`."""
    found = list(moments(entries))
    flushed = [moment for moment in found if moment[2]]
    others = [moment for moment in found if not moment[2]]
    return sorted(flushed + chooser.sample(others, min(len(others), max(0, most - len(flushed))))), len(found)


def under_way(entries, index):
    """Writes that may be on the disk at a moment, in any part: those that no flush has followed yet, to the first durable
    one. The ones after it may have waited for it."""
    for entry in entries[index:]:
        if entry.flags & (FLUSH | MARK):
            return
        yield entry
        if entry.flags & FUA:
            return


def main(path, base, spare, seed, count, most):
    log, chooser = WriteLog(path), random.Random(seed)
    checker, disk = Checker(seed, int(count)), os.open(base, os.O_RDWR)
    applied = checked = ahead = torn = 0
    wanted, possible = chosen(log.entries, int(most), chooser)
    for index, acknowledged, _ in wanted:
        for entry in log.entries[applied:index]:
            log.apply(entry, disk)
        applied = index
        os.fsync(disk)
        for is_torn in (False, True):
            rest = list(under_way(log.entries, index))
            if is_torn and (not rest or chooser.random() < 2 / 3):
                continue
            with Point(base, spare) as device:
                if is_torn:
                    above = os.open(device, os.O_RDWR)
                    for entry in rest:
                        log.apply_part(entry, above, chooser)
                    os.close(above)
                try:
                    found = recover_and_check(device, checker, acknowledged, is_torn)
                except (AssertionError, OSError) as error:
                    sys.exit(f"LOST after entry {index} of {len(log.entries)}{', with torn writes' if is_torn else ''}: {error}")
            checked, ahead, torn = checked + 1, ahead + (found > acknowledged), torn + is_torn
    print(f"{len(log.entries)} writes, flushes and marks; {len(wanted)} of {possible} moments, {checked} recoveries, {torn} with torn writes, {ahead} ahead of what was acknowledged")


if __name__ == "__main__":
    main(*sys.argv[1:])
