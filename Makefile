# Needs Python 3.11 or newer and make. Every target first installs what it uses into .venv.
PYTHON ?= python3
# Test processes. Two suit two cores; JOBS=0 runs in one process, which a debugger needs.
JOBS ?= 2
# The tests of a file stay in one process, so its fixtures are created once. BLAS threads would compete with the processes.
PYTEST = OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile
# The tiers of tests: see the markers in pyproject.toml.
COSTLY = integration or cluster or browser or docs or gpu or slow
# These start processes, draw whole pages, compare many fits, sample posteriors or enumerate at length.
NOT_QUICK = tests/executors tests/experiments tests/report tests/testing tests/test_parallel.py tests/switching/test_selection.py \
  tests/switching/test_information.py tests/mixture/bayesian/test_sampling.py tests/worlds/test_gym.py

VENV := .venv
# Windows names the folder and the programs of an environment differently; make runs there in the shell of Git.
ifeq ($(OS),Windows_NT)
BIN := $(VENV)/Scripts
EXE := .exe
else
BIN := $(VENV)/bin
EXE :=
endif
BENCHMARKS := path_sums small growth solvers fit rounding many stick_breaking gevd trials models choices agents bayesian matching drivers streaming dask_scaling scale default_features switching

.DEFAULT_GOAL := help
# Benchmarks that run at once measure each other.
.NOTPARALLEL:
.PHONY: help demo quick test test-all test-floor warm check bench results paper tables docs clean $(BENCHMARKS:%=result-%)

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.core ## fit a small built-in problem, compare initialisations, and write report/index.html
	$(BIN)/limiirl demo

quick: $(VENV)/.dev ## run the unit tests
	HYPOTHESIS_PROFILE=quick $(PYTEST) -m "not ($(COSTLY) or property)" $(NOT_QUICK:%=--ignore=%)

test: $(VENV)/.dev warm ## run the unit, property and parity tests, and one smoke test per integration family
	HYPOTHESIS_PROFILE=test $(PYTEST) -m "smoke or not ($(COSTLY))"

test-all: $(VENV)/.dev warm ## run every test
	$(PYTEST)

# uv resolves every dependency in pyproject.toml to the lowest version that it permits. Their own dependencies are the latest ones,
# whose deprecated functions the old releases call.
test-floor: | $(BIN)/python$(EXE) ## run the tests of `make test` with the lowest supported dependencies, in .venv-floor
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/python -m uv venv --quiet --allow-existing --seed --python $(BIN)/python$(EXE) .venv-floor
	$(BIN)/python -m uv pip install --quiet --python .venv-floor --resolution lowest-direct --editable '.[dev]'
	@touch .venv-floor/.core .venv-floor/.dev
	PYTEST_ADDOPTS="-W ignore::DeprecationWarning" $(MAKE) test VENV=.venv-floor

warm: $(VENV)/.dev # compile the kernels once, before the test processes start
	$(BIN)/python -m tests.warm

check: $(VENV)/.dev ## run linters, type checks, layer and language checks, and doctests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tools/check_language.py
	$(PYTEST) --doctest-modules src

bench: $(VENV)/.dev ## run the benchmarks
	set -e; for name in $(BENCHMARKS); do $(BIN)/python -m benchmarks.$$name; done

results: $(BENCHMARKS:%=result-%) ## rewrite docs/results with the output of the benchmarks

# The output is renamed at the end, so a failed run keeps the last complete result.
$(BENCHMARKS:%=result-%): SHELL := bash
$(BENCHMARKS:%=result-%): .SHELLFLAGS := -eu -o pipefail -c
$(BENCHMARKS:%=result-%): result-%: $(VENV)/.dev
	@mkdir -p docs/results
	$(BIN)/python -m benchmarks.$* | tee docs/results/$*.txt.part
	@mv docs/results/$*.txt.part docs/results/$*.txt

paper: $(VENV)/.core ## run the experiments of the paper and copy figures and tables to docs/results/paper
	$(BIN)/limiirl reproduce all --out run
	rm -rf docs/results/paper/figures docs/results/paper/tables && mkdir -p docs/results/paper/figures docs/results/paper/tables
	cp run/report/figures/*.svg run/report/figures/*.csv docs/results/paper/figures/
	cp run/report/tables/* docs/results/paper/tables/

tables: results paper ## rewrite all tables of the documentation and print which changed
	$(BIN)/python tools/compare_results.py

docs: $(VENV)/.docs ## build the documentation as HTML in docs/_build
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

clean: ## remove everything that make created, including .venv
	rm -rf $(VENV) .venv-floor build dist report run docs/_build docs/api .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python$(EXE):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "limiirl needs Python 3.11 or newer, and '$(PYTHON)' is not (`$(PYTHON) --version 2>&1`)."; \
	  echo "Name another interpreter, for example: make $(or $(MAKECMDGOALS),demo) PYTHON=python3.12"; exit 1; } >&2
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "Python could not create a virtual environment; its venv module may be a package of its own." >&2; exit 1; }

# Each stamp is newer than the metadata from which its environment was installed.
METADATA := pyproject.toml src/limiirl/_version.py

$(VENV)/.core: $(METADATA) | $(BIN)/python$(EXE)
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.dev: $(METADATA) | $(BIN)/python$(EXE)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@ $(VENV)/.core

$(VENV)/.docs: $(METADATA) | $(BIN)/python$(EXE)
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	@touch $@ $(VENV)/.core
