#!/usr/bin/env bash
# Licences, sources and bans of every dependency; known vulnerabilities when their database can be reached.
set -euo pipefail
cd "$(dirname "$0")/.."
deny=${PERDURE_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/perdure/tools}/bin/cargo-deny-0.20.2
"$deny" check --hide-inclusion-graph licenses bans sources
if git ls-remote -q https://github.com/rustsec/advisory-db HEAD >/dev/null 2>&1; then
    "$deny" check advisories
    echo "licences, bans, sources and advisories ok"
else
    echo "licences, bans and sources ok; advisories not checked: github.com cannot be reached"
fi
