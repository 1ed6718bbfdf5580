#!/usr/bin/env bash
# Renders the manifests and checks them and the systemd units against the built
# programs (see hack/verifymanifests).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

kustomize=$(hack/tool.sh kustomize)
for kustomization in manifests/*/kustomization.yaml; do
  dir=$(dirname "$kustomization")
  echo "checking $dir"
  "$kustomize" build "$dir" | go run ./hack/verifymanifests -bin bin manifests/systemd/*.service
done
