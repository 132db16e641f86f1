#!/usr/bin/env python3
"""Compares two directories by what programs wait for on a disk. `make run` calls it.

  compare.py SECONDS OURS NAME THEIRS NAME [TREE]

Rounds alternate between the directories: each row takes SECONDS. TREE is an archive to unpack. Prints one line a row: how
many a second in OURS and in THEIRS, and the factor between them.
"""

import os
import statistics
import subprocess
import sys
import time

try:
    import sqlite3
except ImportError:  # Debian's python3-minimal has none
    sqlite3 = None

ROUNDS = 9
TREES = 3
BLOCK = os.urandom(4096)


def rate(seconds, operation):
    """Calls of `operation` a second, over `seconds`."""
    begin, count = time.perf_counter(), 0
    while count < 3 or time.perf_counter() - begin < seconds:
        operation(count)
        count += 1
    return count / (time.perf_counter() - begin)


def appends(directory, seconds):
    """4 KiB at the end of a file, each waited for."""
    file = os.open(f"{directory}/append", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)

    def append(_):
        assert os.write(file, BLOCK) == len(BLOCK)
        os.fdatasync(file)
    try:
        return rate(seconds, append)
    finally:
        os.close(file)


def files(directory, seconds):
    """New files of 4 KiB: file and name are waited for."""
    place = f"{directory}/files-{time.monotonic_ns()}"
    os.mkdir(place)
    parent = os.open(place, os.O_RDONLY | os.O_DIRECTORY)

    def create(number):
        file = os.open(f"{place}/{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        assert os.write(file, BLOCK) == len(BLOCK)
        os.fsync(file)
        os.close(file)
        os.fsync(parent)
    try:
        return rate(seconds, create)
    finally:
        os.close(parent)


def transactions(directory, seconds):
    """Inserts into a SQLite database with its defaults, a rollback journal."""
    database = sqlite3.connect(f"{directory}/database", isolation_level=None)
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE IF NOT EXISTS t (number INTEGER, text TEXT)")
    insert = "INSERT INTO t VALUES (?, 'some text of a row')"
    try:
        return rate(seconds, lambda number: database.execute(insert, (number,)))
    finally:
        database.close()


def unpacked(tree, directory):
    """Trees a second; nothing is waited for, so the disk's file system needs no disk."""
    place = f"{directory}/tree-{time.monotonic_ns()}"
    os.mkdir(place)
    begin = time.perf_counter()
    subprocess.run(["tar", "-xf", tree, "-C", place], check=True)
    return 1 / (time.perf_counter() - begin)


def number(value):
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def main(words):
    seconds, directories, names = float(words[0]), (words[1], words[3]), (words[2], words[4])
    part = seconds / ROUNDS / 2
    rows = [("4 KiB append + fdatasync", ROUNDS, lambda directory: appends(directory, part)),
            ("create, write, fsync of file and directory", ROUNDS, lambda directory: files(directory, part))]
    if sqlite3:
        rows.append(("SQLite insert, rollback journal", ROUNDS, lambda directory: transactions(directory, part)))
    if len(words) > 5:
        rows.append(("tar -x of this repository, no sync", TREES, lambda directory: unpacked(words[5], directory)))
    print(f"  {'a second':44}{names[0]:>10}{names[1]:>10}   factor")
    for name, rounds, measure in rows:
        found = [[], []]
        for turn in range(rounds):
            for side in (0, 1) if turn % 2 == 0 else (1, 0):
                found[side].append(measure(directories[side]))
        factor = statistics.median(ours / theirs for ours, theirs in zip(*found))
        ours, theirs = map(statistics.median, found)
        print(f"  {name:44}{number(ours):>10}{number(theirs):>10}   {factor:.2g} x", flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 6:
        sys.exit(__doc__)
    main(sys.argv[1:])
