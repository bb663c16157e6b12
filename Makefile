# make demo: the main job on this machine; make test: ruff, mypy, pytest. Both make .venv themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint test-gpu bench-memory bench-plan claims clean

$(STAMP): pyproject.toml constraints.txt scripts/make_venv.sh
	PYTHON="$(PYTHON)" bash scripts/make_venv.sh $(VENV)
	touch $@

demo: $(STAMP)
	bash scripts/demo.sh $(BIN)

test: $(STAMP) lint
	$(BIN)/python -m pytest

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test-gpu: $(STAMP)
	$(BIN)/python -m pytest -m gpu

# Predicted against measured memory, on the recorded measurements (about ten minutes the first time).
bench-memory: $(STAMP)
	$(BIN)/python -m benchmarks.memory --workers 2

# How long a first estimate and plans of whole spaces take.
bench-plan: $(STAMP)
	$(BIN)/python -m benchmarks.planning

# Memory claims that people repeat, predicted: docs/claims.md.
claims: $(STAMP)
	$(BIN)/python -m benchmarks.claims

clean:
	rm -rf $(VENV) out
