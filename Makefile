# Two commands set everything up on a machine with Python 3.11+, pip and make:
#   make demo    runs the main job on the embedded engine
#   make test    passes the tests
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Most tests wait for processes and containers more than they compute: four at once suit two cores, too.
JOBS   ?= 4
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist worksteal

.PHONY: demo test test-full test-vllm check bench clean

demo: $(VENV)/.demo
	$(BIN)/lanectl demo

test: check
	$(PYTEST) -m "not slow"

# Larger counts, every engine, everything marked slow.
test-full: check
	LANECTL_TEST_FULL=1 $(PYTEST)

# A real vLLM for the CPU, swapped in and out on the real container engine. Installs about 3.5 GB the first time.
test-vllm: $(VENV)/.test
	$(BIN)/python -m tests.vllm.run

check: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.demo
	for bench in dark_time guard_latency readiness reference_engine startup watchdog_trip; do $(BIN)/python benches/$$bench.py || exit 1; done

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "lanectl needs Python 3.11 or newer; name one with: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV); echo "$(PYTHON) cannot make a virtual environment; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }

$(VENV)/.demo: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt -e '.[demo]'
	@touch $@

$(VENV)/.test: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt -e '.[test]'
	@touch $@ $(VENV)/.demo

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist build
