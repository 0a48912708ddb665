# `make help` lists the targets. On a machine with Rust, a C compiler, Node and npm, `make run` and `make test` bring
# whatever else they need.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

# Where cargo builds. The site and the finished binary are in `target` whatever CARGO_TARGET_DIR says.
BUILD := $(abspath $(or $(CARGO_TARGET_DIR),target))
SITE := target/site
SITE_STAMP := target/site.stamp
RELEASE := target/release/counterfoil

BROWSER := --no-default-features --features hydrate --target wasm32-unknown-unknown
SERVER := --features ssr
# Tests and the binary they start are built together, so that dependencies are built once.
TESTS := $(SERVER) --bins --tests

## build: the release binary, target/release/counterfoil, with the site inside
build: $(RELEASE)

## run: build, then serve on http://127.0.0.1:8080 with SQLite in ./data
run: build
	@exec $(RELEASE) serve

## demo: build, then serve a fresh database in ./data/demo with simulated agents at work
demo: export COUNTERFOIL_DATA_DIR := data/demo
demo: build
	@rm -rf data/demo
	@exec $(RELEASE) demo

## test: everything: lint, unit and integration tests on both databases, browser stories
test: lint site
	@.ci/need postgres
	.ci/with-postgres .ci/cargo-test $(SERVER)
	@$(MAKE) --no-print-directory e2e

## lint: formatting, clippy on both halves, rustdoc, the crate's own rules, the stories' types
lint: end2end/node_modules/.stamp | $(SITE)
	@.ci/need rust rustfmt clippy
	@.ci/need wasm-target
	cargo fmt --check
	.ci/rules
	cargo clippy --quiet $(SERVER) --all-targets -- -D warnings
	cargo clippy --quiet --lib --bins $(BROWSER) -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --quiet $(SERVER) --no-deps --lib
	cd end2end && npx --no-install tsc --noEmit

## e2e: the browser stories (ARGS='-g countersign' or ARGS='--project scripts-off' narrows them)
e2e: site end2end/node_modules/.stamp
	@.ci/need chromium
	cargo build --quiet $(TESTS)
	cd end2end && COUNTERFOIL_BIN="$(BUILD)/debug/counterfoil" COUNTERFOIL_CHROMIUM="$$(../.ci/chromium)" npx --no-install playwright test $(ARGS)

## shots: pictures of the main pages in target/shots, wide and phone, light and dark
shots: site end2end/node_modules/.stamp
	@.ci/need chromium
	cargo build --quiet $(TESTS)
	cd end2end && COUNTERFOIL_BIN="$(BUILD)/debug/counterfoil" COUNTERFOIL_CHROMIUM="$$(../.ci/chromium)" npx --no-install playwright test --config shots.config.ts $(ARGS)

## collide: stops real agents between read and write, and shows what becomes of their stale writes and lost leases
collide:
	@.ci/need rust
	@.ci/need postgres
	.ci/with-postgres .ci/cargo-test $(SERVER) collide

## faults: faults with Counterfoil and without it, in target/faults/report.html (ARGS='50 20' for 50 seeds, 20 minutes)
faults:
	@.ci/need rust
	@.ci/need postgres
	.ci/with-postgres cargo test --quiet $(SERVER) --test faults -- run $(ARGS)

## bench: size, start, memory, wake-up and throughput of the release build
bench: build size
	@.ci/bench $(RELEASE)

## size: what a browser loads for a page, compressed; fails above 160 kB
size: site
	@.ci/size $(SITE)/pkg

## fuzz: hostile requests drawn from /openapi.json (needs Python 3)
fuzz: build
	@.ci/fuzz $(RELEASE)

## site: the browser half, in target/site
site: $(SITE_STAMP)

## clean: what was built; data stays
clean:
	cargo clean
	rm -rf target end2end/node_modules end2end/test-results

help:
	@sed -n 's/^## \([a-z0-9]*\): /\1\t/p' $(MAKEFILE_LIST) | expand -t 8

# The browser half ---------------------------------------------------------------------------------------------------

WASM := $(BUILD)/wasm32-unknown-unknown/wasm-release
PUBLIC := $(shell find public -type f)

# The glue and its generator must be of one version; Cargo.toml names it.
BINDGEN_VERSION := $(shell sed -n 's/^wasm-bindgen = { version = "=\([0-9.]*\)".*/\1/p' Cargo.toml)
BINDGEN := $(shell if [ "$$(wasm-bindgen --version 2>/dev/null)" = "wasm-bindgen $(BINDGEN_VERSION)" ]; then command -v wasm-bindgen; \
	else echo target/tools/wasm-bindgen-$(BINDGEN_VERSION)/bin/wasm-bindgen; fi)

target/tools/wasm-bindgen-$(BINDGEN_VERSION)/bin/wasm-bindgen:
	@.ci/need rust
	env -u CARGO_TARGET_DIR cargo install --quiet wasm-bindgen-cli --version $(BINDGEN_VERSION) --root target/tools/wasm-bindgen-$(BINDGEN_VERSION)

# Two programs of one build: what every page loads, and what only the audit page does. Cargo decides whether anything
# changed, and leaves the files' times alone when nothing did.
$(WASM)/browser.wasm: FORCE
	@.ci/need wasm-target
	cargo build --quiet --bins $(BROWSER) --profile wasm-release
$(WASM)/verifier.wasm: $(WASM)/browser.wasm ;

GLUE := --target web --no-typescript --remove-name-section --remove-producers-section --out-dir $(SITE)/pkg

# The page asks for counterfoil.wasm, because LEPTOS_OUTPUT_NAME is set when the server is compiled.
$(SITE_STAMP): $(WASM)/browser.wasm $(WASM)/verifier.wasm style/main.css $(PUBLIC) Makefile | $(BINDGEN)
	@rm -rf $(SITE) && mkdir -p $(SITE)/pkg
	$(BINDGEN) $(GLUE) --out-name counterfoil $(WASM)/browser.wasm
	$(BINDGEN) $(GLUE) --out-name verifier $(WASM)/verifier.wasm
	mv $(SITE)/pkg/counterfoil_bg.wasm $(SITE)/pkg/counterfoil.wasm
	sed -i.bak 's/counterfoil_bg\.wasm/counterfoil.wasm/g' $(SITE)/pkg/counterfoil.js && rm $(SITE)/pkg/counterfoil.js.bak
	echo '__wbg_init();' >> $(SITE)/pkg/verifier.js
	cp style/main.css $(SITE)/pkg/counterfoil.css
	cp -R public/. $(SITE)/
	@touch $@

# The server half compiles against the folder, empty or not.
$(SITE):
	@mkdir -p $@

# The server half ----------------------------------------------------------------------------------------------------

$(BUILD)/release/counterfoil: $(SITE_STAMP) FORCE
	cargo build --quiet --release $(SERVER) --bin counterfoil

ifneq ($(BUILD),$(abspath target))
$(RELEASE): $(BUILD)/release/counterfoil
	@mkdir -p $(@D)
	cp -f $< $@
else
$(RELEASE): $(BUILD)/release/counterfoil
endif

# The stories --------------------------------------------------------------------------------------------------------

end2end/node_modules/.stamp: end2end/package.json end2end/package-lock.json
	@.ci/need node
	cd end2end && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

FORCE:
.PHONY: build run demo test lint e2e shots collide faults bench size fuzz site clean help FORCE
