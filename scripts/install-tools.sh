#!/usr/bin/env bash
# Installs what is missing for the given groups: build run test vm.
# Debian packages need root (or sudo); cargo tools go to a cache of the user and survive `make clean`.
set -euo pipefail

rust_version=1.95
tools=${PERDURE_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/perdure/tools}
declare -A packages=(
    [build]="gcc libc6-dev git make"
    [run]="fuse3 python3-minimal"
    [test]="python3 sqlite3 fio redis-tools rocksdb-tools attr acl shellcheck g++ util-linux rsync procps"
    [vm]="qemu-system-x86 busybox-static cpio xz-utils ndctl daxctl e2fsprogs"
)

die() { echo "install-tools: $*" >&2; exit 1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then sudo "$@"
    else die "run this as root: $*"
    fi
}

# Debian's packages. Redis comes as redis-tools, which holds the server's program without starting a service.
install_packages() {
    local missing=() name
    for name in "$@"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || missing+=("$name")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    echo "installing ${missing[*]}"
    as_root apt-get -qq update
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq -y --no-install-recommends install "${missing[@]}" >/dev/null
}

rust_is_new_enough() {
    local version
    version=$(rustc --version 2>/dev/null | cut -d' ' -f2) || return 1
    [ "$(printf '%s\n' "$rust_version" "$version" | sort -V | head -n 1)" = "$rust_version" ]
}

# rustup's own installer is one static program; it needs no package.
install_rust() {
    rust_is_new_enough && return
    if command -v rustup >/dev/null; then
        rustup toolchain install "$rust_version" --profile minimal -c rustfmt -c clippy
        rustup default "$rust_version"
        return
    fi
    local installer
    installer=$(mktemp)
    command -v curl >/dev/null || install_packages curl ca-certificates
    curl -fsS -o "$installer" "https://static.rust-lang.org/rustup/dist/$(uname -m)-unknown-linux-gnu/rustup-init" ||
        die "no Rust $rust_version here and static.rust-lang.org cannot be reached: install it (https://rustup.rs) and retry"
    chmod +x "$installer"
    "$installer" -y -q --profile minimal --default-toolchain "$rust_version" -c rustfmt -c clippy
    rm -f "$installer"
}

# cargo_tool NAME VERSION [OPTION...] - build it once into the cache.
cargo_tool() {
    [ ! -x "$tools/bin/$1-$2" ] || return 0
    echo "building $1 $2"
    cargo install --quiet --locked --root "$tools" --version "$2" "$1" "${@:3}"
    mv "$tools/bin/$1" "$tools/bin/$1-$2"
    rm -f "$tools"/.crates*
}

[ $# -gt 0 ] || die "usage: install-tools.sh GROUP...   groups: ${!packages[*]}"
wanted=()
for group in "$@"; do
    [ -n "${packages[$group]:-}" ] || die "no group $group; groups: ${!packages[*]}"
    read -ra names <<<"${packages[$group]}"
    wanted+=("${names[@]}")
done
if command -v dpkg-query >/dev/null; then
    install_packages "${wanted[@]}"
else
    echo "install-tools: not Debian or Ubuntu; these packages (or what they are called here) are needed: ${wanted[*]}" >&2
fi
[ -x "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" ] && PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
install_rust
PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
if [[ " $* " == *" test "* ]]; then
    # Optimised little: it only starts the tests, and is built in half the time.
    CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_LTO=off cargo_tool cargo-nextest 0.9.151 --no-default-features --features default-no-update
    cargo_tool pjdfstest 0.2.2
    cargo_tool fsx 0.3.2
    cargo_tool cargo-deny 0.20.2
    cargo_tool cbindgen 0.29.4
fi
