# Every job of this repository. Each works on a fresh clone with Python 3.11 or newer, git and make: the first one
# sets up .venv from the pinned requirements-dev.lock, later ones start at once.

PYTHON ?= python3
VENV ?= .venv
AGENT ?= examples/release_notes.py
ASK ?= Draft the release notes

BIN := $(VENV)/bin
# A person's own pip settings (index, certificates, cache) are kept; those that would install past .venv are not.
PIP := PIP_USER=0 PIP_TARGET= PIP_PREFIX= PIP_REQUIRE_HASHES=0 \
  $(BIN)/python -m pip --no-input --disable-pip-version-check
# A .venv whose interpreter is gone (upgraded, or copied from elsewhere) is made anew.
STALE := $(shell test -x $(BIN)/python || echo stale)

.DEFAULT_GOAL := help
.PHONY: help run test lint types check bench docs fix lock clean stale
export AGENT ASK

help: ## list these jobs
	@sed -n 's/^\([a-z]*\):.*## /make \1\t/p' $(MAKEFILE_LIST)

run: $(VENV)/.ready ## run the example agent in this terminal (ASK="…" AGENT=file.py)
	@$(BIN)/harborage run "$$AGENT" "$$ASK"

test: $(VENV)/.ready ## run every test (ARGS="-k steering" to narrow it)
	@$(BIN)/pytest -q $(ARGS)

lint: $(VENV)/.ready ## check style and formatting
	@$(BIN)/ruff check --quiet --output-format concise .
	@$(BIN)/ruff format --check --quiet . || { echo "These files are not formatted: run 'make fix'." >&2; \
	  $(BIN)/ruff format --check . >&2; }

types: $(VENV)/.ready ## check types
	@$(BIN)/mypy

check: lint types test ## lint, types and tests: what CI runs

bench: $(VENV)/.ready ## measure speed, as ratios against a bare loop in the same run
	@$(BIN)/python -m benchmarks $(ARGS)

docs: $(VENV)/.ready ## write docs/reference again from the code
	@$(BIN)/python docs/generate.py

fix: $(VENV)/.ready ## format, and mend what the linter can
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format --quiet .

lock: ## pin the dependencies of pyproject.toml again (needs uv: pip install uv)
	@uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --custom-compile-command "make lock" --group dev --output-file requirements-dev.lock $(ARGS) pyproject.toml

clean: ## remove .venv and every cache
	@rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage dist

$(VENV)/.installed: requirements-dev.lock $(STALE)
	@command -v $(PYTHON) >/dev/null || { \
	  echo "No '$(PYTHON)' here; name your Python 3.11 or newer: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; ok = sys.version_info >= (3, 11); ok or sys.exit("Harborage needs Python 3.11 or newer; \
	$(PYTHON) is %d.%d. Name another: make PYTHON=python3.12" % sys.version_info[:2])'
	@echo "Setting up $(VENV): half a minute, and only now ..." >&2
	@$(PYTHON) -m venv --clear $(VENV) || { \
	  echo "'$(PYTHON) -m venv' failed; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@$(PIP) install -qq --require-hashes --no-deps -r requirements-dev.lock
	@touch $@

$(VENV)/.ready: $(VENV)/.installed pyproject.toml
	@$(PIP) install -qq --no-deps --no-build-isolation --editable .
	@$(PIP) check >/dev/null || { $(PIP) check; \
	  echo "requirements-dev.lock is behind pyproject.toml: run 'make lock'" >&2; exit 1; }
	@touch $@

stale:
