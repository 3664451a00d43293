# twophase. `make` lists the targets.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
# Tests start thousands of processes: without bytecode each compiles the product anew.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# pypaimon wants an older pyarrow than all else has: the Paimon sink's tests have an environment of their own.
PAIMON := .venv-paimon
PAIMON_READY := $(PAIMON)/.ready
TESTS  ?= tests integration verification
SEEDS  ?= 20000
MINUTES ?= 10
# Images for `make integration`: public, or local to have them built of what this machine has.
IMAGES  ?= public
# Processes that run tests side by side, each with servers of its own (about 4 GiB): a third one, since each often waits for its servers.
JOBS   ?= 3
# Of the proofs: one subject (PART=delta), one of ten sets of about the same cost (SHARE=3/10), what `make test` leaves out (REST=1),
# kills of each server.
PART   ?=
SHARE  ?=
REST   ?=
KILLS  ?= 30
# Of the dearest files of `test`: one of six sets, by default the commit's own; `all` for all of them.
TURN   ?= $(shell commit=$$(git rev-parse HEAD 2>/dev/null || echo 0); echo $$((0x$${commit:0:8} % 6 + 1)))/6
# Of PySpark, for `versions`: none for all.
RELEASE ?=

# The longest files first, by harness/cost_ledger.json, and CPU seconds compared with it.
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --ledger
# Every folder that has Markdown, and nothing of .venv or site.
MARKDOWN := *.md .github docs sinks
# The tests that start neither Spark nor a server.
UNIT   := -m "not spark and not server" tests verification
# Files that are asked for by name wait for no turn.
IN_TURN := $(if $(filter file,$(origin TESTS)),$(if $(filter-out all,$(TURN)),--turn $(TURN)))
# Of the tests that are asked for, those that need pypaimon, and the others; of the default ones, all.
PAIMON_FOLDERS := tests/sinks/paimon integration/paimon
OF_PAIMON := $(strip $(if $(filter file,$(origin TESTS)),$(PAIMON_FOLDERS),$(foreach folder,$(PAIMON_FOLDERS),$(filter $(folder)%,$(TESTS)))))
OTHERS := $(filter-out $(OF_PAIMON),$(TESTS))
PROOFS_OF_PAIMON := $(if $(filter-out paimon,$(PART)),,$(OF_PAIMON))
OTHER_PROOFS := $(if $(filter paimon,$(PART)),,$(OTHERS))
PAIMON_PYTEST := TWOPHASE_PAIMON=required $(PYTEST:$(BIN)/%=$(PAIMON)/bin/%)
CHOSEN := $(if $(PART),--part $(PART)) $(if $(SHARE),--share $(SHARE)) $(if $(REST),--rest) --kills $(KILLS)

.PHONY: help demo test proof unit quick ledger integration soak simulate model lint types layers docs format services bench constraints clean check
.PHONY: coverage package versions

