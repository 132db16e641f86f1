#!/bin/sh
# verify.sh SEED NUMBER NUMBER: after the power cut; NUMBER operations were acknowledged on fsdax and device-DAX.
set -e
sh /load/nvdimm.sh
mkdir -p /mnt/fsdax /mnt/devdax
perdure mount /pmem/pool /mnt/fsdax
perdure mount /dev/dax1.0 /mnt/devdax
python3 /load/replay.py check /mnt/fsdax 0 "$1.0" "$2"
python3 /load/replay.py check /mnt/devdax 1 "$1.1" "$3"
perdure umount /mnt/fsdax
perdure umount /mnt/devdax
perdure fsck /pmem/pool
perdure fsck /dev/dax1.0
umount /pmem
