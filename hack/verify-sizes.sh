#!/usr/bin/env bash
# Fails when a Go file that is not generated has 500 lines or more. The length
# of functions is the linter's to judge (funlen in .golangci.yml).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

limit=500
bad=0
while read -r file; do
  [[ -f $file ]] || continue
  lines=$(wc -l <"$file")
  if ((lines >= limit)); then
    echo "$file has $lines lines, the limit is $((limit - 1))" >&2
    bad=1
  fi
done < <(git ls-files --cached --others --exclude-standard -- '*.go' ':!:*zz_generated*')
exit "$bad"
