#!/bin/sh
# load.sh SEED: fresh pools on fsdax and device-DAX, mounted, under load until the power goes.
set -e
sh /load/nvdimm.sh
mkdir -p /mnt/fsdax /mnt/devdax
perdure mkfs /pmem/pool --size 192M
perdure mkfs /dev/dax1.0 --size 256M --force
perdure mount /pmem/pool /mnt/fsdax
perdure mount /dev/dax1.0 /mnt/devdax
# Nobody said --volatile: only real persistent memory gets here.
for mount in fsdax devdax; do perdure stat /mnt/$mount | grep -i "class.*dax" || { echo "no class dax on $mount"; exit 1; }; done
worker=0
for mount in fsdax devdax; do
    python3 /load/files.py prepare /mnt/$mount 2
    python3 /load/replay.py load /mnt/$mount $worker "$1.$worker" &
    worker=$((worker + 1))
done
until [ -e /run/ready.0 ] && [ -e /run/ready.1 ]; do sleep 0.1; done
echo "load running"
wait
echo "the load ended by itself"
exit 1
