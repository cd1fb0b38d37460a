# Everything runs in an environment of its own. `make help` lists the targets.
# PYTHON=... chooses the interpreter, VENV=... the folder of the environment.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV ?= .venv
BIN := $(VENV)/bin
SANITIZE := build/sanitize
SANITIZED_TESTS ?= $(wildcard tests/test_tree.py tests/test_kernels.py tests/test_node_problems.py \
  tests/test_sessions.py tests/test_tao.py \
  tests/test_graph.py tests/test_neighbours.py tests/test_labels.py tests/test_label_totals.py \
  tests/test_kernel_growth.py tests/test_kernel_splits.py \
  tests/test_membership.py tests/test_cuts.py tests/test_energies.py)

# What the compiled core is made from. Python sources are used in place and need no build.
CORE := CMakeLists.txt pyproject.toml $(wildcard cpp/*)
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check
BUILD_SETTINGS ?=
BUILD = $(INSTALL) --no-build-isolation $(BUILD_SETTINGS) --editable

.PHONY: help demo test check format sanitize wheel bench clean

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 12

demo: $(VENV)/.demo  ## one tree from 40 labels with and without unlabelled rows; its rules, its picture
	@$(BIN)/python examples/demo.py

test: $(VENV)/.dev  ## run the tests and report coverage; ARGS="-k name" for some of them
	@$(BIN)/python -m pytest --cov --cov-report=term $(ARGS)

check: $(VENV)/.dev  ## lint, formatting, types
	@failed=0; \
	run() { echo "$$*"; "$$@" || failed=1; }; \
	cd "$(CURDIR)"; \
	run $(BIN)/ruff check .; \
	run $(BIN)/ruff format --check .; \
	run $(BIN)/clang-format --dry-run -Werror cpp/*.hpp cpp/*.cpp; \
	run $(BIN)/mypy; \
	exit $$failed

format: $(VENV)/.dev  ## format all sources
	@$(BIN)/ruff check --fix --exit-zero --quiet .
	@$(BIN)/ruff format .
	@$(BIN)/clang-format -i cpp/*.hpp cpp/*.cpp

# The sanitizers' libraries must come before the interpreter's; the leaks are Python's own.
sanitize:  ## run the tests of the compiled core under the address and undefined sanitizers
	@$(MAKE) --no-print-directory $(SANITIZE)/.test VENV=$(SANITIZE) BUILD_SETTINGS="\
	  --config-settings=cmake.define.SILVA_SANITIZE=ON --config-settings=build-dir=$(SANITIZE)/cmake"
	@LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
	  ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
	  $(SANITIZE)/bin/python -m pytest -p no:cacheprovider --capture=sys $(ARGS) $(SANITIZED_TESTS)

wheel: $(VENV)/.dev  ## build a wheel in isolation into dist/
	@$(BIN)/python -m build --wheel

bench: $(VENV)/.bench  ## run one table of the benchmarks; NAME=... chooses it, without one they are listed
	@$(BIN)/python -m benchmarks $(NAME) $(ARGS)

clean:  ## remove the environment and everything built
	rm -rf $(VENV) build dist .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis silva_demo.*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# ---- the environment ----------------------------------------------------------------------------

$(BIN)/python:
	@for python in $(PYTHON) python3.11 python3 python3.12 python3.13 python3.14; do \
	  if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "setting up $(VENV) with $$($$python --version)"; \
	    exec $$python -m venv $(VENV); \
	  fi; \
	done; \
	echo "Python 3.11 or later is needed; PYTHON=... says where it is" >&2; exit 1

# Build requirements stay in the environment, so that a rebuild compiles only what has changed.
# scikit-build-core asks for CMake and Ninja where the machine has none.
$(VENV)/.tools: pyproject.toml | $(BIN)/python
	@$(BIN)/python -c 'import tomllib; \
	  print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
	  > $(VENV)/requirements.txt
	@$(INSTALL) --requirement $(VENV)/requirements.txt
	@$(BIN)/python -c 'from scikit_build_core.build import get_requires_for_build_editable as needs; \
	  print(*needs(), sep="\n")' > $(VENV)/requirements.txt
	@$(INSTALL) --requirement $(VENV)/requirements.txt
	@touch $@

$(VENV)/.demo: $(VENV)/.tools $(CORE)
	@echo "building silva in $(VENV)"
	@$(BUILD) '.[plot]'
	@touch $@

$(VENV)/.test: $(VENV)/.tools $(CORE)
	@echo "building silva in $(VENV), with the test tools"
	@$(BUILD) '.[test]'
	@touch $@

$(VENV)/.dev: $(VENV)/.tools $(CORE)
	@echo "building silva in $(VENV), with the development tools"
	@$(BUILD) '.[dev]'
	@touch $@ $(VENV)/.demo $(VENV)/.test

$(VENV)/.bench: $(VENV)/.tools $(CORE)
	@echo "building silva in $(VENV), with the peers of the benchmarks"
	@$(BUILD) '.[bench]'
	@touch $@ $(VENV)/.demo $(VENV)/.test
