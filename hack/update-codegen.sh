#!/usr/bin/env bash
# Generates deepcopy functions and CustomResourceDefinitions of our kinds.
# The generator runs from a module of its own, so that it never moves the
# product's dependencies.
set -euo pipefail
cd "$(dirname "$0")/.."

version=${CONTROLLER_GEN_VERSION:-v0.22.0}
go run "sigs.k8s.io/controller-tools/cmd/controller-gen@${version}" \
  object crd \
  paths=./pkg/federation/apis/... \
  output:crd:dir=./pkg/federation/apis/crds
