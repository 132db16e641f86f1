#!/usr/bin/env bash
# The benches still run and still say what they say in the form that reports read. No bar is judged here: a busy CI
# machine would judge itself.
set -euo pipefail
cd "$(dirname "$0")/.."
perdure=${PERDURE:-${CARGO_TARGET_DIR:-target}/release/perdure}
report=$(mktemp)
out=$(mktemp -d)
trap 'rm -rf "$report" "$out"' EXIT
"$perdure" bench ops --json >"$report"
python3 - "$report" <<'END'
import json, sys
report = json.load(open(sys.argv[1]))
assert report["experiment"] == "ops" and report["media"] == "dram", report
names = [row["name"] for row in report["rows"]]
for row in report["rows"]:
    missing = {"name", "value", "unit", "against", "against_value", "ratio", "bar", "better", "flushes", "fences", "lines"} - row.keys()
    assert not missing, f"{row['name']}: without {missing}"
    assert row["better"] in ("lower", "higher") and row["value"] > 0, row
for name in ("overwrite_4k", "append_4k", "overwrite_64b", "read_4k", "create_unlink", "open_close"):
    assert name in names, f"no row {name}"
print(f"{len(names)} rows, well formed")
END
# The experiments, as small as they make sense, and their pages.
"$perdure" bench wear --size 256M --files 512 --passes 1 --personality varmail --out "$out" >/dev/null
"$perdure" bench aging --size 256M --files 256,512 --personality varmail --threads 1,2 --rounds 1 --seconds 0.1 \
    --row varmail_8k --row threads_varmail --out "$out" >/dev/null
"$perdure" bench direct --seconds 0.02 --out "$out" >/dev/null
"$perdure" bench log --seconds 0.02 --out "$out" >/dev/null
# The kernel must allow FUSE over io_uring. This test does not change the setting.
uring=/sys/module/fuse/parameters/enable_uring
if [ -w /dev/fuse ] && [ "$(cat "$uring" 2>/dev/null)" = Y ]; then
    "$perdure" bench mount --seconds 0.02 --out "$out" >/dev/null
else
    echo "bench mount: skipped, because $uring is not Y"
    if "$perdure" bench mount --seconds 0.02 2>"$report"; then
        echo "bench mount: it ran although $uring is not Y"
        exit 1
    fi
    grep -q 'over io_uring' "$report"
fi
"$perdure" bench readcache --size 64M --file-size 4M --cache-size 16M --rounds 1 --seconds 0.01 --out "$out" >/dev/null
python3 - "$out" <<'END'
import json, os, sys
readcache = ("hot_seq", "hot_skewed", "hit_vs_dram", "miss", "overwrite_cold", "overwrite_hot", "append", "append_hot", "mix_50", "drbm_2", "drbl_2",
    "auto_dram", "scan_hit_ratio")
for name, rows in (("wear", ("peak_varmail", "wear_data_varmail", "wear_all_varmail")), ("aging", ("varmail_8k", "threads_varmail")), ("readcache", readcache)):
    report = json.load(open(f"{sys.argv[1]}/{name}.json"))
    page = open(f"{sys.argv[1]}/{name}.html").read()
    found = {row["name"]: row for row in report["rows"]}
    for row in rows:
        assert found[row]["ratio"] > 0 and row in page, found.get(row)
    assert "<svg" in page and "http://" not in page.replace("http://www.w3.org/", ""), f"{name}.html needs the network"
report = json.load(open(f"{sys.argv[1]}/direct.json"))
for row in report["rows"]:
    # This one is the difference of two times, and noise can make it negative.
    is_difference = row["name"] == "permission_check"
    assert "not_measured" in row or row["ratio"] > 0 or is_difference and row["ratio"] is not None, row
for row in json.load(open(f"{sys.argv[1]}/log.json"))["rows"]:
    assert "not_measured" in row or row["ratio"] is not None, row
if os.path.exists(f"{sys.argv[1]}/mount.json"):
    for row in json.load(open(f"{sys.argv[1]}/mount.json"))["rows"]:
        assert "not_measured" in row or row["ratio"] is not None, row
for figure in ("cost_write", "cost_read", "software"):
    assert any(found["name"] == figure for found in report["figures"]), f"no {figure}"
print("aging, wear, readcache, log and direct: well formed, with their pages")
END
