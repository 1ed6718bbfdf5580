#!/usr/bin/env bash
# Prints the path of a development tool, building it first where it is missing:
#
#   hack/tool.sh golangci-lint | gofumpt | gci | controller-gen | benchstat
#
# Tools come from the module hack/tools, so that they never move the versions of
# the product's dependencies. A build is kept in .cache/tools under a key of the
# tools' versions and of the compiler; a second call is instant.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
name=${1:?usage: hack/tool.sh NAME}

case $name in
  golangci-lint) package=github.com/golangci/golangci-lint/v2/cmd/golangci-lint ;;
  gofumpt) package=mvdan.cc/gofumpt ;;
  gci) package=github.com/daixiang0/gci ;;
  controller-gen) package=sigs.k8s.io/controller-tools/cmd/controller-gen ;;
  benchstat) package=golang.org/x/perf/cmd/benchstat ;;
  *)
    echo "hack/tool.sh: $name is not one of golangci-lint gofumpt gci controller-gen benchstat" >&2
    exit 2
    ;;
esac

key=$(cd "$root/hack/tools" && { GOWORK=off go env GOVERSION GOOS GOARCH; cat go.mod go.sum; } | git hash-object --stdin | cut -c1-12)
dir=$root/.cache/tools/$key
binary=$dir/$name
if [[ ! -x $binary ]]; then
  mkdir -p "$dir"
  echo "building $name once into .cache/tools/$key (golangci-lint takes some minutes)" >&2
  # Renamed when whole, so that an interrupted build leaves no torn binary.
  (cd "$root/hack/tools" && GOWORK=off GOFLAGS=-buildvcs=false CGO_ENABLED=0 go build -trimpath -o "$binary.$$" "$package") >&2
  mv "$binary.$$" "$binary"
fi
echo "$binary"
