PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: setup demo test check bench slow clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	touch $@

demo: $(READY)
	rm -rf runs/demo
	$(BIN)/baldwin train cartpole --out runs/demo
	$(BIN)/baldwin evaluate runs/demo
	$(BIN)/baldwin render runs/demo --video runs/demo/cartpole.mp4
	@echo "curve: runs/demo/curve.png   video: runs/demo/cartpole.mp4"

test: $(READY)
	$(BIN)/python -m pytest

slow: $(READY)
	$(BIN)/python -m pytest -m slow --timeout=0

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell baldwin tests benchmarks examples docs README.md CHANGELOG.md

bench: $(READY)
	$(BIN)/python -m benchmarks.all

clean:
	rm -rf $(VENV) runs build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
