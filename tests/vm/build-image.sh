#!/usr/bin/env bash
# Makes the guest: Debian's stock kernel and an initramfs with busybox, Python, the NVDIMM tools and the load of
# tests/load. The kernel is downloaded once and kept under target/vm.
set -euo pipefail
source "$(dirname "$0")/common.sh"
for program in busybox cpio xz ndctl daxctl mkfs.ext4 qemu-system-x86_64; do
    PATH=$PATH:/usr/sbin command -v "$program" >/dev/null || die "needs $program: run scripts/install-tools.sh vm"
done
mkdir -p "$lab"

# The kernel package, unpacked but not installed.
if [ ! -e "$lab/kernel/done" ]; then
    package=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image-/{print $2; exit}')
    [ -n "$package" ] || die "apt knows no linux-image-amd64: run apt-get update"
    echo "downloading $package"
    mkdir -p "$lab/download"
    (cd "$lab/download" && rm -f ./*.deb && apt-get -qq download "$package" 2>/dev/null) || die "cannot download $package"
    dpkg-deb -x "$lab"/download/*.deb "$lab/kernel"
    rm -rf "$lab/download"
    touch "$lab/kernel/done"
fi
version=$(basename "$lab"/kernel/boot/vmlinuz-*)
version=${version#vmlinuz-}

# The plain ELF inside vmlinuz: QEMU enters it directly, which saves the emulated CPU the decompression.
if [ ! -e "$lab/vmlinux" ]; then
    offset=$(LC_ALL=C grep -aboP -m1 '\xfd7zXZ\x00' "$lab/kernel/boot/vmlinuz-$version" | head -n 1 | cut -d: -f1)
    # xz complains about what follows its stream; the ELF magic is the check.
    tail -c "+$((offset + 1))" "$lab/kernel/boot/vmlinuz-$version" | xz -dc --single-stream >"$lab/vmlinux.new" 2>/dev/null || true
    [ "$(head -c 4 "$lab/vmlinux.new" | tail -c 3)" = ELF ] || die "no kernel found inside vmlinuz-$version"
    mv "$lab/vmlinux.new" "$lab/vmlinux"
fi

rm -rf "$image"
mkdir -p "$image"/{proc,sys,dev,tmp,run,mnt,etc,usr/bin,usr/sbin,usr/lib,usr/lib64}
for folder in bin sbin lib lib64; do ln -s "usr/$folder" "$image/$folder"; done
put "$(command -v busybox)" /usr/bin/busybox
for applet in $(busybox --list); do [ -e "$image/usr/bin/$applet" ] || ln -s busybox "$image/usr/bin/$applet"; done
ln -sf ../bin/busybox "$image/usr/sbin/modprobe" # where the kernel looks for it
for program in ndctl daxctl mkfs.ext4; do
    rm -f "$image/usr/bin/$program"
    put_program "$(PATH=$PATH:/usr/sbin command -v $program)" "/usr/bin/$program"
done
install "$here/guest/init" "$image/init"
echo 'root:x:0:0:root:/:/bin/sh' >"$image/etc/passwd"

# Python with the modules that the load imports, found by importing them.
put_program /usr/bin/python3 /usr/bin/python3 # Debian's: its modules are found next to it
/usr/bin/python3 - >"$lab/modules" <<'END'
import contextlib, copy, ctypes, errno, itertools, mmap, os, pickle, random, stat, sys, time, zlib
import encodings.ascii, encodings.latin_1, encodings.utf_8, site
for module in list(sys.modules.values()):
    if os.path.isfile(getattr(module, "__file__", None) or ""):
        print(module.__file__)
END
while read -r module; do
    case $module in
        *.so) put_program "$module" "$module" ;;
        *) put "$module" "$module" ;;
    esac
done <"$lab/modules"
for program in "$repository"/tests/load/*.py "$here"/guest/*.py "$here/guest/nvdimm.sh"; do
    put "$program" "/load/$(basename "$program")"
done
# What is loaded by name, so ldd cannot see it.
for library in /lib/*/libgcc_s.so.1; do put "$library" "$library"; done

# Kernel modules with what they depend on.
declare -A seen=()
add_module() {
    local file dependency name=${1//-/_}
    [ -z "${seen[$name]:-}" ] || return 0
    seen[$name]=1
    file=$(cd "$lab/kernel" && find "lib/modules/$version" -name "${name//_/[-_]}.ko" | head -n 1)
    [ -n "$file" ] || return 0 # built in
    put "$lab/kernel/$file" "/$file"
    for dependency in $(tr '\0' '\n' <"$lab/kernel/$file" | sed -n 's/^depends=//p' | tr , ' '); do
        add_module "$dependency"
    done
}
for module in crc32c_generic crc32c-intel nfit nd_pmem nd_btt dax_pmem device_dax ext4 fuse; do add_module $module; done
cp "$lab/kernel/lib/modules/$version"/modules.{builtin,order} "$image/usr/lib/modules/$version/"
busybox depmod -b "$image" "$version"
pack "$image" >"$lab/base.cpio"
echo "kernel $version, image $(du -m "$lab/base.cpio" | cut -f1) MiB"
