# Set-up happens once, in .venv of this folder, and again when pyproject.toml or constraints.txt change.
#
#   make lab        JupyterLab on the quickstart notebook
#   make demo       the same kernel without a browser: compile, check, measure, write an HTML page
#   make test       every test but the slow ones, and the notebooks
#   make test-all   the slow ones too
#   make docs       the documentation, from docstrings and notebooks, into build/docs/index.html
#   make check      ruff, mypy and the fast tests: what to run before a commit
#   make gpu-report on a machine with a CUDA device: tests and benchmarks into one file; needs no .venv
#   make check-js   the types of the JavaScript, by TypeScript; the one target that needs Node.js
#   make clean      remove the environment and the caches
#
# PYTHON=python3.12 chooses the interpreter that .venv is made with (3.11 or later).

PYTHON ?= python3
NOTEBOOK ?= notebooks/01_quickstart.ipynb
LAB_FLAGS ?=
PYTEST_FLAGS ?=
TYPESCRIPT := 5.9.3

VENV := .venv
PY := $(VENV)/bin/python
INSTALL := $(PY) -m pip install --quiet -c constraints.txt
NBVAL := --nbval --nbval-current-env --nbval-cell-timeout 300 \
	--nbval-sanitize-with tileworkbench/nbval_sanitize.cfg
# A worker more than there are cores, as tests of the browser mostly wait; a file of tests is one worker's
# (see tests/conftest.py). Notebooks come first, as what takes long must not begin last.
WORKERS = $(shell $(PY) -c 'import os; print(min(8, os.cpu_count() + 1))' 2>/dev/null || echo 2)
PARALLEL = -n $(WORKERS) --dist=loadfile --no-loadscope-reorder --durations=10

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The notebooks' kernel is this environment's, whatever is installed for the user.
export JUPYTER_PREFER_ENV_PATH := 1
# Tests start many processes, and each would compile the package's sources again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup lab demo docs test test-all check check-js gpu-report clean

help:
	@sed -n 's/^#   \(make .*\)/\1/p' Makefile

setup: $(VENV)/.lab

# JupyterLab refuses to run as root unless told otherwise; in a container root is the usual user.
lab: $(VENV)/.lab
	@$(PY) -m tileworkbench labext >/dev/null
	$(PY) -m jupyterlab $(if $(filter 0,$(shell id -u)),--allow-root) \
		--LabApp.default_url=/lab/tree/$(NOTEBOOK) $(LAB_FLAGS)

demo: $(VENV)/.lab
	$(PY) -m tileworkbench.demo

docs: $(VENV)/.test
	$(PY) -m sphinx -q -W --keep-going -b html docs build/docs
	@echo "build/docs/index.html"

test: $(VENV)/.test
	$(PY) -m pytest $(NBVAL) $(PARALLEL) $(PYTEST_FLAGS) notebooks tests

test-all: $(VENV)/.test
	$(PY) -m pytest $(NBVAL) $(PARALLEL) -m "" $(PYTEST_FLAGS) notebooks tests

check: $(VENV)/.test
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(PY) -m pytest -q -m "not slow and not browser" $(PARALLEL) $(PYTEST_FLAGS) tests

# With the Python it is given, whose torch has CUDA: nothing is installed and no network is needed.
gpu-report:
	PYTHONPATH=. $(PYTHON) benchmarks/gpu_report.py

# For developers of views. Nothing is built: the checked files are the ones that browsers load.
check-js: $(VENV)/node/node_modules/.bin/tsc
	$< -p jsconfig.json

$(VENV)/node/node_modules/.bin/tsc: Makefile
	@command -v npm >/dev/null || { echo "make check-js needs Node.js and npm; no other target does"; exit 1; }
	npm install --silent --no-fund --no-audit --prefix $(VENV)/node typescript@$(TYPESCRIPT)
	@touch $@

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "tileworkbench needs Python 3.11 or later; choose one: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.lab: $(VENV)/.created pyproject.toml constraints.txt
	@echo "Installing tileworkbench with JupyterLab into $(VENV) (a few minutes the first time)"
	@$(INSTALL) --editable '.[lab]'
	@touch $@

$(VENV)/.test: $(VENV)/.lab
	@echo "Installing the test tools into $(VENV)"
	@$(INSTALL) --editable '.[cuda,docs,hip,lab,test]'
	@touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .ci/artefacts
	find tileworkbench tests benchmarks -name __pycache__ -prune -exec rm -rf {} +
