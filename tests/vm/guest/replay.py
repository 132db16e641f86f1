"""The load of tests/load on a machine that loses its power, so that only what it printed is known afterwards. The
operations follow from the seed alone: the check repeats them in a model, from the last number seen onwards.

  replay.py load MOUNT WORKER SEED            prints "WORKER NUMBER" after each acknowledged operation
  replay.py check MOUNT WORKER SEED NUMBER    the mount shows the state after NUMBER or a few more operations
"""

import os
import random
import sys

import files
import operations
from model import Model

# So many more operations may be acknowledged than the other end of the serial line saw.
UNSEEN = 100
# After so many operations the power may go.
WARM = 20


def load(root, worker, seed):
    os.umask(0)
    generator, model = random.Random(seed), Model(worker)
    number = 0
    while True:
        operation = operations.choose(generator, model)
        operations.perform(root, worker, *operation)
        model.apply(*operation)
        number += 1
        os.write(1, f"{worker} {number}\n".encode())
        if number == WARM:
            open(f"/run/ready.{worker}", "w").close()


def check(root, worker, seed, seen):
    generator, model = random.Random(seed), Model(worker)
    found, records = files.look(root, worker)
    for number in range(seen + UNSEEN):
        operation = operations.choose(generator, model)
        if number >= seen:
            _, wrong = files.match(model, operation, 0, found, records)
            first = wrong if number == seen else first
            if not wrong:
                print(f"worker {worker}: {seen} operations seen, {number} or {number + 1} found, {len(found)} names")
                return
        model.apply(*operation)
    sys.exit(f"worker {worker}: not the state after {seen} operations or later: " + "\n".join(first[:20]))


if len(sys.argv) == 5 and sys.argv[1] == "load":
    load(sys.argv[2], int(sys.argv[3]), sys.argv[4])
elif len(sys.argv) == 6 and sys.argv[1] == "check":
    check(sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5]))
else:
    sys.exit(__doc__)
