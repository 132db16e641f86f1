#!/usr/bin/env bash
# Every shell script is clean for shellcheck, every Python file compiles.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t scripts < <(git ls-files | while read -r file; do
    case $file in *.sh | .ci/run | tests/vm/guest/init) echo "$file" ;; esac
done)
shellcheck -x "${scripts[@]}"
mapfile -t programs < <(git ls-files '*.py')
python3 - "${programs[@]}" <<'END'
import ast, sys
for path in sys.argv[1:]:
    ast.parse(open(path).read(), path)
END
echo "${#scripts[@]} scripts, ${#programs[@]} programs"
