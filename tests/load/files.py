"""Random file operations against a model, for tests that kill the file system below.

  files.py prepare MOUNT WORKERS                  once on a fresh mount
  files.py load MOUNT WORKER STATE SEED [COUNT]   operations until the mount dies (or COUNT); the model goes to STATE
  files.py check MOUNT WORKER STATE               every acknowledged operation is there; the one that was not
                                                  acknowledged is there as a whole or not at all

SKIP in the environment: operations not to use, separated by commas (for file systems that lack them).
"""

import copy
import os
import pickle
import random
import sys
import time

import operations
from model import PAGE, Model, describe, differences, observe, records_of


def save(state, model, pending=None, least=0, count=0):
    """`least` bytes of the pending operation are acknowledged, `count` operations before it."""
    with open(state, "wb") as file:
        pickle.dump((model, pending, least, count), file)


def restore(state, worker):
    try:
        with open(state, "rb") as file:
            return pickle.load(file)
    except FileNotFoundError:
        return Model(worker), None, 0, 0


def is_dead(root):
    """Has the mount lost its server? An error can be seen a moment before the kernel says so."""
    for _ in range(100):
        try:
            os.statvfs(root)  # never from a cache
        except OSError:
            return True
        time.sleep(0.05)
    return False


def prepare(root, workers):
    """What the load expects on a fresh mount."""
    for directory in ["common"] + [f"w{worker}" for worker in range(workers)]:
        os.mkdir(f"{root}/{directory}")
        os.chmod(f"{root}/{directory}", 0o755)
    os.close(os.open(f"{root}/common/shared.log", os.O_CREAT | os.O_WRONLY, 0o644))


def load(root, worker, state, seed, count=None):
    model, pending, _, _ = restore(state, worker)
    if pending:
        sys.exit(f"worker {worker}: check comes before the next load")
    os.umask(0)  # modes are as asked
    generator = random.Random(f"{worker} {seed}")
    open(f"{state}.ready", "w").close()  # the killer's time runs from here
    acknowledged = 0
    while count is None or acknowledged < int(count):
        operation = operations.choose(generator, model)
        try:
            operations.perform(root, worker, *operation)
        except OSError as error:
            if not is_dead(root):
                sys.exit(f"worker {worker}: {describe(operation)}: {error} on a living mount")
            save(state, model, operation, getattr(error, "count", 0), acknowledged)
            return
        model.apply(*operation)
        acknowledged += 1
    save(state, model, count=acknowledged)


def outcomes(before, pending, least, found):
    """The models that the mount may show, and where pages may be mixed: all of the pending operation, none of it, or
    what the kernel makes of it. It splits a buffered write at the edges of pages it has not cached, and it writes a
    mapping back page by page; what it sends at once is all or nothing."""
    if not pending:
        return [(before, None)]
    after = copy.deepcopy(before)
    after.apply(*pending)
    path = pending[1]
    if pending[0] == "mapped":
        node = before.paths[path]
        names = [name for name, other in before.paths.items() if other is node]
        mixed = names, bytes(node.data), bytes(after.paths[path].data)
        return [(after, mixed)]
    models = [(after, None)] if least else [(after, None), (before, None)]
    if pending[0] in ("write", "append") and path in found:
        data, offset = pending[-1], pending[2] if pending[0] == "write" else len(before.paths[path].data)
        there = found[path][3][offset:offset + len(data)]
        arrived = next((number for number, (a, b) in enumerate(zip(there, data)) if a != b), len(there))
        arrived -= (offset + arrived) % PAGE  # the bytes after the cut can be the same by chance
        if least <= arrived < len(data) and arrived > 0:
            part = copy.deepcopy(before)
            part.apply_write(path, offset, data[:arrived])
            models.append((part, None))
    return models


def look(root, worker):
    """What the mount shows of a worker: its files, and how many of its records the shared log has."""
    with open(f"{root}/common/shared.log", "rb") as file:
        records = records_of(file.read(), worker)
    return observe(root, worker), records


def match(before, pending, least, found, records):
    """The outcome that the mount shows and no complaints, or the last one tried with what is wrong."""
    for model, mixed in outcomes(before, pending, least, found):
        wrong = differences(model.describe(), found, mixed)
        if records != model.records:
            wrong.append(f"common/shared.log: {records} records, {model.records} were acknowledged")
        if not wrong:
            if mixed:  # take over which pages arrived
                model.paths[pending[1]].data[:] = found[pending[1]][3]
            break
    return model, wrong


def check(root, worker, state):
    before, pending, least, acknowledged = restore(state, worker)
    found, records = look(root, worker)
    model, wrong = match(before, pending, least, found, records)
    if not wrong:
        save(state, model)
        print(acknowledged)
        return
    print(f"worker {worker}: {acknowledged} operations were acknowledged in this round", file=sys.stderr)
    print(f"under way: {describe(pending) if pending else 'nothing'}, {least} bytes acknowledged", file=sys.stderr)
    print("\n".join(wrong[:20]), file=sys.stderr)
    print("the operations before, newest first:", file=sys.stderr)
    print("\n".join(reversed(before.history)), file=sys.stderr)
    sys.exit(1)


def main(words):
    for name in filter(None, os.environ.get("SKIP", "").split(",")):
        del operations.CHOICES[name]
    if len(words) >= 6 and words[1] == "load":
        load(words[2], int(words[3]), *words[4:])
    elif len(words) == 4 and words[1] == "prepare":
        prepare(words[2], int(words[3]))
    elif len(words) == 5 and words[1] == "check":
        check(words[2], int(words[3]), words[4])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv)
