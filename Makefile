# Every target works alone on a fresh machine that has make and Python 3.11 to 3.14 with venv.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
SAMPLE := sample/truth.parquet
LOCK := templates/dataflow/requirements.txt
LOCK_PYTHON ?= python3.11
LOCK_VENV := .venv-dataflow
AIRFLOW_VENV := .venv-airflow
AIRFLOW := tests/templates/airflow-constraints.txt
# A file of tests stays on one worker: what its tests share is made once. Files are taken in the order of
# tests/conftest.py, those with slow tests last, and not by their number of tests.
PYTEST_ARGS ?= -n auto --dist loadfile --no-loadscope-reorder
FUZZED ?= $(HOME)/.cache/recrawl/fuzzed
FUZZ_SECONDS ?= 300
BEAM_TESTS ?= tests/pipelines/door tests/pipelines/look tests/pipelines/nightly tests/pipelines/store

.PHONY: help setup nightly test test-beam lint format docs bench clean lock test-dataflow test-airflow
.PHONY: prism flink test-cluster test-flink test-consumers test-buckets fuzz
.DEFAULT_GOAL := help

help:
	@echo "make setup    a virtual environment in $(VENV) with the tested versions"
	@echo "make nightly  run the main job on a small sample: schedule and all else in out/"
	@echo "make test     run the tests"
	@echo "make test-beam      run the tests of nights once more, all of them by Beam's own runner"
	@echo "make test-dataflow  run the tests that need Beam's Dataflow client, with the locked versions"
	@echo "make test-airflow   load and run the Airflow DAG in a real Airflow, in $(AIRFLOW_VENV)"
	@echo "make prism    build Prism, a small portable runner, with Go; it goes to ~/.cache/recrawl"
	@echo "make flink    fetch Flink and Beam's job server for it into ~/.cache/recrawl; needs Maven"
	@echo "make test-cluster   run the tests on Prism, its workers processes of their own"
	@echo "make test-flink     run the tests on a Flink cluster; needs Java"
	@echo "make test-consumers  give exports to the crawlers' own readers and an OpenSearch; needs Maven and Java, else only Scrapy's"
	@echo "make test-buckets   run nights on stand-ins for S3 and Google Cloud Storage"
	@echo "make fuzz     coverage-guided fuzzing of the readers of other formats for FUZZ_SECONDS=300; Python 3.11 to 3.13"
	@echo "make lock     renew the lock file of the Dataflow template; UPGRADE=--upgrade takes newer versions"
	@echo "make lint     check style (ruff) and types (mypy)"
	@echo "make format   put the code into ruff's format"
	@echo "make docs     build the documents as a site in build/docs, and check their links"
	@echo "make bench    measure the costs that docs/speed.md lists"
	@echo "make clean    remove sample/, out/ and all caches"

setup: $(INSTALLED)

$(INSTALLED): setup.py constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v < (3, 15) else \
	"recrawl needs Python 3.11 to 3.14, $(PYTHON) is %d.%d; try: make setup PYTHON=python3.12" % v)'
	@$(BIN)/python -c '' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	@echo "Installing recrawl and what it needs into $(VENV): about 90 packages, 1 GB. Minutes, by the network."
	$(BIN)/python -m pip install --disable-pip-version-check \
	  --constraint constraints.txt --editable '.[dev]'
	@touch $@

# truth.parquet is the last file that synthesize writes. Remove sample/ to have it made anew.
$(SAMPLE): | $(INSTALLED)
	$(BIN)/recrawl synthesize --pages 5000 --days 30 --start 2026-06-01 --seed 7 --output sample

nightly: $(INSTALLED) $(SAMPLE)
	$(BIN)/recrawl nightly --observations 'sample/logs/*.parquet' --requests 'sample/clicks/*.parquet' \
	  --pages sample/pages.parquet --hosts sample/hosts.csv --signals 'sample/signals/*.parquet' \
	  --budget 4000 --as_of 2026-07-01T00:00:00Z --output out

