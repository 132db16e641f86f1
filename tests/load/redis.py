"""Sets keys in redis and checks that none is lost.

  redis.py load SOCKET FILE     SET until the connection breaks; acknowledged numbers go to FILE
  redis.py check SOCKET FILE    every number of FILE is there with its value
"""

import hashlib
import socket
import sys


def value(number):
    return hashlib.sha256(str(number).encode()).hexdigest() * (number % 20 + 1)


class Connection:
    """As much of the protocol as SET and GET need."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.answers = self.socket.makefile("rb")

    def call(self, *words):
        encoded = b"".join(b"$%d\r\n%s\r\n" % (len(word), word.encode()) for word in words)
        self.socket.sendall(b"*%d\r\n" % len(words) + encoded)
        line = self.answers.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server went away")
        if line.startswith(b"$"):
            length = int(line[1:])
            return None if length < 0 else self.answers.read(length + 2)[:-2].decode()
        return line.strip().decode()


def load(path, file):
    with open(file) as log:
        number = sum(1 for _ in log)
    connection = Connection(path)
    with open(file, "a", buffering=1) as log:
        while True:
            number += 1
            try:
                answer = connection.call("SET", f"key{number}", value(number))
            except OSError:
                return  # redis was killed, as planned
            if answer != "+OK":
                # redis itself says that its log could not be written: not acknowledged
                return
            log.write(f"{number}\n")


def check(path, file):
    connection = Connection(path)
    with open(file) as log:
        for line in log:
            number = int(line)
            if connection.call("GET", f"key{number}") != value(number):
                sys.exit(f"key{number} was acknowledged and is lost or damaged")


if len(sys.argv) == 4 and sys.argv[1] in ("load", "check"):
    {"load": load, "check": check}[sys.argv[1]](*sys.argv[2:])
else:
    sys.exit(__doc__)
