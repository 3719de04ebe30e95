# Needs Python 3.11+, make and pip, nothing else.  PYTHON=python3.12 make test  chooses the interpreter.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
SOURCES := $(shell find src -name '*.py')

# Each stamp remembers one finished installation; a change of pyproject.toml makes all of them old.
PLAIN := $(VENV)/.installed-plain
TEST := $(VENV)/.installed-test
BENCH := $(VENV)/.installed-bench
DOCS := $(VENV)/.installed-docs

# Workers for pytest (pytest-xdist); 0 runs everything in one process.
WORKERS ?= 2
# A worker begins with files of its own, so that few kernels are compiled by two of them; who is done takes over from others.
SPREAD = -n $(WORKERS) --dist worksteal
# Tests start many programs, which would compile every module again if nothing were kept.
export PYTHONDONTWRITEBYTECODE =

.DEFAULT_GOAL := help
.PHONY: help demo serve soak test test-all test-rest lint docs notebooks install-check services packages kafka spark bench repro audit blind mutants campaign year fuzz requests clean

help:
	@echo "make demo      install, then release a generated campus stream and draw it"
	@echo "make serve     install, then serve the same campus live, on a fast clock, and open it in the browser"
	@echo "make test      install what tests need and run the quick ones, minutes; no service, no network, the same noise every time"
	@echo "make test-all  run everything, with fresh noise; what needs a service that is missing is skipped (make services)"
	@echo "make lint      ruff, mypy and the import contract"
	@echo "make docs      build the documentation into build/site, which opens from disk without network"
	@echo "make notebooks execute docs/notebooks again and store what comes out"
	@echo "make install-check  build and install in empty environments: every Python, every extra, the lowest versions; fetches much"
	@echo "make bench     time everything against its rivals, half an hour; bars that are missed are listed, and fail nothing"
	@echo "make repro     run the papers' experiments and write build/repro.md, hours; SMALL=1 takes minutes and judges nothing"
	@echo "make audit     attack every mechanism and the zoo of broken ones, and write build/audit.md"
	@echo "make blind     attack every set of mutants in tests/audit (blind*.toml), and write its table into its report (tests/reports/audit*.md)"
	@echo "make mutants   run the tests against 400 small mistakes in the code, and write tests/reports/mutants.md; takes hours"
	@echo "make soak      kill the service and amended streams 200 times, and send 100,000 fuzzed requests"
	@echo "make campaign  kill, damage and starve streams until thousands have survived, and write tests/reports/campaign.md; takes hours"
	@echo "make year      a year of minutes by a clock of its own: memory, disk and every number"
	@echo "make requests  send 100,000 requests to the service, made up from its OpenAPI document"
	@echo "make fuzz      records, configurations and command lines from a coverage-guided fuzzer"
	@echo "make services  install and ready the system packages that tests need"
	@echo "make clean     remove everything that the commands of the README wrote: docs/operating/files.md"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Tidegate needs Python 3.11 or newer; name one: make PYTHON=python3.12")'
	@$(PYTHON) -m venv $(VENV)

# A plain installation copies the sources, so it is old as soon as one of them is newer.
$(PLAIN): pyproject.toml $(SOURCES) | $(BIN)/python
	@echo "installing tidegate into $(VENV)"
	@$(PIP) .
	@touch $@

$(TEST): pyproject.toml | $(BIN)/python
	@echo "installing tidegate and what its tests need into $(VENV)"
	@$(PIP) --editable '.[test]'
	@touch $@

$(BENCH): pyproject.toml | $(BIN)/python
	@echo "installing tidegate and its rivals into $(VENV)"
	@$(PIP) --editable '.[test,bench]'
	@touch $@ $(TEST)

# Where tests are already installed the demo runs on that editable installation and leaves it in place.
ifneq ($(wildcard $(TEST)),)
demo: $(TEST)
else
demo: $(PLAIN)
endif
	@$(BIN)/tidegate demo

# The service is an extra, so it is installed on its own; where tests are installed it is there already.
SERVED := $(VENV)/.installed-web
$(SERVED): pyproject.toml $(SOURCES) | $(BIN)/python
	@echo "installing tidegate and its service into $(VENV)"
	@$(PIP) '.[web]'
	@touch $@

ifneq ($(wildcard $(TEST)),)
serve: $(TEST)
else
serve: $(SERVED)
endif
	@$(BIN)/tidegate serve demo

# TMPDIR=/dev/shm make soak waits for no disk, where a gigabyte is free there: a killed process loses nothing that the system has buffered.
soak: $(TEST)
	@TIDEGATE_KILLS=200 TIDEGATE_REQUESTS=100000 $(BIN)/python -m pytest -n 0 tests/web/test_killed.py tests/web/test_fuzz.py tests/runtime/test_shop_killed.py
	@TIDEGATE_KILLS=200 $(BIN)/python -m pytest -n 0 -k killed tests/runtime/test_postgres_sink.py tests/runtime/test_postgres_source.py tests/runtime/test_kafka.py
	@TIDEGATE_SPARK_KILLS=10 $(BIN)/python -m pytest -n 0 -k killed tests/runtime/test_spark.py

# The quick tier: all tests that are not marked slow (CONTRIBUTING.md). Every test has noise of its own that is the same each time.
test: $(TEST)
	@TIDEGATE_REPEATABLE=1 $(BIN)/python -m pytest $(SPREAD) -m "not slow"

test-all: $(TEST)
	@$(BIN)/python -m pytest $(SPREAD)

# What test-all adds to test; .ci/run runs it after `make test`.
test-rest: $(TEST)
	@$(BIN)/python -m pytest $(SPREAD) -m slow

lint: $(TEST)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

