# Everything a newcomer or CI needs. `make help` lists it.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Test processes: four by default. The smallest machine we promise to work on has two cores, and tests also wait.
JOBS ?= 4
# Which tests `test-system` and `test-buckets` run: all by default, or folders, as in `make test-system TESTS=tests/store`.
TESTS ?=

# Where this is set, each of the hundreds of processes that tests start would compile all of Pulse anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup lock demo test test-fast test-system test-buckets test-user test-long chaos verify check format proto bench clean

help: ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## Make the virtual environment with pinned packages (the others do this by themselves)

# Every package is named with its version and the sums of its files, so that what is installed is what was tested.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
INSTALL_PULSE := $(INSTALL) --no-deps --no-build-isolation --editable .

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Pulse needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(READY): pyproject.toml requirements/development.txt | $(BIN)/python
	@echo "Setting up $(VENV) (once; about a minute)…"
	@$(INSTALL) --require-hashes --requirement requirements/development.txt
	@$(INSTALL_PULSE)
	@touch $@ $(VENV)/.demo

$(VENV)/.demo: pyproject.toml requirements/demo.txt | $(BIN)/python
	@echo "Setting up $(VENV) (once; half a minute)…"
	@$(INSTALL) --no-compile --require-hashes --requirement requirements/demo.txt
	@$(INSTALL_PULSE)
	@touch $@

lock: $(BIN)/python ## Choose the versions of all packages anew, and write them to requirements/ with their sums
	@$(BIN)/python -m pip install --quiet uv
	@$(BIN)/python -m tools.lock

demo: $(VENV)/.demo ## Start a Postgres, submit a few thousand jobs, watch them drain
	@$(BIN)/pulse demo

test: $(READY) ## Run every test on the embedded Postgres
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

test-fast: $(READY) ## Run the tests that take no more than a moment each
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m 'not slow'

test-system: $(READY) ## Run every test on the newest Postgres installed on this machine
	@PULSE_POSTGRES=system $(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(TESTS)

test-buckets: $(READY) ## Run every test with sixteen buckets instead of one
	@PULSE_BUCKETS=16 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(TESTS)

test-user: $(READY) ## Run the fast tests as an ordinary user, where you are root
	@$(BIN)/python -m tools.ordinary_user -m pytest -p no:cacheprovider -n $(JOBS) --dist worksteal -m 'not slow'

test-long: $(READY) ## Run what takes too long for every change: idle costs, orders of three, tries at random (about ten minutes)
	@PULSE_TRIPLES=1000000 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m 'long and not chaos'
	@PULSE_TRIPLES=1000000 $(BIN)/python -m pytest tests/unit/test_cron.py tests/unit/test_timetable.py

chaos: $(READY) ## Kill, stop and cut off workers and schedulers by the hundred, and count what is lost (about twenty-five minutes)
	@$(BIN)/python -m pytest -m chaos tests/chaos

verify: $(READY) ## Run everything there is, and end with one table (about an hour and a half)
	@$(BIN)/python -m tools.verify

check: $(READY) ## Format, lint, types, imports, generated code
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python -m tools.proto --check

format: $(READY) ## Put the code into the house format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

proto: $(READY) ## Generate src/pulse/wire/v1 from proto/
	@$(BIN)/python -m tools.proto

bench: $(READY) ## Measure the engine against bare SQL, side by side
	@$(BIN)/python -m benchmarks

clean: ## Remove the virtual environment and caches (not your data in .pulse)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
