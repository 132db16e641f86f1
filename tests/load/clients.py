"""Watches which processes read and write files of a pool directly.

  clients.py watch SOCKET FILE        until it is killed: FILE has, for each process that was ever seen, its greatest counts
  clients.py count FILE [COMMAND]     direct reads and writes of all processes with this name, or of all: two numbers
  clients.py await FILE READS WRITES COMMAND  until so many are counted, 20 s at most: a process that runs this as its last act is seen before it ends
  clients.py table FILE               for people
"""

import contextlib
import json
import os
import socket
import sys
import time


def ask(path):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(2)
        connection.connect(path)
        connection.sendall(b"perdure 1 clients\n")
        answer = b""
        while piece := connection.recv(1 << 16):
            answer += piece
    head, body = answer.split(b"\n", 1)
    if not head.startswith(b"perdure 1 ok "):
        raise ValueError(answer)
    return json.loads(body)


def watch(path, file):
    """A process that lives shorter than a round may be missed. Names are the first and the last: a shell that becomes another program counts as both."""
    seen, is_first = {}, True
    while True:
        # Without a server, or with one that is just ending: the next may come.
        with contextlib.suppress(OSError, ValueError):
            changed, is_first = is_first, False
            for client in ask(path):
                known = seen.setdefault(str(client["process"]), {"commands": [], "user": client["user"]})
                if client["command"] and client["command"] not in known["commands"]:
                    known["commands"].append(client["command"])
                for name in ("reads", "writes", "read_bytes", "written_bytes"):
                    if client[name] > known.get(name, -1):
                        known[name] = client[name]
                        changed = True
                known["kernel_path"] = client["kernel_path"]
            if changed:
                with open(file + ".new", "w") as out:
                    json.dump(seen, out)
                os.rename(file + ".new", file)
        time.sleep(0.01)


def load(file):
    try:
        with open(file) as there:
            return json.load(there)
    except FileNotFoundError:
        return {}


def counts(file, command):
    those = [client for client in load(file).values() if command is None or command in client["commands"]]
    return [sum(client[name] for client in those) for name in ("reads", "writes")]


def count(file, command=None):
    print(*counts(file, command))


def wait(file, reads, writes, command):
    end = time.monotonic() + 20
    while time.monotonic() < end and any(found < int(least) for found, least in zip(counts(file, command), (reads, writes), strict=True)):
        time.sleep(0.01)


def table(file):
    for process, client in load(file).items():
        kernel = ", ".join(f"{name} {value}" for name, value in client["kernel_path"].items() if value)
        print(f"{process:>8} {client['user']:>6} {'/'.join(client['commands']):<24} {client['reads']:>8} reads {client['writes']:>8} writes; kernel: {kernel}")


COMMANDS = {"watch": (watch, (2,)), "count": (count, (1, 2)), "await": (wait, (4,)), "table": (table, (1,))}
if len(sys.argv) > 1 and sys.argv[1] in COMMANDS and len(sys.argv) - 2 in COMMANDS[sys.argv[1]][1]:
    COMMANDS[sys.argv[1]][0](*sys.argv[2:])
else:
    sys.exit(__doc__)
