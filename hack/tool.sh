#!/usr/bin/env bash
# Prints the path of a development tool, building it first where it is missing:
#
#   hack/tool.sh golangci-lint | gofumpt | gci | controller-gen | benchstat | kustomize
#
# Tools come from the module hack/tools, so that they never move the versions of
# the product's dependencies. A build is kept in .cache/tools under the versions of
# tool and compiler; a second call is instant.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
name=${1:?usage: hack/tool.sh NAME}

case $name in
  golangci-lint) module=github.com/golangci/golangci-lint/v2 package=$module/cmd/golangci-lint ;;
  gofumpt) module=mvdan.cc/gofumpt package=$module ;;
  gci) module=github.com/daixiang0/gci package=$module ;;
  controller-gen) module=sigs.k8s.io/controller-tools package=$module/cmd/controller-gen ;;
  benchstat) module=golang.org/x/perf package=$module/cmd/benchstat ;;
  kustomize) module=sigs.k8s.io/kustomize/kustomize/v5 package=$module ;;
  *)
    echo "hack/tool.sh: $name is no tool of ours; see the head of this file" >&2
    exit 2
    ;;
esac

version=$(awk -v module="$module" '$1 == module && $2 ~ /^v/ {print $2}' "$root/hack/tools/go.mod")
dir=$root/.cache/tools/$name-${version:?$module is not in hack/tools/go.mod}-$(cd "$root/hack/tools" && GOWORK=off go env GOVERSION)
binary=$dir/$name
if [[ ! -x $binary ]]; then
  mkdir -p "$dir"
  hint=""
  [[ $name != golangci-lint ]] || hint=" (about 3 minutes on 2 cores)"
  echo "building $name $version once into ${dir#"$root"/}$hint" >&2
  # Renamed when whole, so that an interrupted build leaves no torn binary.
  (cd "$root/hack/tools" && GOWORK=off GOFLAGS=-buildvcs=false CGO_ENABLED=0 go build -trimpath -o "$binary.$$" "$package") >&2
  mv "$binary.$$" "$binary"
fi
echo "$binary"
