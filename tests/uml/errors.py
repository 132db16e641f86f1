"""A disk that fails below a pool with a log. Runs in the guest; needs PERDURE, and a disk at /dev/ubda.

  errors.py CASE SEED
    memory   writes fail; the pool is mounted again when the disk works, and goes on with its memory
    disk     the same, but the pool's memory is gone, too
    silent   writes are dropped, and said to be done; then the power fails

Nothing that was acknowledged while the disk worked is missing. What a disk drops silently no program can notice.
"""

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

from guest import FILES, PERDURE, POOL, VOLUME, memory_of, run
from history import Checker, History, fsync, perform, prepare

DEVICE, LOG = "/dev/mapper/failing", "/tmp/server.log"
# Enough for several batches of the log.
BEFORE = 60
PATIENCE_S = 30


def set_disk(mode):
    run("uml-failing", "failing", "/dev/ubda", mode)


def make_pool():
    set_disk("ok")
    run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", DEVICE)
    run("mount", "-t", "ext4", DEVICE, VOLUME)
    run(PERDURE, "mkfs", POOL, "--size", "32M", "--log-size", "2M")
    Path(LOG).write_text("")
    run(PERDURE, "mount", "--read-cache", "off", "--log", LOG, POOL, FILES)
    prepare(FILES)


class Load:
    """Operations of a history, and how many of them an fsync has acknowledged."""

    def __init__(self, seed):
        self.history, self.acknowledged = History(seed), 0

    def step(self):
        operation = self.history.next()
        perform(FILES, operation)
        self.history.done(operation)

    def sync(self):
        fsync(FILES)
        self.acknowledged = self.history.count


def error_of(action):
    try:
        action()
    except OSError as error:
        # A write of two requests can be short, which has no number.
        return error.errno or errno.EROFS
    return None


def fail_and_see(load):
    """Writes of the disk fail: an fsync that waits says EIO, then the pool is read-only, and can be read."""
    load.step()
    set_disk("error-writes")
    found = error_of(lambda: (load.step(), load.sync()))
    assert found in (errno.EIO, errno.EROFS), f"the disk fails, and an operation with fsync: {found}"
    found = error_of(lambda: os.mkdir(f"{FILES}/another"))
    assert found == errno.EROFS, f"a change after the failure: {found}"
    found = error_of(load.sync)
    assert found == errno.EIO, f"an fsync after the failure: {found}"
    for directory, _, names in os.walk(FILES):
        for name in names:
            path = Path(directory, name)
            if not path.is_symlink():
                path.read_bytes()
    told = Path(LOG).read_text()
    assert "read-only" in told and f"{POOL}/log" in told, f"the server's log does not name the file:\n{told}"


def end(has_memory):
    """The server is killed; without its memory it is a power failure. Then the disk works again."""
    memory, server = memory_of(POOL), run(PERDURE, "stat", FILES, "--json")
    process = next(line for line in server.splitlines() if '"process"' in line).split(":")[1].strip(" ,")
    os.kill(int(process), 9)
    until(lambda: not os.path.exists(f"/proc/{process}"))
    assert os.path.isdir(memory), f"no memory in {memory}"
    if not has_memory:
        run("rm", "-rf", memory)
    subprocess.run(["umount", "-l", FILES], check=False)
    subprocess.run(["umount", VOLUME], check=False)
    until(lambda: not os.path.ismount(VOLUME))
    set_disk("ok")
    # The file system has its own troubles with a disk that failed.
    subprocess.run(["e2fsck", "-fy", DEVICE], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    run("mount", "-t", "ext4", DEVICE, VOLUME)


def until(condition):
    limit = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < limit, "it takes too long"
        time.sleep(0.05)


def main(case, seed):
    make_pool()
    load = Load(seed)
    for number in range(BEFORE):
        load.step()
        if number % 4 == 0:
            load.sync()
    load.sync()
    if case == "silent":
        set_disk("drop-writes")
        for _ in range(10):
            load.step()
        fsync(FILES)
    else:
        fail_and_see(load)
    end(has_memory=case == "memory")
    run(PERDURE, "mount", "--read-cache", "off", POOL, FILES)
    # A killed server loses nothing that returned. One more operation may have been under way.
    least = load.history.count if case == "memory" else load.acknowledged
    found = Checker(seed, load.history.count + 1).check(FILES, least)
    load = f"{load.acknowledged} operations acknowledged, {load.history.count} returned"
    run(PERDURE, "umount", FILES)
    run(PERDURE, "fsck", POOL)
    run("umount", VOLUME)
    print(f"{case}: {load}, the pool has {found}")


if __name__ == "__main__":
    main(*sys.argv[1:])