$(DOCS): pyproject.toml | $(BIN)/python
	@echo "installing what the documentation needs into $(VENV)"
	@$(PIP) --editable '.[docs]'
	@touch $@

docs: $(DOCS)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "open build/site/index.html"

notebooks: $(TEST)
	@$(BIN)/python tests/notebooks.py

# Outside of CI: it fetches interpreters and libraries, and writes the table of docs/install.md.
install-check: $(TEST)
	@$(PIP) 'uv>=0.5'
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python tests/install.py

# Tests start servers of their own, as users without privileges, on free ports; here only the programs are installed.
services: packages kafka spark

packages:
	@if PATH="$$PATH:/usr/sbin" command -v mosquitto >/dev/null && PATH="$$PATH:/usr/sbin" command -v nginx >/dev/null \
	    && command -v chromium >/dev/null && command -v chromedriver >/dev/null \
	    && { command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; }; then \
	    echo "mosquitto, postgresql, nginx and chromium are installed"; \
	elif [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
	    echo "install mosquitto, postgresql, nginx, chromium and chromium-driver with your system's packages, or run make services as root" >&2; exit 1; \
	else \
	    echo "installing mosquitto, postgresql, nginx and chromium"; \
	    export DEBIAN_FRONTEND=noninteractive; \
	    apt-get update -qq && apt-get install -qq -y --no-install-recommends mosquitto postgresql nginx-light chromium chromium-driver >/dev/null; \
	fi

# Kafka is fetched by Maven, with strict checksums, and compared with those of tests/services once more.
KAFKA := $(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/tidegate/kafka-4.1.0
kafka:
	@if (cd "$(KAFKA)" && sha256sum --quiet --check "$(CURDIR)/tests/services/kafka.sha256") >/dev/null 2>&1; then \
	    echo "kafka is in $(KAFKA)"; \
	elif ! command -v mvn >/dev/null; then \
	    echo "install Java 17 and Maven, and run make services again: tests of Kafka need a broker" >&2; exit 1; \
	else \
	    echo "fetching kafka into $(KAFKA)"; rm -rf "$(KAFKA)"; \
	    mvn --quiet --batch-mode --strict-checksums --file tests/services/pom.xml dependency:copy-dependencies -DoutputDirectory="$(KAFKA)" \
	    && (cd "$(KAFKA)" && sha256sum --quiet --check "$(CURDIR)/tests/services/kafka.sha256"); \
	fi

# PySpark is hundreds of megabytes, so it is installed for its tests only; it needs Java 17 or newer.
SPARK := $(VENV)/.installed-spark
$(SPARK): pyproject.toml | $(TEST)
	@command -v java >/dev/null || { echo "install Java 17, and run make services again: tests of Spark need it" >&2; exit 1; }
	@echo "installing pyspark into $(VENV)"
	@$(PIP) --editable '.[test,spark]'
	@touch $@

spark: $(SPARK)

# What bars and the exit code mean is said in the script. ONLY="noise tide" make bench  runs some.
bench: $(BENCH)
	@$(BIN)/python benchmarks/everything.py $(ONLY)

# TIDEGATE_DATA names the folder of public files (docs/experiments/public_data.md); what is missing is skipped. SMALL=1 has too few runs to judge a claim.
repro: $(TEST)
	@$(BIN)/python -m experiments run --results build/repro $(if $(SMALL),--small)
	@$(BIN)/python -m experiments report --results build/repro --page build/repro.md --pictures repro

audit: $(TEST)
	@$(BIN)/python -m tests.audit.table build/audit.md

# blind_first.toml belongs to tests/reports/audit_first.md, and so on
blind: $(TEST)
	@for set in $(sort $(wildcard tests/audit/blind*.toml)); do \
	    page="tests/reports/audit$${set#tests/audit/blind}"; $(BIN)/python -m tests.audit.blind "$$set" --page "$${page%.toml}.md" || exit 1; \
	done

# Outside of CI. It goes on where it was stopped: tests/mutants/outcomes.jsonl has what is known already.
mutants: $(TEST)
	@PYTHONPATH=. $(BIN)/python tests/mutants --count 400 --page tests/reports/mutants.md

# Outside of CI. It goes on where it was stopped: build/campaign.jsonl has what is known already.
MINUTES ?= 1440
campaign: $(TEST)
	@$(BIN)/python tests/campaign --minutes $(MINUTES) --page

year: $(TEST)
	@$(BIN)/python tests/campaign/year.py

RUNS ?= 100000
fuzz: $(TEST)
	@$(PIP) atheris || echo "atheris cannot be installed here; inputs are random"
	@for kind in records configurations commands; do $(BIN)/python tests/campaign/fuzz.py $$kind --runs $(RUNS) || exit 1; done

# over the service's OpenAPI document: right requests, wrong ones, and nonsense, to a real server
REQUESTS ?= 100000
requests: $(TEST)
	@TIDEGATE_REQUESTS=$(REQUESTS) $(BIN)/python -m pytest -q -n 0 tests/web/test_fuzz.py

# Everything that the commands of README.md wrote (docs/operating/files.md). Folders of its examples go only if they hold the made-up campus:
# somebody's own ledger is never removed. What `make services` fetched stays.
CACHE := $(or $(NUMBA_CACHE_DIR),$(XDG_CACHE_HOME),$(HOME)/.cache)/tidegate
clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache tidegate-demo
	rm -rf "$(CACHE)/kernels" "$(CACHE)/tables"
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	if [ -f campus/campus_events.parquet ] && [ -z "$$(find campus -name '*.ledger')" ]; then rm -rf campus; fi
	if grep -qs '"Lecture halls", "Library"' wifi/tidegate.toml; then rm -rf wifi; fi
