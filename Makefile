# make demo | make test | make lint | make types | make clean
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# small operations on few cores: more threads, or threads that wait in a busy loop, only slow each other down
QUIET := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE

.PHONY: demo test lint types clean
.DELETE_ON_ERROR:

demo: $(VENV)/.sim
	$(BIN)/python scripts/demo.py

test: $(VENV)/.dev
	$(BIN)/ruff check .
	$(QUIET) $(BIN)/python -m pytest -m "not slow"

lint: $(VENV)/.dev
	$(BIN)/ruff check .

types: $(VENV)/.dev
	$(BIN)/mypy

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "mmrl needs Python 3.11 or newer, $(PYTHON) is $$($(PYTHON) --version 2>&1); name one: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV); echo "python -m venv failed; on Debian and Ubuntu: apt install python3-venv"; exit 1; }

# the stamps keep a second call from installing again; a changed pyproject.toml does install again
$(VENV)/.sim: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[sim]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[sim,dev]'
	@touch $@ $(VENV)/.sim
