# Two commands for a fresh machine: `make demo` and `make test`. Both set up what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TEST_PROCESSES ?= 4# a good part of the tests' time is waiting for real nodes

.PHONY: venv compiled demo test tests-compiled lint bench interop chaos fuzz clean

venv: $(STAMP)

$(STAMP): pyproject.toml requirements.lock
	@command -v java >/dev/null || echo "note: Java 17 is missing: the embedded ZooKeeper and Spark need it"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

compiled: venv# before: processes start in half the time, also where Python is told to write no byte code
	$(BIN)/python -m compileall -q broker mirrormaker

demo: compiled
	$(BIN)/mirrormaker demo

test: compiled
	ops/install-kcat
	$(MAKE) --no-print-directory --jobs 2 lint tests-compiled
	$(BIN)/pytest --numprocesses $(TEST_PROCESSES) --dist worksteal

tests-compiled: venv# before, as each of the test processes would do it
	PYTHONDONTWRITEBYTECODE= $(BIN)/pytest --collect-only --quiet >/dev/null

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

bench: compiled
	$(BIN)/python -m ops.bench

interop: compiled
	$(BIN)/pytest tests/interop

chaos: compiled
	$(BIN)/pytest -m long
	$(BIN)/pytest tests/chaos

fuzz: venv
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[fuzz]'
	$(BIN)/python -m tests.fuzz
	$(BIN)/pytest -m hypothesis --hypothesis-profile=new

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .fuzz
