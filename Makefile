# One command each; the first call makes a virtual environment of its own.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BENCH_STAMP := $(VENV)/.installed-bench
# A peer of the gateway, which wants other versions of what the tests use.
LITELLM := .venv-litellm
LITELLM_STAMP := $(LITELLM)/.installed
# The SDKs of the providers, as old and as new as the transports are tested with, and frameworks on them.
SDK_STAMPS := $(patsubst tests/transport/sdks-%.txt,.venv-sdks-%/.installed,$(wildcard tests/transport/sdks-*.txt))

.PHONY: help demo test test-real check bench soak clean format reference
.DEFAULT_GOAL := help

help:  ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

$(BENCH_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	touch $@

$(LITELLM_STAMP):
	$(PYTHON) -m venv $(LITELLM)
	$(LITELLM)/bin/python -m pip install --quiet --disable-pip-version-check 'litellm[proxy]==1.106.2'
	touch $@

.venv-sdks-%/.installed: tests/transport/sdks-%.txt pyproject.toml
	$(PYTHON) -m venv .venv-sdks-$*
	.venv-sdks-$*/bin/python -m pip install --quiet --disable-pip-version-check --upgrade --editable '.[llm]' --requirement $<
	touch $@

demo: $(STAMP)  ## eight agents share three slots, one of them is killed
	$(BIN)/headway demo

test: $(STAMP) $(SDK_STAMPS)  ## all tests
	HEADWAY_REQUIRE_SDKS=1 $(BIN)/python -m pytest -m 'not soak and not real' -n 2 --dist worksteal

test-real: $(STAMP)  ## real agents (opencode, claude, codex, gemini) on a model server of ours; needs npm
	HEADWAY_REQUIRE_REAL=1 $(BIN)/python -m tests.real.install
	HEADWAY_REQUIRE_REAL=1 $(BIN)/python -m pytest -m 'real and not soak' -n 2 --dist worksteal --timeout 300

soak: $(STAMP)  ## the long ones
	$(BIN)/python -m pytest -m soak --timeout 1800

check: $(BENCH_STAMP)  ## ruff, mypy strict, import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

reference: $(STAMP)  ## docs/reference.md, from the help texts
	$(BIN)/python docs/make_reference.py

format: $(BENCH_STAMP)  ## let ruff format and fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(BENCH_STAMP) $(LITELLM_STAMP)  ## measured figures beside the peers
	$(BIN)/python -m bench

clean:  ## remove what was made here
	rm -rf $(VENV) .venv-sdks-* $(LITELLM) .mypy_cache .pytest_cache .ruff_cache .hypothesis dist
