#!/usr/bin/env bash
# Says what is missing on this machine, and how to get it:
#
#   hack/prerequisites.sh gcc   what the race detector needs
#   hack/prerequisites.sh e2e   what the end-to-end tests need
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

missing=0

want() { # the same, for what can be done without
  local before=$missing
  need "$@"
  missing=$before
}

need() { # COMMAND, REASON, DEBIAN PACKAGE, FEDORA PACKAGE
  command -v "$1" >/dev/null && return
  missing=1
  echo "$1 is missing: $2." >&2
  echo "  Debian, Ubuntu:  apt-get install -y $3" >&2
  echo "  Fedora, RHEL:    dnf install -y $4" >&2
}

case ${1:?usage: hack/prerequisites.sh gcc|e2e} in
  gcc)
    compiler=$(go env CC)
    command -v "${compiler%% *}" >/dev/null || need gcc "the race detector links C code ('make test-unit test-e2e' run without it)" "gcc libc6-dev" "gcc glibc-devel"
    ;;
  e2e)
    need git "the repository is read with it" git git
    # Without these a part of the tests is left out.
    want node "the test with the JavaScript client is NOT RUN" nodejs nodejs
    want npm "the test with the JavaScript client is NOT RUN" npm nodejs-npm
    ;;
  *)
    echo "hack/prerequisites.sh: what is $1?" >&2
    exit 2
    ;;
esac
exit "$missing"
