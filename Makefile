# What each target does is in scripts/; this file only names it. `make help` lists the targets.
.DEFAULT_GOAL := help
.PHONY: help setup run test check format bench sim kills lock clean

help:  ## what can be made
	@sed -n 's/^\([a-z]*\):.*##/\1\t/p' $(MAKEFILE_LIST)

setup:  ## .venv with everything run, test and bench need
	@sh scripts/setup.sh all

run:  ## set up, then serve a small real model here (ARGS="--sim", ARGS="--model PATH.gguf")
	@sh scripts/setup.sh run && exec .venv/bin/llmgw up $(ARGS)

test:  ## set up, check, and every test (ARGS="tests/core -k slug")
	@sh scripts/test.sh $(ARGS)

check:  ## format, lint, types, import contracts, tidy
	@sh scripts/setup.sh all && sh scripts/check.sh

format:  ## rewrite the code in the one format
	@sh scripts/setup.sh all && .venv/bin/ruff format . && .venv/bin/ruff check --fix --quiet .

bench:  ## measure (ARGS="gateway --quick --json"); without ARGS all of it
	@sh scripts/setup.sh all && sh scripts/bench.sh $(ARGS)

sim:  ## many seeds of the simulated cluster (ARGS="--seeds 2000", ARGS="--mutant NAME")
	@sh scripts/setup.sh all && .venv/bin/llmgw sim $(ARGS)

kills:  ## kill -9 every process in every phase, and look (ARGS="--rounds 20 --seed 7 --report FILE")
	@sh scripts/setup.sh all && .venv/bin/python -m tests.e2e.random_kills $(ARGS)

lock:  ## resolve requirements/ again (ARGS=--upgrade takes newer releases)
	@sh scripts/lock.sh $(ARGS)

clean:  ## remove .venv and what tools left behind
	@rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
