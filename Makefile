# Every target prepares .venv itself; an up-to-date one is left alone.

PYTHON ?= python3
BIN := .venv/bin
DEV := .venv/.stamp-dev
BENCH := .venv/.stamp-bench

export RAY_USAGE_STATS_ENABLED := 0

.DEFAULT_GOAL := help
.PHONY: help demo serve test test-slow soak soak-service check bench clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

demo: $(DEV)  ## tune a small neural network on this computer, in a minute once installed
	$(BIN)/python examples/digits/demo.py

serve: $(DEV)  ## the service with its web portal on this computer; Ctrl-C pauses its jobs
	$(BIN)/elastune serve

test: $(DEV)  ## the fast tests
	$(BIN)/pytest -m "not slow"

test-slow: $(DEV)  ## the slow tests: real machines, crashes, examples
	$(BIN)/pytest -m slow

soak: $(DEV)  ## run after run on machines that come to harm, for MINUTES (default 60)
	$(BIN)/python -m tests.chaos $(or $(MINUTES),60)

soak-service: $(DEV)  ## 1,000 jobs of 50 tenants on a service that is killed 50 times
	$(BIN)/python -m tests.service.storm

check: $(DEV)  ## lint, format, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -q tests/test_import_rules.py

bench: $(BENCH)  ## run every benchmark with --quick and print its figures as JSON
	@set -e; for file in $(filter-out benchmarks/_%,$(wildcard benchmarks/*.py)); do \
		out=$$($(BIN)/python $$file --quick) || { echo "$$out"; echo "$$file failed" >&2; exit 1; }; \
		echo "$$out" | tail -n 1; \
	done

clean:  ## remove the virtual environment, caches and what runs left behind
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage build dist runs benchmarks/out
	find . -name __pycache__ -prune -exec rm -rf {} +

# torch goes first and alone: the exact version then picks a CPU build wherever pip is offered one.
$(DEV): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -q -c constraints.txt "$$(grep '^torch==' constraints.txt)"
	@$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'
	@touch $@

$(BENCH): $(DEV)
	@$(BIN)/python -m pip install -q -c constraints.txt -e '.[bench]'
	@touch $@
