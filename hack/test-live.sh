#!/usr/bin/env bash
# Runs the package tests that need real member clusters. They are skipped in a
# plain `go test`, because a package cannot start clusters; here three members
# are started for them and stopped again.
#
#   hack/test-live.sh [-run REGEXP]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

variables='ISTHMUS_LAB|ISTHMUS_MEMBERS|ISTHMUS_TEST_MEMBERS'
mapfile -t packages < <(git grep --untracked -lE "\"($variables)\"" -- 'pkg/**/*_test.go' | xargs -r -n1 dirname | sort -u | sed 's#^#./#')
if ((${#packages[@]} == 0)); then
  echo "no package reads ($variables)" >&2
  exit 1
fi

dir=$(mktemp -d)
bin=$dir/lab
stop() {
  status=$?
  trap - EXIT
  "$bin" down --dir "$dir/state" || status=1
  rm -rf "$dir"
  exit "$status"
}
(cd e2e && GOWORK=off go build -buildvcs=false -o "$bin" ./cmd/lab)
trap stop EXIT
"$bin" up --members 3 --dir "$dir/state"

members=$dir/state/members
export ISTHMUS_LAB=$dir/state ISTHMUS_TEST_MEMBERS=$members
export ISTHMUS_MEMBERS="m1=$members/m1/kubeconfig,m2=$members/m2/kubeconfig"
# One package at a time: they share the members.
go test -count=1 -p 1 -timeout 15m "$@" "${packages[@]}"
