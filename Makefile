# The tasks of this workspace. `make help` lists them. On Debian and Ubuntu each target first installs what it needs and does
# not find (see scripts/prepare); with PREPARE=: nothing is installed.

PREFIX ?= /usr/local
DESTDIR ?=
PREPARE ?= scripts/prepare
CARGO ?= scripts/toolchain cargo
# More arguments for `make bench`, `make demo` and `make test-regress`, for example: make bench ARGS='--quick --only "simple*"'
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help build demo test test-pg18 test-regress lint audit bench docs install uninstall clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | while IFS="$$(printf '\t')" read -r name text; do \
	    printf '  make %-12s %s\n' "$$name" "$$text"; done

build: ## builds target/release/pgusher
	@$(PREPARE) build
	$(CARGO) build --release --locked -p pgusher

demo: ## measures a private PostgreSQL, direct and managed, and leaves an HTML report (a minute, and the build)
	@$(PREPARE) demo
	$(CARGO) build --release --locked -p pgusher
	target/release/pgusher demo $(ARGS)

test: lint ## formatting, lints, and all tests, with a private PostgreSQL
	$(CARGO) test --workspace --locked --no-fail-fast
	@if $(CARGO) deny --version >/dev/null 2>&1; then $(CARGO) deny --all-features check bans licenses sources; fi

test-pg18: ## the tests that differ on PostgreSQL 18 (fetches its server programs; see scripts/fetch-pg18)
	@$(PREPARE) pg18
	PGUSHER_TEST_PG18_BIN="$$(scripts/fetch-pg18)" && export PGUSHER_TEST_PG18_BIN && \
	    $(CARGO) test --locked -p pgusher-measure --test server_view pg18

test-regress: ## PostgreSQL's own regression suite through pgusher (3 minutes; fetches its source; see docs/regress.md)
	@$(PREPARE) regress
	$(CARGO) build --release --locked -p pgusher
	@scripts/regress $(ARGS)

lint: ## formatting and lints
	@$(PREPARE) test
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

audit: ## licences, sources and known weaknesses of all dependencies (installs cargo-deny; needs the network)
	@$(PREPARE) build
	@$(CARGO) deny --version >/dev/null 2>&1 || $(CARGO) install --locked cargo-deny
	$(CARGO) deny --all-features check

bench: ## side by side with PgBouncer; writes docs/benchmarks.md (about 20 minutes; ARGS=--quick for less)
	@$(PREPARE) bench
	$(CARGO) build --release --locked -p pgusher -p pgusher-bench
	target/release/pgusher-bench $(ARGS)

docs: ## builds the book to docs/book
	@$(PREPARE) docs
	PATH="$$PATH:$${CARGO_HOME:-$$HOME/.cargo}/bin" mdbook build docs

install: build ## installs the program to $(DESTDIR)$(PREFIX)/bin
	install -d "$(DESTDIR)$(PREFIX)/bin" "$(DESTDIR)$(PREFIX)/share/doc/pgusher"
	install -m 755 target/release/pgusher "$(DESTDIR)$(PREFIX)/bin/pgusher"
	install -m 644 LICENSE-APACHE LICENSE-MIT "$(DESTDIR)$(PREFIX)/share/doc/pgusher/"

uninstall: ## removes what `make install` put there
	rm -f "$(DESTDIR)$(PREFIX)/bin/pgusher"
	rm -rf "$(DESTDIR)$(PREFIX)/share/doc/pgusher"

clean: ## removes everything that was built
	$(CARGO) clean
	rm -rf docs/book
