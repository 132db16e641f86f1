#!/usr/bin/env bash
# boot.sh SCRIPT [ARGUMENT...] - boots the guest with two NVDIMMs (files target/vm/nvdimm0 and nvdimm1, which keep their
# content), runs the guest script, prints what it prints and exits with its status.
#
#   PROGRAMS   programs of this machine to add as /usr/bin/NAME, with their libraries
#   KILL_AFTER SIGKILLs the machine this many seconds after it printed the line "load running": a power cut
#   LIMIT      seconds until giving up (300)
#
# Exit status: the script's; 137 killed by KILL_AFTER; 124 over the limit; 125 the guest did not come up.
set -uo pipefail
source "$(dirname "$0")/common.sh"
[ -e "$lab/base.cpio" ] || die "run build-image.sh first"
script=$1
shift
run=$(mktemp -d "$lab/run.XXXXXX")
# shellcheck disable=SC2317
finish() {
    [ -e "$run/ended" ] || kill -9 "$(cat "$run/pid")" 2>/dev/null
    rm -rf "$run"
}
trap finish EXIT
trap 'exit 125' INT TERM HUP

# The script and the programs come as a second archive behind the first; the kernel unpacks both.
image=$run/job
mkdir -p "$image/job" "$image/usr/bin"
install "$here/guest/$script" "$image/job/script"
printf 'sh /job/script' >"$image/job/command"
[ $# = 0 ] || printf ' %q' "$@" >>"$image/job/command"
for program in ${PROGRAMS:-}; do put_program "$program" "/usr/bin/$(basename "$program")"; done
{ cat "$lab/base.cpio"; pack "$image"; } >"$run/initrd"

size=320
arguments=()
for number in 0 1; do
    file=$lab/nvdimm$number
    [ -e "$file" ] || truncate -s ${size}M "$file"
    arguments+=(-object "memory-backend-file,id=memory$number,mem-path=$file,size=${size}M,share=on"
        -device "nvdimm,id=nvdimm$number,memdev=memory$number")
done
mkfifo "$run/out"
{ timeout -k 5 "${LIMIT:-300}" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -machine pc,nvdimm=on \
    -m 1024,slots=2,maxmem=3G -smp 1 -nodefaults -display none -monitor none -no-reboot -pidfile "$run/pid" \
    -kernel "$lab/vmlinux" -initrd "$run/initrd" -append "console=ttyS0 panic=-1 quiet mitigations=off no_timer_check tsc=reliable" \
    -serial "file:$run/console" -serial stdio -serial "file:$run/status" \
    "${arguments[@]}" </dev/null >"$run/out"; echo $? >"$run/ended"; } 2>"$run/errors" &
job=$!
while IFS= read -r line; do
    printf '%s\n' "$line"
    if [ "$line" = "load running" ] && [ -n "${KILL_AFTER:-}" ]; then
        (sleep "$KILL_AFTER" && touch "$run/killed" && kill -9 "$(cat "$run/pid")") &
    fi
done <"$run/out"
wait "$job"
ended=$(cat "$run/ended")
status=$(cat "$run/status" 2>/dev/null)
[ -z "$status" ] || exit "$status"
[ ! -e "$run/killed" ] || exit 137
echo "vm: the guest ended without a status (qemu: $ended); its console:" >&2
tail -n 5 "$run/errors" >&2
tail -n 20 "$run/console" >&2
[ "$ended" = 124 ] && exit 124
exit 125
