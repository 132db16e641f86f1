#!/bin/sh
# Shows that the lab has what it is for: MAP_SYNC on a DAX file system and device-DAX, and clwb.
set -e
sh /load/nvdimm.sh
uname -r
grep -o -w -m1 clwb /proc/cpuinfo
stat -c '%n %F' /dev/dax1.0
df -m /pmem | tail -n 1
python3 /load/dax.py "$1" /pmem/probe /dev/dax1.0
umount /pmem
