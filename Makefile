# Each target makes its own .venv first, from the locked dependencies: a fresh machine needs make and Python 3.11+ (or
# uv) and nothing else. ARGS goes through to the program: make test ARGS='-k replay', make demo ARGS='--kills 20'.

.DEFAULT_GOAL := help
.PHONY: help demo test check format bench prove docs lock clean

VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LOCK := requirements/dev.txt
ARGS ?=
PEERS ?=
STORE ?= sqlite

# Tests start thousands of processes, which would each compile all that they import.
unexport PYTHONDONTWRITEBYTECODE

# The first of these that runs and is new enough (a version manager's shim may exist and not run).
PYTHON ?= $(firstword $(foreach python,python3 python python3.14 python3.13 python3.12 python3.11,\
	$(shell $(python) -c 'import sys; sys.version_info >= (3, 11) and print("$(python)")' 2>/dev/null)))

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(STAMP)  ## 830 real orders, worker processes killed at random, ledger reconciled with the outside world
	@$(BIN)/python -m examples.orders.demo --store $(STORE) $(ARGS)

test: $(STAMP)  ## all tests
	$(BIN)/pytest -n auto --dist worksteal $(ARGS)

check: $(STAMP)  ## format, lint, types, arrows between packages
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)  ## mend format and lint where a tool can
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

bench: $(STAMP)  ## the workloads of benchmarks/, with table, plot and JSON; PEERS=1: other engines beside it
	$(BIN)/python -m benchmarks$(if $(PEERS),.peers,$(if $(filter-out sqlite,$(STORE)), --store $(STORE))) $(ARGS)

prove: $(STAMP)  ## try to break every promise: seeds, planted bugs, models, interpreters (docs/proof.md)
	$(BIN)/python -m proof $(ARGS)

docs: $(STAMP)  ## docs/ to HTML in build/docs; broken links and examples that fail are errors
	$(BIN)/pytest tests/docs $(ARGS)
	$(BIN)/zensical build --strict --clean

lock:  ## choose the dependencies' versions anew (needs uv)
	uv pip compile --quiet --universal --upgrade --generate-hashes --group dev \
		--custom-compile-command 'make lock' --output-file $(LOCK) pyproject.toml

clean:  ## remove what the other targets made
	rm -rf $(VENV) build dist .cache .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

# One lock for both installers. The project's own build runs without network: its build back end is in the lock.
$(STAMP): $(LOCK) pyproject.toml
ifneq ($(shell command -v uv),)
	uv venv --quiet --allow-existing --python '>=3.11' $(VENV)
	uv pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r $(LOCK)
	uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
else
	@test -n '$(PYTHON)' || { echo 'No Python 3.11 or newer found. Install one, or uv: https://docs.astral.sh/uv/'; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(LOCK)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
endif
	@touch $@
