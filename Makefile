# hutch: `make help` explains the targets. V=1 shows every command.

SHELL       = /bin/sh
Q          := $(if $(V),,@)
say         = @printf '  %-9s %s\n'

# Everything runs through this wrapper: it finds, or fetches into .cache, a Go
# that go.mod accepts.
GO          = internal/build/go.sh
TESTRUN     = $(GO) build -o .cache/bin/testrun ./internal/build/testrun && $(GO) exec .cache/bin/testrun

VERSION    ?= 0.1.0-dev
BUILD_ID    = $(shell internal/build/buildid.sh)
STAMP       = -X github.com/hutch-sh/hutch/internal/version.Version=$(VERSION) \
              -X github.com/hutch-sh/hutch/internal/version.BuildID=$(BUILD_ID)
GOBUILD     = $(GO) build -buildvcs=false

# What is compiled does not name the folder of the checkout. So all checkouts on a machine share one build cache, and so do the
# binaries, their tests, and what lint type-checks: with the same tags, and no C in net and os/user.
export GOFLAGS := $(strip $(GOFLAGS) -trimpath)

# The binaries that need no C, and those that do: hutch-launch, static because it runs
# from a memfd inside other roots, and hutch-scan, which has parsers in C.
PLAIN       = hutch hutchd hutch-init hutch-netd hutch-mcp hutch-web
PLAIN_FLAGS = -tags 'containers_image_openpgp netgo osusergo' -ldflags '-s -w $(STAMP)'
CGO_FLAGS   = -tags 'seccomp netgo osusergo' -ldflags '-s -w -linkmode external -extldflags "-static" $(STAMP)'

# The exec stub that hutch-init embeds, and what gives a waiting sandbox its root, which hutch-launch
# does: no libc, no start-up cost.
CC         ?= gcc
STUB        = runtime/guest/stub/stub runtime/launch/swap/swap
STUB_FLAGS  = -nostdlib -static -Os -Wall -Wextra -Werror -fno-stack-protector -fno-asynchronous-unwind-tables \
              -fno-pie -no-pie -Wl,--build-id=none -Wl,-z,noexecstack -s

PREFIX     ?= $(HOME)/.local
DESTDIR    ?=
BINDIR      = $(DESTDIR)$(PREFIX)/bin
LIBEXECDIR  = $(DESTDIR)$(PREFIX)/libexec/hutch

# Debian's registry, unpacked for the tests, is found here.
export PATH := $(CURDIR)/bin:$(PATH):$(CURDIR)/.cache/tools/usr/bin

.DEFAULT_GOAL := help
.PHONY: help run test test-all test-users test-race test-vm test-vm-whole fuzz hunt axes-audit test-workspaces compat ci-table build package reference install uninstall install-netd uninstall-netd deps lint house picture generate bench clean prove-agents deps-build deps-test deps-agents deps-obeyed deps-e2b deps-sdk deps-rest deps-bench

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo '  NO_INSTALL=1 never installs packages, V=1 shows commands, PREFIX=DIR is where install goes (~/.local)'

run: build ## build, then show a sandbox at work (state in .cache/run)
	$(Q)HUTCH_ROOT=$(CURDIR)/.cache/run/state bin/hutch tour --private

REPORTED    = $(if $(REPORT),-report $(REPORT))
test: build deps-test ## run the tests as you, each once; list those that this host cannot run
	$(Q)$(TESTRUN) -brief $(REPORTED) $(if $(RUN),-run '$(RUN)') $(PKG)

test-all: test-users ## the same, failing when a must-run test skips; as root for three kinds of user; then test-race
	$(Q)$(if $(PKG)$(RUN),:,$(MAKE) --no-print-directory test-race)

test-users: build deps-test
	$(Q)for suite in agents obeyed sdk e2b rest; do if $(TESTRUN) -due $$suite; then $(MAKE) --no-print-directory deps-$$suite; fi; done
	$(Q)$(TESTRUN) -require -matrix $(REPORTED) $(if $(RUN),-run '$(RUN)') $(PKG)

test-workspaces: build deps-test ## as root: the usual work in every kind of folder, mode and user, as each kind of user
	$(Q)export HUTCH_TEST_MATRIX=all HUTCH_TEST_SUITES=all; $(TESTRUN) -matrix -run '^TestWorkspaceMatrix' ./integration/files

