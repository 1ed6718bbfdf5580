# Isthmus. `make` lists the targets; every verify-X that can repair what it
# finds has an update-X.
SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

KUBERNETES_VERSION := v1.37.2
MODULES := . e2e e2e/clients/suite e2e/conformance/suite e2e/kubelet e2e/kwok e2e/metricsserver e2e/skew/old hack/tools
COMMANDS := $(patsubst cmd/%/main.go,%,$(wildcard cmd/*/main.go))
E2E_TIMEOUT ?= 20m
MEMBERS ?= 2
FUZZ_TIME ?= 10s

# The version that clients see must be one that kubectl can parse.
version_packages := k8s.io/component-base/version k8s.io/client-go/pkg/version
version_parts := $(subst ., ,$(patsubst v%,%,$(KUBERNETES_VERSION)))
version_stamps = gitVersion=$(KUBERNETES_VERSION) gitMajor=$(word 1,$(version_parts)) gitMinor=$(word 2,$(version_parts)) \
	gitCommit=$(shell git rev-parse HEAD 2>/dev/null) \
	gitTreeState=$(shell test -z "$$(git status --porcelain 2>/dev/null)" && echo clean || echo dirty) \
	buildDate=$(shell TZ=UTC git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd 2>/dev/null)
# The product's own version stands beside it.
product_version := $(or $(shell git describe --tags --match 'v*' --dirty 2>/dev/null),v0.0.0-$(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown))
LDFLAGS = -s -w -X github.com/isthmus-dev/isthmus/pkg/registry/buildversion.stamp=$(product_version) $(foreach p,$(version_packages),$(foreach s,$(version_stamps),-X $(p).$(s)))

# Packages that do not link the embedded control plane: with the race detector
# the others take longer to build than to test.
race_packages = $(shell go list -test -f '{{.ImportPath}} {{join .Deps " "}}' ./pkg/... | grep '^[^ ]*\.test ' | grep -v ' k8s.io/kubernetes/pkg/controlplane/' | sed 's/\.test .*//')

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2} /^##@ / {printf "\n%s\n", substr($$0, 5)}' $(MAKEFILE_LIST)

##@ Build and try

.PHONY: build
build: ## Build the programs into bin/
	@for name in $(COMMANDS); do \
		echo "building bin/$$name"; \
		go build -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/$$name ./cmd/$$name; \
	done

# The program of the lab; nothing else than Go is needed for it.
define build_lab
@command -v go >/dev/null || { echo "the lab needs Go 1.26 or later, and there is no 'go' in PATH: https://go.dev/dl" >&2; exit 1; }
@test -x .cache/lab || echo "compiling the lab's own program (a minute the first time)"
@mkdir -p .cache && cd e2e && go build -buildvcs=false -o ../.cache/lab ./cmd/lab
endef

.PHONY: lab
lab: ## Build the binaries of real member clusters (6 minutes the first time)
	$(build_lab)
	@.cache/lab build

.PHONY: demo
demo: ## MEMBERS (2) member clusters, the endpoint and a sample, in .demo
	$(build_lab)
	@.cache/lab demo --members $(MEMBERS)

.PHONY: demo-down
demo-down: ## Stop what demo started
	$(build_lab)
	@.cache/lab demo-down

##@ Test

.PHONY: test
test: test-unit test-race test-live test-e2e ## Unit tests, race detector, real members, end to end

.PHONY: test-unit
test-unit: ## Unit tests of the product and of the tools in hack/
	go test ./cmd/... ./pkg/... ./hack/...

.PHONY: test-race
test-race: ## Unit tests under the race detector (needs gcc)
	@hack/prerequisites.sh gcc
	CGO_ENABLED=1 go test -race $(race_packages)

.PHONY: test-live
test-live: ## The tests in pkg/ that need real member clusters
	@hack/prerequisites.sh e2e
	hack/test-live.sh

.PHONY: test-e2e
test-e2e: ## Tests against real member clusters on loopback
	@hack/prerequisites.sh e2e
	cd e2e/kubelet && go test ./... -timeout $(E2E_TIMEOUT)
	cd e2e && go test ./... -timeout $(E2E_TIMEOUT)

.PHONY: soak
soak: ## Churn and load under faults for DURATION (10m each); SEED repeats a run (docs/soak.md)
	@hack/prerequisites.sh e2e
	cd e2e && SOAK_DURATION=$(or $(DURATION),10m) SOAK_SEED=$(SEED) go test ./soak/... -count 1 -v -timeout 2h

.PHONY: conformance
conformance: ## Kubernetes' own e2e suite through the endpoint (FOCUS=regexp; PLAIN=1 against one plain cluster)
	@hack/prerequisites.sh e2e
	cd e2e && go run -buildvcs=false ./cmd/conformance $(if $(FOCUS),--focus '$(FOCUS)') $(if $(PLAIN),--plain) $(CONFORMANCE_FLAGS)

.PHONY: clients
clients: ## All of controller-runtime's own tests of its cache and client (FOCUS=regexp; PLAIN=1 against one plain cluster)
	@hack/prerequisites.sh e2e
	cd e2e && CONTROLLER_RUNTIME=$(if $(PLAIN),plain,endpoint) FOCUS='$(FOCUS)' go test ./controllerruntime -count 1 -v -timeout $(E2E_TIMEOUT)

.PHONY: skew
skew: ## Members of Kubernetes v1.34, v1.35 and v1.36 beside one of the present version (20 minutes the first time)
	@hack/prerequisites.sh e2e
	cd e2e && SKEW=1 go test ./skew -count 1 -v -timeout $(E2E_TIMEOUT)

.PHONY: fuzz
fuzz: ## Each fuzz target for FUZZ_TIME (10s)
	hack/fuzz.sh $(FUZZ_TIME)

.PHONY: bench
bench: ## The product beside a real kube-apiserver with the same PODS (10000); BENCH_FLAGS as in docs/performance.md
	@hack/prerequisites.sh e2e
	cd e2e && go run -buildvcs=false ./cmd/bench --pods $(or $(PODS),10000) $(BENCH_FLAGS)

.PHONY: bench-full
bench-full: ## bench with 1,000 events/s, 1,000 watchers and 10 minutes of churn
	@hack/prerequisites.sh e2e
	cd e2e && go run -buildvcs=false ./cmd/bench --full --pods $(or $(PODS),10000) $(BENCH_FLAGS)

.PHONY: bench-micro
bench-micro: ## Benchmarks of packages (BENCH, COUNT, BENCH_OUT choose; read with benchstat)
	go test -run '^$$' -bench '$(or $(BENCH),.)' -benchmem -count $(or $(COUNT),1) \
		$$(git grep --untracked -lE '^func Benchmark' -- 'pkg/**/*_test.go' | xargs -n1 dirname | sort -u | sed 's#^#./#') | tee $(or $(BENCH_OUT),/dev/null)

.PHONY: benchstat
benchstat: ## Compare two outputs of bench-micro: make benchstat OLD=a.txt NEW=b.txt
	"$$(hack/tool.sh benchstat)" $(OLD) $(NEW)

.PHONY: mutate
mutate: ## Apply the committed mutations; every one must be caught by its tests
	go run ./hack/mutate

##@ Check

.PHONY: presubmit
presubmit: lint verify test ## Everything that a change must pass

.PHONY: lint
lint: ## golangci-lint, with .golangci.yml
	"$$(hack/tool.sh golangci-lint)" run --timeout 30m ./cmd/... ./pkg/... ./hack/...
	cd e2e && "$$(../hack/tool.sh golangci-lint)" run --timeout 30m ./...

.PHONY: verify
verify: verify-format verify-mod verify-codegen verify-contract verify-sizes verify-docs verify-manifests ## All checks that are not tests

.PHONY: verify-format
verify-format: ## gofumpt and gci agree with every file
	hack/format.sh verify

.PHONY: update-format
update-format: ## Format every file
	hack/format.sh update

.PHONY: verify-mod
verify-mod: ## go.mod and go.sum of each module are tidy
	@for module in $(MODULES); do \
		echo "go mod tidy -diff in $$module"; \
		(cd $$module && GOWORK=off go mod tidy -diff); \
		for other in $$(cd $$module && ls v*.mod 2>/dev/null); do (cd $$module && GOWORK=off go mod tidy -diff -modfile $$other); done; \
	done

.PHONY: update-mod
update-mod: ## go mod tidy in each module
	@for module in $(MODULES); do \
		(cd $$module && GOWORK=off go mod tidy); \
		for other in $$(cd $$module && ls v*.mod 2>/dev/null); do (cd $$module && GOWORK=off go mod tidy -modfile $$other); done; \
	done

.PHONY: verify-codegen
verify-codegen: ## Generated code and CRDs are up to date
	hack/verify-codegen.sh

.PHONY: update-codegen
update-codegen: ## Generate code and CRDs
	hack/update-codegen.sh

.PHONY: verify-contract
verify-contract: ## Every clause of docs/contract.md names a test that exists, or says why it is open
	go run ./hack/verifycontract

.PHONY: update-contract
update-contract: ## Write the clauses of docs/contract.md anew, keeping what rows say
	go run ./hack/verifycontract -update

.PHONY: verify-sizes
verify-sizes: ## No file has 500 lines or more
	hack/verify-sizes.sh

.PHONY: verify-docs
verify-docs: ## Links between documents lead somewhere
	go run ./hack/verifydocs

.PHONY: verify-manifests
verify-manifests: build ## The manifests render, decode strictly and use flags that exist
	hack/verify-manifests.sh
