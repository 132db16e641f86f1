#!/bin/bash
# Guest: log_writes.sh POLICY SEED OPERATIONS MOMENTS [OPTION of the mount...]
# A pool with a log on ext4 above dm-log-writes; then the log of all writes is replayed.
# BUG names a deliberate bug of the server.
# Disks: ubda the file system, ubdb the log of its writes, ubdc a copy of it, ubdd room.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
policy=$1 seed=$2 count=$3 moments=$4
shift 4
uml-modules dm-mod dm-log-writes dm-snapshot fuse
mkdir /mnt/volume /mnt/files
volume=/mnt/volume pool=/mnt/volume/pool files=/mnt/files

mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 /dev/ubda
mount -t ext4 /dev/ubda $volume
# So small that the image has to catch up again and again.
"$PERDURE" mkfs $pool --size 32M --log-size 2M >/dev/null 2>&1
umount $volume
dd if=/dev/ubda of=/dev/ubdc bs=1M status=none

dmsetup create logged --table "0 $(blockdev --getsz /dev/ubda) log-writes /dev/ubda /dev/ubdb"
dmsetup mknodes logged
mount -t ext4 /dev/mapper/logged $volume
env ${BUG:+"PERDURE_DELIBERATE_BUG=$BUG"} "$PERDURE" mount --read-cache off "$@" $pool $files
python3 "$here/load.py" $files "$seed" "$count" "$policy" logged
"$PERDURE" stat $pool | grep 'checkpoints'
"$PERDURE" umount $files
dmsetup message logged 0 mark "acknowledged-$count"
umount $volume
dmsetup remove logged

python3 "$here/replay.py" /dev/ubdb /dev/ubdc /dev/ubdd "$seed" "$count" "$moments"