axes-audit: build deps-test ## run a tenth of the tests along axes that they do not declare, and fail where that makes a difference
	$(Q)$(TESTRUN) -audit -matrix $(if $(RUN),-run '$(RUN)') $(PKG)
	$(Q)$(GO) build -o .cache/bin/vm ./integration/vm
	$(Q)$(GO) exec .cache/bin/vm -audit $(if $(RUN),-run '$(RUN)') 6.1 newest

compat: build deps-test ## as root: run E2B's own suites, of E2B=DIR and CODE=DIR, and write docs/compatibility.md (RUN=SUITE)
	$(Q)$(GO) build -o .cache/bin/compat ./internal/build/compat
	$(Q)$(GO) exec .cache/bin/compat $(if $(E2B),-e2b '$(E2B)') $(if $(CODE),-code '$(CODE)') $(if $(RUN),-only '$(RUN)')

prove-agents: build deps-test deps-agents ## run the agents of the shipped templates, and write what is proven (RUN=TestAgents/codex)
	$(Q)HUTCH_TEST_SUITES=all HUTCH_PROVE_AGENTS=$(CURDIR)/internal/agents/proven $(TESTRUN) -run '$(or $(RUN),^TestAgents$$)' ./integration/agents
	$(Q)$(GO) generate ./runtime/template

HUNT       ?= 30m
hunt: build deps-test ## as root: hunt races for HUNT=30m with system calls held up and processors taken away (RUN=, PKG=)
	$(Q)$(TESTRUN) -matrix -hunt $(HUNT) $(if $(RUN),-run '$(RUN)') $(PKG)

# Where goroutines meet. The rest either has none, or is other processes' business.
RACY        = ./runtime/sandbox ./runtime/server ./runtime/client ./runtime/guest/guestapi/... ./runtime/launch/launchapi \
              ./runtime/monitor/... ./internal/jsonrpc ./internal/eventlog ./internal/packet ./internal/spool ./internal/cli \
              ./netfilter/names ./netfilter/proxy ./netfilter/internal/lookups
# Of images those in which goroutines meet: a worker, which is the race detector's binary too, takes a second to start.
RACY_PULLS  = Pull|PullOnce|PullIsCanceled|PullStalls|PullResumes|CollectWhilePulling|GCKeepsWhatIsInUse|Push|CommitOver|VerifyMany|ImportCancel|ImportShared|HostIsRebuiltWhenTheHostChanges
test-race: build deps-test ## run the packages that are concurrent under the race detector (RUN=, PKG=)
	$(Q)$(TESTRUN) -race $(REPORTED) $(if $(PKG)$(RUN),,-only 'images=^Test($(RACY_PULLS))$$') $(if $(RUN),-run '$(RUN)') $(or $(PKG),$(RACY) ./images)

test-vm: build deps-test ## run tests in virtual machines: other kernels, systemd, ordinary users (as root; CASE=, RUN=)
	$(Q)$(GO) build -o .cache/bin/vm ./integration/vm
	$(Q)$(GO) exec .cache/bin/vm -require $(REPORTED) $(if $(RUN),-run '$(RUN)') $(CASE)

test-vm-whole: ## the whole suite on Linux 6.12, an hour: before a change of launch, guest, cgroups or netfilter is called done
	$(Q)$(MAKE) --no-print-directory test-vm CASE=6.12-whole

ci-table: # what .ci/run prints at its end
	$(Q)$(GO) run ./internal/build/citable $(DIR)

FUZZ       ?= 30m
fuzz: deps-build $(STUB) ## run all fuzz targets in turn, FUZZ=30m in all; corpora stay in .cache/fuzz (RUN=internal/cli.FuzzParse)
	$(Q)$(GO) build -o .cache/bin/fuzz ./internal/build/fuzz
	$(Q)$(GO) exec .cache/bin/fuzz -for $(FUZZ) $(if $(RUN),-run '$(RUN)')

# hutch is copied, as an installation does: what a linker writes lies in the page cache page by page, and starts a fifth slower.
build: deps-build $(STUB) ## build bin/{hutch,hutchd,hutch-launch,hutch-init,hutch-netd,hutch-mcp,hutch-web,hutch-scan}
	$(Q)$(GO) version >/dev/null
	$(Q)[ -d bin ] || { printf '  %-9s %s\n' FETCH 'Go modules'; $(GO) list -deps -tags containers_image_openpgp,seccomp ./cmd/... >/dev/null 2>&1 || true; }
	$(say) BUILD 'bin/{$(subst $() ,$(comma),$(PLAIN))}'
	$(Q)CGO_ENABLED=0 $(GOBUILD) $(PLAIN_FLAGS) -o bin/ $(PLAIN:%=./cmd/%)
	$(Q)[ .cache/hutch-copied -nt bin/hutch ] || { mkdir -p .cache && cp bin/hutch bin/.hutch && mv bin/.hutch bin/hutch && touch .cache/hutch-copied; }
	$(say) BUILD 'bin/hutch-launch, bin/hutch-scan (static, with C)'
	$(Q)CGO_ENABLED=1 $(GOBUILD) $(CGO_FLAGS) -o bin/ ./cmd/hutch-launch ./cmd/hutch-scan