# `## text` after a target: what a change needs. `##+ text`: proof and release.
help:
	@show() { printf '\033[1m%s\033[0m\n' "$$1"; awk -F":.*$$2 " "/^[a-z-]+:.*$$2 /"'{printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST); }; \
	  show 'For a change' '##'; echo; show 'Proof and release' '##[+]'

demo: $(READY)  ## A million orders from Kafka to MySQL, Delta and Hive while drivers are killed; counts what arrived
	@$(BIN)/python -m twophase.testing.services fetch --no-record kafka mysql delta
	@$(BIN)/python -m demo

test: services $(if $(OF_PAIMON),$(PAIMON_READY))  ## What a change has to pass; starts its own Kafka, MySQL and MariaDB, without Docker. All dear files: TURN=all
	@$(if $(OTHERS),$(PYTEST) --ignore integration/containers $(IN_TURN) $(OTHERS))
	@$(if $(OF_PAIMON),$(PAIMON_PYTEST) $(IN_TURN) $(OF_PAIMON))

proof: services $(if $(PROOFS_OF_PAIMON),$(PAIMON_READY))  ##+ Every kill, several hours: make proof PART=delta, make proof SHARE=3/10, make proof PART=servers KILLS=100
	@$(if $(OTHER_PROOFS),$(PYTEST) --ignore integration/containers --proof $(CHOSEN) $(OTHER_PROOFS))
	@# 5: a share has none of these few files
	@$(if $(PROOFS_OF_PAIMON),$(PAIMON_PYTEST) --proof $(CHOSEN) $(PROOFS_OF_PAIMON) || [ $$? = 5 ])

unit: $(READY)  ## The tests that start neither Spark nor a server
	@$(PYTEST) $(UNIT)

quick: $(READY)  ## The cheapest tests, in about a minute: run them after each edit
	@$(PYTEST) --quick tests verification

coverage: $(READY)  ##+ Lines and branches of the product that `make unit` runs, in one process
	@$(BIN)/python -m coverage run -m pytest $(UNIT)
	@$(BIN)/python -m coverage report --skip-covered --sort=cover

ledger: services  ##+ Record what each file of tests costs, in CPU seconds; on an idle machine
	@$(PYTEST:--ledger=--write-ledger) --ignore integration/containers $(TESTS)
	@$(PYTEST:--ledger=--write-ledger) --ignore integration/containers --proof $(CHOSEN) $(TESTS)

integration: $(READY)  ##+ Kafka, MySQL and MariaDB in containers, if a Docker engine answers; IMAGES=local builds the images
	@$(if $(filter local,$(IMAGES)),images="$$($(BIN)/python -m integration.images)"; export $$images;) \
	  $(BIN)/python -m pytest integration/containers

soak: services  ##+ Kill everything while records flow and a reader watches: make soak MINUTES=30
	@$(BIN)/python -m integration.soak --minutes $(MINUTES)

simulate: $(READY)  ##+ The real protocol over simulated disks and servers: make simulate SEEDS=100000
	@$(BIN)/python -m verification.simulation --seeds $(SEEDS)

model: $(READY)  ##+ Every state of a model of the protocol, including the large worlds
	@$(BIN)/python -m verification.model

lint: $(READY)  ##+ Style: ruff, and mdformat for Markdown
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mdformat --check $(MARKDOWN)

types: $(READY)  ##+ mypy over every tree, strict except for tests
	@$(BIN)/mypy

layers: $(READY)  ##+ import-linter: which package may import which
	@$(BIN)/lint-imports --no-logo

docs: $(READY)  ##+ The documentation site, in site; broken links fail
	@$(BIN)/python docs/generate.py --check
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict -d site

check: lint types layers test  ## Style, types, layers and tests: run it before you open a pull request

format: $(READY)  ## Fix the style, and write the generated pages
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .
	@$(BIN)/python docs/generate.py
	@$(BIN)/mdformat $(MARKDOWN)

bench: services  ##+ All benchmarks in turn, which takes hours; `.venv/bin/python -m benchmarks` lists them
	@$(BIN)/python -m benchmarks all

services: $(READY)  ##+ Fetch Kafka, MySQL, MariaDB and Delta into the cache
	@$(BIN)/python -m twophase.testing.services fetch

versions: $(READY)  ##+ Chosen tests with each supported release of PySpark, in environments of their own: make versions RELEASE=4.1.4
	@trap '$(BIN)/python docs/generate.py' EXIT; \
	  $(BIN)/python -m harness.versions $(RELEASE) $(if $(SUBJECT),--subject "$(SUBJECT)") $(if $(PICK),--pick $(PICK))

package: $(READY)  ##+ Build the wheel and the sdist into dist/, and check what is in them
	@rm -rf build dist *.egg-info
	@$(BIN)/python -m build --no-isolation
	@$(BIN)/python -m harness.package dist

constraints: $(READY) $(PAIMON_READY)  ##+ Record the versions in use
	@{ echo "# The versions that are tested together. Made by: make constraints"; \
	   $(BIN)/pip freeze --exclude-editable; } > constraints.txt
	@$(BIN)/python -m harness.paimon_environment freeze > constraints-paimon.txt

clean:  ##+ Remove the environment and caches of this folder
	rm -rf $(VENV) $(PAIMON) .versions build dist .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info

$(READY): setup.cfg pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "twophase needs Python 3.11 or newer, found $$($(PYTHON) --version). Next: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@java -version 2>&1 | grep -Eq 'version "(17|21)' || \
	  { echo "twophase needs Java 17 or 21 on the PATH. Next: apt-get install openjdk-17-jre-headless"; exit 1; }
	@echo "Installing the environment into $(VENV) (once)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

$(PAIMON_READY): $(READY) constraints-paimon.txt
	@echo "Installing the environment of the Paimon sink's tests into $(PAIMON) (once)"
	@$(BIN)/python -m harness.paimon_environment
