#!/bin/sh
# nvdimm.sh: puts NVDIMM 0 into fsdax and NVDIMM 1 into devdax mode, unless they are already (then what they hold
# stays), and mounts the first with DAX at /pmem.
set -e
ndctl list -N -r region0 | grep -q '"mode":"fsdax"' || {
    ndctl create-namespace -f -e namespace0.0 -m fsdax >/dev/null 2>/tmp/errors || { cat /tmp/errors; exit 1; }
    mkfs.ext4 -q -b 4096 /dev/pmem0
}
ndctl list -N -r region1 | grep -q '"mode":"devdax"' || {
    ndctl create-namespace -f -e namespace1.0 -m devdax >/dev/null 2>/tmp/errors || { cat /tmp/errors; exit 1; }
}
mkdir -p /pmem
mount -o dax /dev/pmem0 /pmem
grep -q '/pmem .*dax' /proc/mounts
test -c /dev/dax1.0
