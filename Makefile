PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Twice the cores: tests of clusters spend half of their time waiting for processes to start.
PARALLEL := -n $(shell $(PYTHON) -c 'import os; print(min(4, 2 * len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 4))') --dist loadgroup

.PHONY: setup demo test quick slow torture check docs bench clean

# Of make torture; the same seed does the same.
MINUTES ?= 30
SEED ?= 1

# Of make bench: a part, and options, as in BENCH='populations --full'.
BENCH ?=

setup: $(READY)

$(READY): pyproject.toml constraints.txt tests/plugin/pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev]' -e tests/plugin
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --ignore-requires-python mlagents-envs==1.1.0 \
		|| echo 'mlagents-envs cannot be installed here: the tests of Unity will be skipped'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -c constraints.txt mo-gymnasium \
		|| echo 'mo-gymnasium cannot be installed here: its test will be skipped'
	touch $@

demo: $(READY)
	rm -rf runs/demo
	$(BIN)/baldwin train cartpole --out runs/demo
	$(BIN)/baldwin evaluate runs/demo
	$(BIN)/baldwin render runs/demo --video runs/demo/cartpole.mp4
	@echo "curve: runs/demo/curve.png   video: runs/demo/cartpole.mp4"

test: $(READY)
	$(BIN)/python -m pytest $(PARALLEL) --durations 10

# Maths, config, and the contracts on toys, without worker processes: for a first answer while coding.
quick: $(READY)
	$(BIN)/python -m pytest -n auto --dist loadgroup tests/ops tests/config tests/strategies tests/networks tests/replay tests/contracts \
		-k 'not ray and not process and not learns_a_toy and not every_field_is_read'

slow: $(READY)
	$(BIN)/python -m pytest -m slow --timeout=0

torture: $(READY)
	$(BIN)/python -m tests.torture --minutes $(MINUTES) --seed $(SEED)

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell baldwin tests benchmarks examples docs README.md CHANGELOG.md CONTRIBUTING.md

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "docs: site/index.html"

bench: $(READY)
	$(BIN)/python -m benchmarks.all $(BENCH)

clean:
	rm -rf $(VENV) runs build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
