# `make demo` and `make test` each set up what they need: nothing has to be installed before.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# The newest torch the tests run on. Any torch from 2.4 on works; a CPU build is enough.
TORCH ?= torch==2.13.0
JOBS ?= 2

export OMP_NUM_THREADS ?= 1

.PHONY: setup demo test check bench docs clean

setup: $(READY)

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet "$(TORCH)"
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $(READY)

demo: setup
	$(BIN)/torchmedic demo

# Tests kill, starve and time real processes: one that failed on a busy machine gets another try.
test: setup
	$(BIN)/python -m pytest -n $(JOBS) --reruns 2

# What a contributor runs before each commit: lint and layout, types, the quick tests, start-up.
check: setup
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n $(JOBS) -m "not slow"
	$(BIN)/python benchmarks/startup.py --check

bench: setup
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/overhead.py

docs: setup
	$(BIN)/python -m torchmedic.rulepages docs/rules

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache dist
