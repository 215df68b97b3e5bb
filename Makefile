# Everything is installed into $(VENV) and nowhere else; needs one Python from 3.11 to 3.13.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: help demo test test-fast check notebooks notebooks-check clean
.DELETE_ON_ERROR:

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/installed  ## install, then check the example kernels; some are wrong on purpose
	$(BIN)/asyncops lint tests/eval --exit-zero

test: $(VENV)/installed-test  ## install, then run the tests
	$(BIN)/python -m pytest $(PYTEST_ARGS)

test-fast: $(VENV)/installed-test  ## the tests that take little, on all cores: for every save
	$(BIN)/python -m pytest -q -n auto -m 'not slow and not tpu_compile' $(PYTEST_ARGS)

check: $(VENV)/installed-dev  ## lint, formatting and types of this repository
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

notebooks: $(VENV)/installed-test  ## run the notebooks' twins and store their outputs; NOTEBOOKS="01 02" for some
	$(BIN)/python notebooks/build.py $(NOTEBOOKS)

notebooks-check: $(VENV)/installed-test  ## run the notebooks, and see that the stored ones are those of their twins
	$(BIN)/python notebooks/build.py --check $(NOTEBOOKS)

clean:  ## remove the environment
	rm -rf $(VENV)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(None if (3, 11) <= sys.version_info < (3, 14) else "make: Python 3.11 to 3.13 \
	is needed, $(PYTHON) is %d.%d: say make PYTHON=python3.12 ..." % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/installed-test: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	@touch $@ $(VENV)/installed

$(VENV)/installed-dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@ $(VENV)/installed $(VENV)/installed-test
