#!/bin/bash
# Guest: errors.sh SEED. A pool with a log on a disk that fails. Disk: ubda.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
uml-modules dm-mod dm-flakey fuse
mkdir /mnt/volume /mnt/files
for case in memory disk silent; do
    python3 "$here/errors.py" $case "$1"
    dmsetup remove failing
done