comma := ,

$(STUB): %: %.c runtime/guest/stub/syscall.h
	$(say) CC $@
	$(Q)$(CC) $(STUB_FLAGS) -o $@ $<

# The packages carry the binaries: whoever installs one needs nothing else.
BINARIES    = hutch hutchd hutch-launch hutch-init hutch-netd hutch-mcp hutch-web hutch-scan
package: build deps-test ## build the Python wheel and the MCP bundle, with the binaries in them, and the npm packages into dist
	$(Q)rm -rf .cache/package && mkdir -p .cache/package dist
	$(say) PACKAGE 'dist/hutch_sandbox-*.whl'
	$(Q)cp -R sdk/python .cache/package/python
	$(Q)install -d .cache/package/python/src/hutch/_bin
	$(Q)install -m 0755 $(BINARIES:%=bin/%) .cache/package/python/src/hutch/_bin/
	$(Q)python3 -m pip wheel --quiet --no-deps --wheel-dir dist .cache/package/python
	$(say) PACKAGE 'dist/hutch-sh-sdk-*.tgz'
	$(Q)HUTCH_NODE_MODULES=.cache/typescript/node_modules node sdk/typescript/build.mjs .cache/package/typescript
	$(Q)npm pack --silent --pack-destination dist ./.cache/package/typescript >/dev/null
	$(say) PACKAGE 'dist/hutch-sh-linux-*.tgz'
	$(Q)node sdk/typescript/platform.mjs .cache/package/platform bin
	$(Q)npm pack --silent --pack-destination dist ./.cache/package/platform >/dev/null
	$(say) PACKAGE 'dist/{hutch-mcp-*.mcpb,server.json}'
	$(Q)$(GO) run ./internal/build/mcpb -version $(VERSION)

# Warnings are errors: of what refers to nothing. But pdoc cannot know which TypedDict has a member: none does at run time.
REFERENCE   = dist/reference
reference: deps-sdk ## make the reference of both packages, in HTML, into dist/reference
	$(say) REFERENCE '$(REFERENCE)/{python,typescript}'
	$(Q)rm -rf $(REFERENCE)
	$(Q)PYTHONPATH=sdk/python/src:.cache/sdk python3 -W error -W 'ignore:Cannot determine where' -m pdoc --output-directory $(REFERENCE)/python hutch hutch.types
	$(Q)node .cache/sdk-npm/node_modules/typedoc/bin/typedoc --options sdk/typescript/typedoc.json --out $(REFERENCE)/typescript

install: build ## install below PREFIX (~/.local)
	$(say) INSTALL '$(BINDIR)/hutch, $(LIBEXECDIR)/{hutchd,hutch-launch,hutch-init,hutch-netd,hutch-mcp,hutch-web,hutch-scan}'
	$(Q)install -d $(BINDIR) $(LIBEXECDIR)
	$(Q)install -m 0755 bin/hutch $(BINDIR)/
	$(Q)install -m 0755 bin/hutchd bin/hutch-launch bin/hutch-init bin/hutch-netd bin/hutch-mcp bin/hutch-web bin/hutch-scan $(LIBEXECDIR)/

uninstall: ## remove what install put there
	$(say) REMOVE '$(BINDIR)/hutch, $(LIBEXECDIR)'
	$(Q)rm -f $(BINDIR)/hutch $(LIBEXECDIR)/hutchd $(LIBEXECDIR)/hutch-launch $(LIBEXECDIR)/hutch-init $(LIBEXECDIR)/hutch-netd $(LIBEXECDIR)/hutch-mcp $(LIBEXECDIR)/hutch-web $(LIBEXECDIR)/hutch-scan
	$(Q)rmdir $(LIBEXECDIR) 2>/dev/null || true

