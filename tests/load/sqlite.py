"""Commits rows to a sqlite database and checks that none is lost.

  sqlite.py load DATABASE MODE COUNT          two writers, COUNT commits in all; then reads and checks them
  sqlite.py until-error DATABASE MODE FILE    commits until the file system goes away; acknowledged numbers go to FILE
  sqlite.py check DATABASE COUNT              integrity_check, and at least rows 1 to COUNT with their content
"""

import hashlib
import os
import sqlite3
import sys
import threading
import time


def content(number):
    return hashlib.sha256(str(number).encode()).hexdigest() * (number % 50)


def connect(path, mode):
    database = sqlite3.connect(path, timeout=30, isolation_level=None)
    database.execute(f"pragma journal_mode = {mode}")
    database.execute("pragma synchronous = full")
    database.execute("create table if not exists rows (number integer primary key, content text)")
    return database


def insert(database, number=None):
    """One transaction; returns its number."""
    database.execute("begin immediate")
    if number is None:
        number = (database.execute("select max(number) from rows").fetchone()[0] or 0) + 1
    database.execute("insert into rows values (?, ?)", (number, content(number)))
    database.execute("commit")
    return number


def load(path, mode, count):
    connect(path, mode).close()
    failures = []

    def write():
        database = connect(path, mode)
        try:
            for _ in range(count // 2):
                insert(database)
        except sqlite3.Error as error:
            failures.append(error)
        database.close()

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    if failures:
        sys.exit(f"load: {failures}")
    check(path, count // 2 * 2)
    # Who watches what is read directly looks every now and then.
    time.sleep(0.3)


def until_error(path, mode, acknowledged):
    with open(acknowledged, "a", buffering=1) as log:
        try:
            database = connect(path, mode)
            while True:
                log.write(f"{insert(database)}\n")
        except sqlite3.Error as error:
            try:
                os.statvfs(os.path.dirname(path))  # never from a cache
            except OSError:
                os._exit(0)  # the mount is dead, as it should be
            sys.exit(f"until-error: {error} on a living mount")


def check(path, count):
    database = sqlite3.connect(path)
    verdict = database.execute("pragma integrity_check").fetchone()[0]
    if verdict != "ok":
        sys.exit(f"integrity_check: {verdict}")
    rows = database.execute("select number, content from rows order by number").fetchall()
    if [number for number, _ in rows] != list(range(1, len(rows) + 1)):
        sys.exit("numbers are missing")
    if len(rows) < count:
        sys.exit(f"{len(rows)} rows, {count} were acknowledged")
    for number, found in rows:
        if found != content(number):
            sys.exit(f"row {number} is damaged")


if len(sys.argv) == 5 and sys.argv[1] == "load":
    load(sys.argv[2], sys.argv[3], int(sys.argv[4]))
elif len(sys.argv) == 5 and sys.argv[1] == "until-error":
    until_error(*sys.argv[2:])
elif len(sys.argv) == 4 and sys.argv[1] == "check":
    check(sys.argv[2], int(sys.argv[3]))
else:
    sys.exit(__doc__)