# Rewritten assertions are kept for the next run, where the environment would not keep them.
test: export PYTHONDONTWRITEBYTECODE =
test: $(INSTALLED)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

# In `make test` a runner without Beam's machinery runs most nights: tests/pipelines/plain_runner.py.
test-beam: $(INSTALLED)
	RECRAWL_TEST_RUNNER=beam $(BIN)/python -m pytest $(PYTEST_ARGS) $(BEAM_TESTS)

# What reaches new code is kept, so that the next run goes on from there.
fuzz: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[fuzz]'
	mkdir -p $(FUZZED)
	$(BIN)/python -m tests.fuzz_dialects $(FUZZED) -max_total_time=$(FUZZ_SECONDS) -artifact_prefix=$(FUZZED)-

# Only files that have such tests: to import all others takes longer than to run these.
test-dataflow: $(LOCK_VENV)/.installed
	$(LOCK_VENV)/bin/python -m pytest -m dataflow $(PYTEST_ARGS) \
	  $$(grep -rlE --include='test_*.py' 'mark\.dataflow|needs_client' tests)

# The template's image is made of the same lock file: what installs and agrees here does there.
$(LOCK_VENV)/.installed: $(LOCK) setup.py constraints.txt
	@$(LOCK_PYTHON) -c '' 2>/dev/null || { echo "the lock file is for Python 3.11: give LOCK_PYTHON=..."; exit 1; }
	$(LOCK_PYTHON) -m venv --clear $(LOCK_VENV)
	$(LOCK_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
	  --requirement $(LOCK)
	$(LOCK_VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
	  --constraint constraints.txt --editable '.[test]'
	$(LOCK_VENV)/bin/python -m pip check
	@touch $@

test-airflow: $(AIRFLOW_VENV)/.installed
	$(AIRFLOW_VENV)/bin/python -m pytest tests/templates/test_airflow.py

# Airflow and recrawl's Beam do not agree on their dependencies, and need not.
$(AIRFLOW_VENV)/.installed: $(AIRFLOW)
	$(PYTHON) -m venv --clear $(AIRFLOW_VENV)
	$(AIRFLOW_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(AIRFLOW) \
	  apache-airflow apache-airflow-providers-standard pytest pytest-timeout
	@touch $@

prism: $(INSTALLED)
	$(BIN)/python -m tests.cluster.fetch prism

flink: $(INSTALLED)
	$(BIN)/python -m tests.cluster.fetch flink

test-cluster: prism
	$(BIN)/python -m pytest tests/cluster -m cluster $(PYTEST_ARGS)

# Without the job server, which Maven may not give, its jobs are skipped; the cluster itself is tested.
test-flink: $(INSTALLED)
	$(BIN)/python -m tests.cluster.fetch distribution
	-$(BIN)/python -m tests.cluster.fetch flink
	$(BIN)/python -m pytest tests/cluster tests/templates/test_kubernetes.py -m flink

# What a registry does not give is named, and its tests are skipped.
test-consumers: $(INSTALLED)
	$(BIN)/python -m tests.consumers.fetch
	$(BIN)/python -m pytest tests/consumers -m consumers

# Nights on S3 and Google Cloud Storage, as stand-ins on this machine answer for them.
test-buckets: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
	  --editable '.[aws,buckets]'
	$(BIN)/python -m pytest tests/pipelines/store/test_night_buckets.py

lock: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade --target build/uv 'uv>=0.13,<0.14'
	build/uv/bin/uv pip compile --quiet setup.py --extra gcp --constraint constraints.txt --generate-hashes \
	  --python-version 3.11 --python-platform x86_64-manylinux_2_28 --no-annotate --custom-compile-command 'make lock' \
	  $(UPGRADE) --output-file $(LOCK)

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(INSTALLED)
	$(BIN)/python -m mkdocs build --strict

# What kernels take, in instructions: no load of the machine changes that. Fails where one takes a fifth more.
count: $(INSTALLED)
	$(BIN)/python -m benchmarks instructions

bench: $(INSTALLED)
	$(BIN)/python -m benchmarks all

clean:
	rm -rf sample out build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
