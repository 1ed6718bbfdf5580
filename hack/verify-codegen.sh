#!/usr/bin/env bash
# Generates into a copy and compares it with the tree.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
mkdir -p "$copy/hack" "$copy/pkg/federation"
cp go.mod go.sum "$copy/"
cp hack/update-codegen.sh "$copy/hack/"
cp -r pkg/federation/apis "$copy/pkg/federation/"
# Every generated file of the copy is spoilt first: one that the generator does
# not write, because it failed or because its kind is gone, is a difference.
find "$copy/pkg/federation/apis" -name 'zz_generated*.go' -exec sh -c 'echo "// stale" >>"$1"' sh {} \;
find "$copy/pkg/federation/apis/crds" -name '*.yaml' -exec sh -c 'echo "# stale" >>"$1"' sh {} \;
"$copy/hack/update-codegen.sh"
if ! diff -ru pkg/federation/apis "$copy/pkg/federation/apis"; then
  echo "generated files are out of date; 'make update-codegen' repairs" >&2
  exit 1
fi
