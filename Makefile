# Every target makes what it needs: ./.venv is created from the lock files with any
# python3 (3.11 or newer, with venv). Choose another interpreter with PYTHON=...

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup spark demo test check fuzz bench format lock clean begin-again

PYTHON ?= python3
JOBS ?= 2
BIN := .venv/bin

# The environment is made again from nothing when it was left unfinished, lost its
# interpreter, or was copied here from another folder (its scripts hold absolute paths).
SOUND := $(shell scripts/environment sound && echo yes)

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

setup: .venv/.base ## Make ./.venv with everything but Spark

spark: .venv/.spark ## Add Spark, and a Java for it, to ./.venv

demo: .venv/.spark ## Run the main job, end to end, in process and on Spark
	$(BIN)/peersub demo

test: .venv/.spark ## Run all tests (ARGS="-k name" to choose, JOBS=0 for one at a time)
	$(BIN)/python -m pytest -n $(JOBS) $(ARGS)

check: .venv/.base ## Check format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --strict src

fuzz: .venv/.base ## Run 1,000 drawn simulations (ARGS="--first 30000 --overlay chord")
	$(BIN)/python -m peersub.simulator.fuzz --first 20000 --seeds 1000 $(ARGS)

bench: .venv/.base ## Measure the matcher against its baselines
	$(BIN)/peersub bench matching $(ARGS)

format: .venv/.base ## Format the code and apply safe lint fixes
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

lock: ## Write the lock files again (ARGS=--upgrade for newer versions)
	$(PYTHON) scripts/lock.py $(ARGS)

clean: ## Remove ./.venv and caches
	rm -rf .venv .hypothesis .mypy_cache .pytest_cache .ruff_cache dist
	find src tests -type d -name __pycache__ -prune -exec rm -rf {} +

.venv/.base: requirements/lock.txt pyproject.toml scripts/environment $(if $(SOUND),,begin-again)
	PYTHON="$(PYTHON)" scripts/environment base

.venv/.spark: requirements/spark.txt .venv/.base
	scripts/environment spark

begin-again:
