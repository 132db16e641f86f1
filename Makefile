# Entry points. `make help` lists them; each is one command you could type yourself.
.DEFAULT_GOAL := help
.PHONY: help run test test-all suites crash crash-long vmtest bench fuzz docs install install-c tools clean

PREFIX  ?= /usr/local
DESTDIR ?=
CARGO   ?= cargo
target  := $(or $(CARGO_TARGET_DIR),target)
perdure := $(target)/release/perdure
version := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
# The number in the name that programs look for (crates/capi/build.rs).
soname  := libperdure.so.0
# The command, and the library that `perdure run` preloads.
build   := build --release -p perdure-cli -p perdure-preload

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-11s %s\n", $$1, $$2}' Makefile

run: ## a mounted file system that survives kill -9, in one command
	@scripts/demo.sh

test: ## every kind of proof with small counts, 13 minutes on two processors: lints, tests, suites on a mount, crash states, fuzzing
	@scripts/install-tools.sh build run test
	@tests/run.py

test-all: ## the same with full counts, 50 minutes: 2,000,000 crash states, the suites on the release build
	@scripts/install-tools.sh build run test
	@tests/run.py --all

suites: ## the suites that need a mount; SUITES="fsx kill9" picks some
	@scripts/install-tools.sh build run test
	@tests/run.py $(or $(SUITES),$(patsubst tests/suites/%.sh,%,$(sort $(wildcard tests/suites/*.sh))))

crash: ## the proof that deliberate bugs are noticed, and 2,000,000 distinct crash states
	@tests/run.py --all bugs crash

crash-long: ## crash states without end worth mentioning: CRASH_SECONDS (default 28800) of new seeds
	@tests/crash.sh long

vmtest: ## persistent memory in QEMU: fsdax and device-DAX, power cut under load (needs no KVM)
	@scripts/install-tools.sh build vm
	@$(CARGO) build --release -p perdure-cli
	@tests/vm/run.sh

bench: ## the bars of docs/DESIGN.md, both sides of each printed
	@$(CARGO) $(build)
	@$(perdure) bench ops

fuzz: ## every fuzz target for FUZZ_SECONDS (default 300) each
	@tests/fuzz.sh $(or $(FUZZ_SECONDS),300)

docs: ## man pages, shell completions and the library's documentation, under $(target)/
	@$(CARGO) $(build)
	@mkdir -p $(target)/man $(target)/completions
	@$(perdure) man $(target)/man
	@for shell in bash zsh fish; do $(perdure) completions $$shell >$(target)/completions/perdure.$$shell; done
	@$(CARGO) doc --no-deps --workspace
	@echo "$(target)/man  $(target)/completions  $(target)/doc/perdure/index.html"

install: docs install-c ## into PREFIX (/usr/local), DESTDIR honoured
	install -D -m 755 $(perdure) $(DESTDIR)$(PREFIX)/bin/perdure
	install -D -m 644 $(target)/release/libperdure_preload.so $(DESTDIR)$(PREFIX)/lib/perdure/libperdure_preload.so
	install -d $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 644 $(target)/man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1/
	install -D -m 644 $(target)/completions/perdure.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/perdure
	install -D -m 644 $(target)/completions/perdure.zsh $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_perdure
	install -D -m 644 $(target)/completions/perdure.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/perdure.fish

install-c: ## the C library alone, into PREFIX: perdure.h, libperdure.so, libperdure.a, perdure.pc
	@$(CARGO) build --release -p perdure-capi
	install -D -m 644 crates/capi/include/perdure.h $(DESTDIR)$(PREFIX)/include/perdure.h
	install -D -m 755 $(target)/release/libperdure_c.so $(DESTDIR)$(PREFIX)/lib/libperdure.so.$(version)
	ln -sf libperdure.so.$(version) $(DESTDIR)$(PREFIX)/lib/$(soname)
	ln -sf $(soname) $(DESTDIR)$(PREFIX)/lib/libperdure.so
	install -D -m 644 $(target)/release/libperdure_c.a $(DESTDIR)$(PREFIX)/lib/libperdure.a
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(version)|' crates/capi/perdure.pc.in >$(DESTDIR)$(PREFIX)/lib/pkgconfig/perdure.pc
	@# The loader has a list of what it finds. Of a package, the package's script renews it.
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" = 0 ]; then ldconfig; fi

tools: ## install what the other commands need
	@scripts/install-tools.sh build run test vm

clean: ## remove what was built
	@$(CARGO) clean
