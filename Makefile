# Everything a developer does here. `make demo` and `make test` need Python 3.11 or newer, g++ and make, nothing else.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
PEERS := .venv-peers
ORACLES := .venv-oracles
BIN := $(VENV)/bin
# Python compiles what it imports, and that is a sixth of what is installed.
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
STRICT ?= OFF
unexport PYTHONDONTWRITEBYTECODE  # tests start many processes: each would compile every module anew
PROJECT := import tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))
SOURCES := pyproject.toml constraints.txt CMakeLists.txt $(wildcard csrc/core/*/*) $(wildcard csrc/bind/*)

.PHONY: help demo test services check format lint types layers stub native strict san fuzz coverage docs bench oracles build clean

help:  ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

demo: $(VENV)/demo.stamp  ## Train a small model on the standard library's own text: the whole flow, in under a minute
	$(BIN)/millstream demo

test:  ## Run all tests, the native ones too
	$(MAKE) --no-print-directory -j2 $(VENV)/dev.stamp services native  # pip installs on one core
	$(BIN)/python -m pytest -q -n 3 --dist worksteal  # the third works while others wait for a disk, a clock or a child

check: lint types layers test strict san docs  ## Everything that CI runs

services:  ## Fetch the servers that tests talk to (Redis, unpacked into build/), where they are missing
	@tests/feeds/get_redis.sh build/services

lint: $(VENV)/dev.stamp  ## Look for mistakes and unformatted code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev.stamp  ## Check types, strictly
	$(BIN)/mypy

layers: $(VENV)/dev.stamp  ## Check that imports point upstream only
	$(BIN)/lint-imports

format: $(VENV)/dev.stamp  ## Format and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

stub: $(VENV)/dev.stamp  ## Write the stubs anew: of the native module, and of the door of every folder
	$(BIN)/python -m nanobind.stubgen -q -m millstream._core -o src/millstream/_core.pyi
	$(BIN)/python tests/door_stubs.py

native: $(VENV)/tools.stamp  ## Build and run the C++ tests, under the address and undefined behaviour sanitizers
	$(call native,address)

san: $(VENV)/tools.stamp  ## The C++ tests that use threads, under the thread sanitizer
	$(call native,thread)

strict: $(VENV)/dev.stamp  ## Build the whole module with every warning as an error
	$(BIN)/pip wheel --quiet --no-deps --no-build-isolation -w build/strict -Ccmake.define.MILLSTREAM_STRICT=ON .

define native
	@mkdir -p build
	@PATH="$(CURDIR)/$(BIN):$$PATH" cmake -S . -B build/tests -DMILLSTREAM_TESTS=ON -DMILLSTREAM_STRICT=ON \
	  > build/tests.log 2>&1 || { cat build/tests.log; exit 1; }
	@MAKEFLAGS= PATH="$(CURDIR)/$(BIN):$$PATH" cmake --build build/tests --target $(1) --parallel 2 -- --quiet
	@PATH="$(CURDIR)/$(BIN):$$PATH" ctest --test-dir build/tests -L $(1) --output-on-failure --parallel 2 --timeout 300
endef

fuzz: $(VENV)/dev.stamp services  ## Search longer for inputs that break something: laws, parsers, parts and recipes
	MILLSTREAM_FUZZ=1 $(BIN)/python -m pytest -q -n 2 tests --hypothesis-profile=fuzz

coverage: $(VENV)/dev.stamp services  ## Which lines and branches the tests reach
	$(BIN)/python -m pytest -q -n 2 --cov --cov-report=term-missing:skip-covered --cov-report=html

docs: $(VENV)/docs.stamp  ## Build the guide and the API reference into site/; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(PEERS)/stamp  ## Compare with the machine's limit and with other loaders, in one run (half an hour)
	$(PEERS)/bin/python benchmarks/run.py
	$(PEERS)/bin/python benchmarks/order.py
	$(PEERS)/bin/python benchmarks/jsonl.py
	$(PEERS)/bin/python benchmarks/engine.py
	$(PEERS)/bin/python benchmarks/raw_stream.py

oracles: $(ORACLES)/stamp  ## Compare with what other libraries themselves say (installs them)
	MILLSTREAM_ORACLES=1 $(ORACLES)/bin/python -m pytest -q -m oracle tests/oracles -W 'ignore::UserWarning' -W 'ignore::DeprecationWarning'
	MILLSTREAM_ORACLES=1 $(ORACLES)/bin/python -m pytest -q -m '' tests/games/test_rescore_tables.py tests/games/test_rescore_mates.py  # with the real endgame tables

build: $(VENV)/dev.stamp  ## Build a wheel into dist/
	$(BIN)/pip wheel --no-deps -w dist .

clean:  ## Remove everything that was built
	rm -rf $(VENV) build dist site htmlcov .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo.stamp: $(SOURCES) | $(VENV)/bin/python
	@echo "Installing Millstream into $(VENV) (once)"
	$(PIP) -e '.[demo]'
	@touch $@

$(VENV)/tools.stamp: pyproject.toml | $(VENV)/bin/python
	@command -v cmake > /dev/null || $(PIP) cmake ninja
	@$(BIN)/python -c "$(PROJECT); print(*project['build-system']['requires'])" | xargs $(PIP)
	@touch $@

$(VENV)/dev.stamp: $(SOURCES) $(VENV)/tools.stamp
	@echo "Installing Millstream and its test tools into $(VENV) (once)"
	$(PIP) --no-build-isolation --no-deps -e . -Ccmake.define.MILLSTREAM_STRICT=$(STRICT)
	$(PIP) 'millstream[dev]'
	@mkdir -p build && touch $@

$(ORACLES)/stamp: $(SOURCES)
	$(PYTHON) -m venv $(ORACLES)
	$(ORACLES)/bin/pip install --quiet -c constraints.txt -e '.[oracles]'
	$(ORACLES)/bin/pip install --quiet --no-deps trl==1.16.0 accelerate==1.15.0 axolotl==0.19.0 fschat==0.2.36  # their templates and collators
	$(ORACLES)/bin/pip install --quiet --no-deps verl==0.9.1 torchrl==0.14.1 tensordict==0.14.3 pyvers==0.2.3 cloudpickle==3.1.2 \
	  omegaconf==2.4.0 codetiming==1.4.0 orjson==3.13.0  # their estimators, and what importing them needs
	@touch $@

$(PEERS)/stamp: $(SOURCES) benchmarks/requirements-peers.txt benchmarks/requirements-peers-bare.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/pip install --quiet -c benchmarks/constraints.txt -r benchmarks/requirements-peers.txt
	$(PEERS)/bin/pip install --quiet -c benchmarks/constraints.txt --no-deps -r benchmarks/requirements-peers-bare.txt
	$(PEERS)/bin/pip install --quiet -c benchmarks/constraints.txt --no-build-isolation -e .
	@touch $@

$(VENV)/docs.stamp: $(VENV)/dev.stamp
	$(PIP) 'millstream[docs]'
	@touch $@
