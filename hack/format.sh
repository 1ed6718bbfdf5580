#!/usr/bin/env bash
# Formats the Go files with gofumpt and orders their imports with gci:
#
#   hack/format.sh verify   prints the files that differ, fails if there are any
#   hack/format.sh update   rewrites them
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

gofumpt=$(hack/tool.sh gofumpt)
gci=$(hack/tool.sh gci)
sections=(-s standard -s default -s "prefix(github.com/isthmus-dev/isthmus)")

mapfile -t files < <(git ls-files --cached --others --exclude-standard -- '*.go' ':!:*zz_generated*' | while read -r f; do [[ ! -f $f ]] || echo "$f"; done)

case ${1:?usage: hack/format.sh verify|update} in
  update)
    "$gofumpt" -w "${files[@]}"
    "$gci" write "${sections[@]}" "${files[@]}"
    ;;
  verify)
    bad=$({
      "$gofumpt" -l "${files[@]}"
      "$gci" list "${sections[@]}" "${files[@]}"
    } | sort -u)
    if [[ -n $bad ]]; then
      echo "not formatted; 'make update-format' repairs:" >&2
      echo "$bad" >&2
      exit 1
    fi
    ;;
  *)
    echo "usage: hack/format.sh verify|update" >&2
    exit 2
    ;;
esac
