"""A sequence of file operations that a seed makes, its model after each of them, and the check that a mount shows it."""

import copy
import os
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "load"))
import files
import operations
from model import Model

# Stores into mappings reach the server page by page. The log of all workers has one writer here.
for name in ("mapped", "record"):
    del operations.CHOICES[name]
WORKER = 0


class History:
    """Operations 1, 2, 3, … and the model before the next one."""

    def __init__(self, seed):
        self.random, self.model, self.count = random.Random(seed), Model(WORKER), 0

    def next(self):
        """The next operation; it is in the model after `done`."""
        return operations.choose(self.random, self.model)

    def done(self, operation):
        self.model.apply(*operation)
        self.count += 1


def perform(root, operation):
    operations.perform(root, WORKER, *operation)


def prepare(root):
    files.prepare(root, WORKER + 1)
    # Durable before the first operation.
    fsync(root)


def fsync(root):
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


class Checker:
    """Compares a mount with the history of a seed, for growing numbers of acknowledged operations."""

    def __init__(self, seed, last):
        self.before, self.last = History(seed), last

    def check(self, root, acknowledged):
        """The number of the operation after which the mount is. It has all that were acknowledged, and is no mixture."""
        while self.before.count < acknowledged:
            self.before.done(self.before.next())
        found, records = files.look(root, WORKER)
        history, first = copy.deepcopy(self.before), None
        while True:
            _, wrong = files.match(history.model, None, 0, found, records)
            if not wrong:
                return history.count
            first = first or wrong
            if history.count == self.last:
                break
            following = history.next()
            # The kernel may send a buffered write in two requests.
            if following[0] in ("write", "append") and not files.match(history.model, following, 1, found, records)[1]:
                return history.count
            history.done(following)
        raise AssertionError(f"{acknowledged} operations were acknowledged, and the mount is as after none of {acknowledged} to {self.last}. "
                             f"What differs from {acknowledged}:\n" + "\n".join(first[:10]))
