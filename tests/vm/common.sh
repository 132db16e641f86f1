# shellcheck shell=bash
# Sourced by the scripts of this folder. Everything they make lives under $lab.
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
repository=$(readlink -f "$here/../..")
target=${CARGO_TARGET_DIR:-$repository/target}
lab=$target/vm
image=$lab/image
export here repository target lab image

die() { echo "vm: $*" >&2; exit 125; }

# put FILE DEST - into the image. The guest has a merged /usr: /bin, /sbin, /lib and /lib64 are links.
put() {
    local dest=$2
    case $dest in /bin/* | /sbin/* | /lib/* | /lib64/*) dest=/usr$dest ;; esac
    [ -e "$image$dest" ] || install -D "$(readlink -f "$1")" "$image$dest"
}

# put_program FILE DEST - put, and the shared libraries it names.
put_program() {
    local library
    put "$1" "$2"
    for library in $(ldd "$1" 2>/dev/null | awk '/=> \//{print $3} $1 ~ "^/"{print $1}'); do put "$library" "$library"; done
}

# pack DIRECTORY - an initramfs archive on stdout. Not compressed: unpacking costs time in an emulated CPU.
pack() { (cd "$1" && find . -mindepth 1 | sort | cpio --quiet -o -H newc -R 0:0); }