# Beside no user's files, because of its capabilities. Only members of the group may start it;
# it is not built here, so that root compiles nothing in a user's folder.
NETD_DIR   ?= /usr/local/libexec/hutch
NETD_GROUP ?= hutch
install-netd: ## as root, after make build: let daemons of the group hutch enforce policies by eBPF
	$(Q)[ -x bin/hutch-netd ] || { echo 'bin/hutch-netd is missing: make build first, as yourself' >&2; exit 1; }
	$(say) INSTALL '$(NETD_DIR)/hutch-netd, root:$(NETD_GROUP) 0750, with cap_bpf and cap_net_admin'
	$(Q)getent group $(NETD_GROUP) >/dev/null || groupadd --system $(NETD_GROUP)
	$(Q)install -d -m 0755 $(NETD_DIR)
	$(Q)install -o root -g $(NETD_GROUP) -m 0750 bin/hutch-netd $(NETD_DIR)/
	$(Q)setcap cap_bpf,cap_net_admin=ep $(NETD_DIR)/hutch-netd

uninstall-netd: ## as root: remove what install-netd put there; the group stays
	$(Q)rm -f $(NETD_DIR)/hutch-netd
	$(Q)rmdir $(NETD_DIR) 2>/dev/null || true

deps: ## install missing packages (root or passwordless sudo), else print the command
	$(Q)internal/build/deps.sh go build test
	$(Q)$(GO) version

deps-build:
	$(Q)internal/build/deps.sh go build

deps-test:
	$(Q)internal/build/deps.sh test

deps-agents: ## fetch the packages of the agents that templates are shipped for (docs/agents/README.md)
	$(Q)internal/build/deps.sh test agents

deps-obeyed: ## install the programs that the suite obeyed runs: editors, shells, package managers (docs/guarded.md)
	$(Q)internal/build/deps.sh obeyed

deps-sdk: ## install what the suite sdk runs: versions of Node, Bun and Deno, and frameworks that the examples are for
	$(Q)internal/build/deps.sh sdk

deps-e2b: ## install E2B's SDKs, of today and of half a year before, which the suite e2b runs (docs/e2b.md)
	$(Q)internal/build/deps.sh test e2b

deps-rest: ## install what the suite rest runs: a validator of OpenAPI documents, and schemathesis
	$(Q)internal/build/deps.sh test rest

deps-bench:
	$(Q)internal/build/deps.sh bench

# The linter lives in a module of its own, so that its dependencies stay out of
# ours. The test of the import rules runs this binary too.
LINTER = .cache/bin/golangci-lint
$(LINTER): internal/tools/go.mod internal/tools/go.sum
	$(say) BUILD '$@ (takes a while, once)'
	$(Q)$(GO) list -C internal/tools -deps github.com/golangci/golangci-lint/v2/cmd/golangci-lint >/dev/null 2>&1 || true
	$(Q)$(GO) build -C internal/tools -buildvcs=false -o $(CURDIR)/$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

# Packages with C keep the names of their files in the build cache, and the linter those of what it has found in its own:
# each checkout has its own of them, or it is told about another one's files.
lint: export GOLANGCI_LINT_CACHE = $(CURDIR)/.cache/golangci-lint
lint: export CGO_CFLAGS = -g -O2 -ffile-prefix-map=$(CURDIR)=.
lint: deps-build $(STUB) $(LINTER) ## check style and import rules (the first run builds the linter: a minute or two)
	$(say) LINT './...'
	$(Q)$(GO) exec $(LINTER) run ./...
	$(say) LINT '.ci, and what tests declare'
	$(Q)$(GO) run ./internal/build/planlint
	$(say) LINT 'words and widths'
	$(Q)$(GO) run ./internal/build/house -check
	$(say) LINT 'shell scripts'
	$(Q)if command -v shellcheck >/dev/null; then shellcheck .ci/run internal/build/*.sh integration/vm/guest/*.sh; else echo '  no shellcheck: skipped'; fi

house: ## print what the tree looks like against its limits: packages, types, functions, lines, words
	$(Q)$(GO) run ./internal/build/house

picture: build ## record the session that the README shows
	$(Q)$(GO) run ./internal/build/session -o docs/session.svg

generate: deps-build $(STUB) ## renew generated files (eBPF takes clang-19, which nothing else does)
	$(Q)internal/build/deps.sh generate
	$(say) GENERATE './...'
	$(Q)$(GO) generate ./...

bench: build deps-test deps-bench ## measure against bwrap, crun, runc, podman and others (ARGS=... goes to the harness)
	$(Q)$(GO) run ./integration/bench $(ARGS)

clean: ## remove what make made (bin, the stub, .cache)
	$(Q)rm -rf bin $(STUB)
	$(Q)rm -rf .cache 2>/dev/null || { chmod -R u+w .cache; rm -rf .cache; }
