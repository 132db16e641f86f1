#!/usr/bin/env bash
# The benches still run and still say what they say in the form that reports read. No bar is judged here: a busy CI
# machine would judge itself.
set -euo pipefail
cd "$(dirname "$0")/.."
perdure=${PERDURE:-${CARGO_TARGET_DIR:-target}/release/perdure}
report=$(mktemp)
trap 'rm -f "$report"' EXIT
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
