# make demo: the main job on this machine; make test: ruff, mypy, pytest. Both make .venv themselves.
PYTHON ?= python3
# Test files that run at a time.
JOBS ?= 2
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint check-report check-exports test-gpu bench-memory bench-one-build bench-plan bench-search \
	bench-reuse claims clean

$(STAMP): pyproject.toml constraints.txt scripts/make_venv.sh
	PYTHON="$(PYTHON)" bash scripts/make_venv.sh $(VENV)
	touch $@

demo: $(STAMP)
	bash scripts/demo.sh $(BIN)

test: $(STAMP) lint
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test-gpu: $(STAMP)
	$(BIN)/python -m pytest -m gpu

# The report's page in headless Chromium (apt-get install chromium); make test skips that where there is none.
check-report: $(STAMP)
	REQUIRE_CHROMIUM=1 $(BIN)/python -m pytest tests/report

# Predicted against measured memory, on the recorded measurements (about ten minutes the first time).
bench-memory: $(STAMP)
	$(BIN)/python -m benchmarks.memory --workers 2

# The same points on one live engine and in fresh processes (some minutes; on a GPU with --device cuda).
bench-one-build: $(STAMP)
	$(BIN)/python -m benchmarks.one_build --seconds 600 --output /dev/null

# How long a first estimate and plans of whole spaces take.
bench-plan: $(STAMP)
	$(BIN)/python -m benchmarks.planning

# Every sampler replayed on the recorded tables (about half an hour).
bench-search: $(STAMP)
	$(BIN)/python -m benchmarks.search

# Trials with a head start from other studies and without, on recorded tables: of the default sampler, and of
# one that knows nothing by itself (about ten minutes).
bench-reuse: $(STAMP)
	$(BIN)/python -m benchmarks.reuse
	$(BIN)/python -m benchmarks.reuse --sampler random --output benchmarks/results/reuse_random.md

# Memory claims that people repeat, predicted: docs/claims.md.
claims: $(STAMP)
	$(BIN)/python -m benchmarks.claims

# The exported files in the trainers themselves, two steps each on the CPU: benchmarks/results/exports.md.
check-exports: $(STAMP)
	PYTHON="$(PYTHON)" bash benchmarks/exports/environments.sh .venvs-exports
	$(BIN)/python -m benchmarks.exports

clean:
	rm -rf $(VENV) .venvs-exports out
