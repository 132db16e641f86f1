"""Names and commands of the scripts that run in User-Mode Linux."""

import os
import subprocess
from pathlib import Path

PERDURE = os.environ["PERDURE"]
VOLUME, POOL, FILES = "/mnt/volume", "/mnt/volume/pool", "/mnt/files"


def run(*words, timeout=120):
    """The output of a command that has to succeed."""
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(words)}: status {done.returncode}\n{done.stdout}")
    return done.stdout


def memory_of(pool):
    """The directory of a pool's memory."""
    with open(Path(pool, "super"), "rb") as file:
        return f"/dev/shm/perdure-{file.read(32)[16:].hex()}"
