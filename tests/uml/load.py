"""load.py MOUNT SEED COUNT POLICY DEVICE: operations on a mount above dm-log-writes; each acknowledgement is a mark in DEVICE's log.

With POLICY `call` an operation is acknowledged when it returns, with `fsync` when a later fsync returns.
"""

import random
import subprocess
import sys

from history import History, fsync, perform, prepare


def main(root, seed, count, policy, device):
    history, choice = History(seed), random.Random(seed)

    def acknowledge():
        subprocess.run(["dmsetup", "message", device, "0", "mark", f"acknowledged-{history.count}"], check=True)
    prepare(root)
    acknowledge()
    for _ in range(int(count)):
        operation = history.next()
        perform(root, operation)
        history.done(operation)
        if choice.random() < 0.3:
            if policy != "call":
                fsync(root)
            acknowledge()
    print(f"{history.count} operations")


if __name__ == "__main__":
    main(*sys.argv[1:])
