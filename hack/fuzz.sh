#!/usr/bin/env bash
# Runs each fuzz target of the product for the given time: hack/fuzz.sh 10s
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

time=${1:-10s}
found=0
while IFS=: read -r file name; do
  found=1
  echo "fuzzing $name of $(dirname "$file") for $time"
  go test "./$(dirname "$file")" -run '^$' -fuzz "^$name\$" -fuzztime "$time"
done < <(git grep --untracked -oE '^func Fuzz[A-Za-z0-9_]+' -- 'pkg/**/*_test.go' 'hack/**/*_test.go' | sed 's/:func /:/')
if [[ $found == 0 ]]; then
  echo "no fuzz target was found" >&2
  exit 1
fi
