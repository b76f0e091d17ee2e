# A bare `make` prints the targets that have a ## text.
PYTHON ?= python3
MINIMUM := 3.11

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
LOCK := requirements.txt

DIST := dist
# What goes to Spark's driver and executors, with EXTRAS: everything but PySpark, which Spark brings along itself (400 MB).
PACKED_EXTRAS := report otlp-grpc
ENVIRONMENT := build/environment
ASKED := build/asked.txt
PACKED := $(DIST)/mirror-env.tar.gz
# Where Debian's Prometheus is unpacked, if there is none on the PATH.
PROMETHEUS := build/prometheus
# Where Debian's libfaketime is unpacked, if it is not installed.
FAKETIME := build/faketime
# What the tests of Kerberos want, and the package that they use is compiled with; Debian's names of it.
KERBEROS := krb5kdc kadmin.local kdb5_util kinit krb5-config
KERBEROS_PACKAGES := krb5-kdc krb5-admin-server krb5-user libkrb5-dev
SPARK_ARCHIVE := build/spark.jsa
BROKER_ARCHIVE := build/broker.jsa
ARCHIVES := $(SPARK_ARCHIVE) $(BROKER_ARCHIVE)
DOWNLOAD := apt-get -o APT::Sandbox::User=root download -qq
# Many containers set it: each of the many processes that tests start would compile all of these again.
unexport PYTHONDONTWRITEBYTECODE
export PATH := $(PATH):$(CURDIR)/$(PROMETHEUS)/usr/bin
SOURCES := $(shell find mirror -type f -not -name '*.pyc')

# Below what the tests reach, so that it catches a hole, not a line.
COVERAGE_FLOOR := 85
NEEDS_NOTHING := not brokers and not spark and not browser and not prometheus and not cluster
QUICK := $(NEEDS_NOTHING) and not slow and not timed
# `$(TAKES) NAME COMMAND...` runs the command, and prints how long it took.
TAKES := bash -c '"$$@"; status=$$?; echo "tests: $$0 took $$SECONDS s"; exit $$status'
# What `make rewritten` has collected.
TIMED := build/timed.txt
# In the order of tests/conftest.py. Tests wait for half of their time, the timed ones for two thirds, so that there may be
# more workers than cores. All but one start clusters, of up to eight JVMs, at once.
WORKERS := --dist loadscope --no-loadscope-reorder --numprocesses
LOCKED := $(addprefix --extra=,dev spark report lineage otlp-grpc aws azure gcp gssapi)
LOCK_OPTIONS := --quiet $(LOCKED) --generate-hashes --allow-unsafe --strip-extras \
	--no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options

.DEFAULT_GOAL := help
.PHONY: help install brokers browser coverage dist run test check bench parts loss distance campaign murder directions switches elections faults mutations properties equality isolation memory follower lowest newcomer cluster takeovers stores lock clean
.DELETE_ON_ERROR:

help: ## print this
	@echo 'Replicates topics between Apache Kafka clusters. Needs Python $(MINIMUM)+ and a JDK 17+; all else is fetched.'
	@echo
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo '  PYTHON=...     the Python to make $(VENV) with (now: $(PYTHON))'

install: $(INSTALLED) ## make .venv with all that is locked in requirements.txt

brokers: $(INSTALLED)
	@$(BIN)/mirror sandbox fetch

# Each is 25 to 50 MB. Without these a test would fetch them, within its time.
.PHONY: releases oldest
releases: $(INSTALLED)
	@PYTHONPATH=. $(BIN)/python -m tests.releases.releases

# Other releases of PySpark, in build/: 320 to 450 MB each.
.PHONY: sparks
sparks: $(INSTALLED)
	@PYTHONPATH=. $(BIN)/python -m tests.e2e.spark_releases

# Brokers that are not Apache Kafka's, in build/foreign; needs Go.
.PHONY: foreign
foreign: $(INSTALLED)
	@PYTHONPATH=. $(BIN)/python -m tests.foreign.implementations

# `make test` copies from it.
oldest: $(INSTALLED)
	@PYTHONPATH=. $(BIN)/python -m tests.releases.releases oldest

# The packages of an installation without extras, in the oldest versions that pyproject.toml allows.
.PHONY: base
base: $(INSTALLED)
	@PYTHONPATH=. $(BIN)/python -m tests.installation.lowest base

# For the tests of the report. Where it cannot be installed, they fail with the same advice: nothing is left out silently.
browser:
	@for name in chromium chromium-browser google-chrome; do command -v $$name >/dev/null && exit 0; done; \
	if command -v apt-get >/dev/null && test "$$(id -u)" = 0; then \
		echo 'installing chromium, for the tests of the report (apt-get)'; \
		apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends chromium >/dev/null && exit 0; \
	fi; \
	echo 'Chromium is not there and could not be installed: the tests of the report will fail. Install it' >&2; \
	echo '(Debian: apt-get install chromium), or run the others: .venv/bin/pytest -m "not browser"' >&2

run: brokers ## demo: two real clusters, 200,000 records copied by Spark, checked by another client
	$(BIN)/mirror demo

test: ## lint, types, and the tests, also on real brokers and Spark; the longest: make cluster
	@# Downloads, the type checker and the JVMs that write archives take turns at the cores.
	@# What the tests import they compile themselves, whatever PYTHONDONTWRITEBYTECODE says outside.
	@$(TAKES) 'preparation' $(MAKE) --no-print-directory --jobs --output-sync=target PYTHONDONTWRITEBYTECODE= \
		packages brokers oldest base lint rewritten $(ARCHIVES)
	$(TAKES) 'part 1' $(BIN)/pytest $(WORKERS) 4 -m "not timed and not cluster" --durations=40
	@# Only the files that have such tests: each worker would import and collect all others, too (8 s of CPU).
	$(TAKES) 'part 2' $(BIN)/pytest $(WORKERS) 3 -m "timed and not cluster" --durations=20 \
		$$(sed -n 's/^\(tests\/.*\.py\): [0-9]*$$/\1/p' $(TIMED))

# One after the other: apt-get locks its lists.
.PHONY: packages
packages:
	@$(MAKE) --no-print-directory MAKEFLAGS= browser
	@$(MAKE) --no-print-directory MAKEFLAGS= prometheus

# Apart from `make test`: what is measured takes half as long again.
coverage: brokers oldest browser prometheus ## what of the code the tests without Spark reach, with a floor (10 minutes)
	$(BIN)/pytest $(WORKERS) 3 -m "not timed and not spark" --cov --cov-fail-under=$(COVERAGE_FLOOR)

check: lint ## quick (under a minute): lint, types, import layers, links, the tests that need no broker and no Spark
	$(BIN)/pytest -q $(WORKERS) 2 -m "$(QUICK)"

.PHONY: lint
lint: $(INSTALLED)
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	PYTHONPATH=. $(BIN)/python -m tests.links

# pytest keeps the tests' modules with their rewritten asserts: each of its workers would rewrite them all (6 s of CPU). The
# list has each file that has timed tests.
.PHONY: rewritten
rewritten: $(INSTALLED)
	@mkdir -p build
	@$(BIN)/pytest --collect-only --quiet --quiet -m "timed and not cluster" > $(TIMED) || { cat $(TIMED); exit 1; }

# Without it each of the tests' many sessions of Spark takes 4 s of CPU more. Where it cannot be made they do without.
$(SPARK_ARCHIVE): $(INSTALLED) tests/spark_archive.py
	@PYTHONPATH=. $(BIN)/python tests/spark_archive.py $@ || echo 'no archive of classes: the tests take longer' >&2

# Without it each of the tests' many brokers takes more than 2 s of CPU more. It is made of the fetched brokers' jars.
$(BROKER_ARCHIVE): $(INSTALLED) tests/broker_archive.py | brokers
	@PYTHONPATH=. $(BIN)/python tests/broker_archive.py $@ || echo 'no archive of classes: the tests take longer' >&2

# Only the tests of Kerberos, among the longest, need it.
.PHONY: kerberos
kerberos: $(INSTALLED)
	@has() { for name in $(KERBEROS); do PATH="$$PATH:/usr/sbin" command -v $$name > /dev/null || return 1; done; }; has || { \
		if command -v apt-get > /dev/null && test "$$(id -u)" = 0; then \
			echo 'installing a KDC, for the tests of Kerberos (apt-get)'; apt-get update -qq && \
			DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends $(KERBEROS_PACKAGES) > /dev/null; \
		fi; has; \
	} || { echo 'The tests of Kerberos need MIT Kerberos (Debian: apt-get install $(KERBEROS_PACKAGES))' >&2; exit 1; }
	@$(MAKE) --no-print-directory $(VENV)/.gssapi

# Only the test of the image needs these.
.PHONY: buildah
buildah:
	@has() { for name in buildah debootstrap; do PATH="$$PATH:/usr/sbin" command -v $$name > /dev/null || return 1; done; }; has || { \
		if command -v apt-get > /dev/null && test "$$(id -u)" = 0; then \
			echo 'installing buildah and debootstrap, for the test of the image (apt-get)'; apt-get update -qq && \
			DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends buildah debootstrap > /dev/null; \
		fi; has; \
	} || { echo 'The test of the image needs root, buildah and debootstrap (Debian: apt-get install buildah debootstrap)' >&2; exit 1; }

# Only the faults of clocks need it: a campaign without it says so.
.PHONY: faketime
faketime:
	@ls /usr/lib/*/faketime/libfaketimeMT.so.1 $(FAKETIME)/usr/lib/*/faketime/libfaketimeMT.so.1 2> /dev/null | grep -q . || { \
		rm -rf $(FAKETIME) && mkdir -p $(FAKETIME) && cd $(FAKETIME) && command -v apt-get dpkg-deb > /dev/null && \
		{ $(DOWNLOAD) libfaketime || { apt-get update -qq && $(DOWNLOAD) libfaketime; }; } && \
		dpkg-deb --extract libfaketime_*.deb . ; \
	} || echo 'no libfaketime (Debian: apt-get install libfaketime): no clock will be stepped' >&2

# Unpacked, not installed: as a package it would begin to run as a service, and want root.
.PHONY: prometheus
prometheus:
	@{ command -v prometheus && command -v promtool; } > /dev/null || $(MAKE) --no-print-directory $(PROMETHEUS)/usr/bin/promtool

$(PROMETHEUS)/usr/bin/promtool:
	@{ command -v apt-get && command -v dpkg-deb; } > /dev/null || \
		{ echo 'The tests need prometheus and promtool (2.42 or later) on the PATH; only Debian has them fetched here' >&2; exit 1; }
	@rm -rf $(PROMETHEUS) && mkdir -p $(PROMETHEUS)
	@cd $(PROMETHEUS) && { $(DOWNLOAD) prometheus || { apt-get update -qq && $(DOWNLOAD) prometheus; }; } || \
		{ echo 'Debian has no package prometheus for us: put prometheus and promtool on the PATH' >&2; exit 1; }
	@dpkg-deb --extract $(PROMETHEUS)/prometheus_*.deb $(PROMETHEUS)

bench: brokers ## this project beside MirrorMaker 2, Spark and others (five hours, idle machine; goes on where it ended: ARGUMENTS="--within 60", --plan)
	PYTHONPATH=. $(BIN)/python -m tests.benchmarks.side_by_side $(ARGUMENTS)

parts: brokers ## measure single parts: runs every bench_*.py in tests/benchmarks (takes minutes, wants an idle machine)
	@set -e; for program in tests/benchmarks/bench_*.py; do \
		echo "== $$program"; PYTHONPATH=. $(BIN)/python "$$program"; \
	done

loss: brokers ## measure what is lost with each part, and for how long, beside MirrorMaker 2 and plain Spark (Linux, root, Go; an hour)
	PYTHONPATH=. $(BIN)/python -m tests.benchmarks.loss $(ARGUMENTS)
	PYTHONPATH=. $(BIN)/python -m tests.benchmarks.side_by_side.publish

distance: brokers ## measure how much of a wide-area link copies use, beside MirrorMaker 2 (Linux, root, Go; half an hour)
	PYTHONPATH=. $(BIN)/python -m tests.benchmarks.wide_area $(ARGUMENTS)
	PYTHONPATH=. $(BIN)/python -m tests.benchmarks.side_by_side.publish

dist: $(PACKED) ## build what a Spark cluster needs, in dist/: the wheel, what the image installs, and mirror-env.tar.gz for --archives (EXTRAS="aws gcp")

campaign: brokers ## inject faults into three brokers under load, and verify what the producers wrote (an hour)
	PYTHONPATH=. $(BIN)/python tests/campaign/soak/campaign.py

murder: brokers ## kill copies at 200 moments, and verify that nothing is lost or duplicated (15 to 30 minutes)
	PYTHONPATH=. $(BIN)/python tests/campaign/kills/campaign.py $(ARGUMENTS)

directions: brokers $(ARCHIVES) ## kill processes of flows that feed each other: each record is on each cluster once (30 minutes)
	PYTHONPATH=. $(BIN)/python tests/campaign/both_ways/campaign.py $(ARGUMENTS)

switches: brokers $(ARCHIVES) ## cut over 20 times while clients work and processes are killed, and verify what clients have noted (an hour)
	PYTHONPATH=. $(BIN)/python -m tests.campaign.switches.campaign $(ARGUMENTS)

elections: brokers ## elect replicas of a copy that lack acknowledged records, and verify that they are there again (10 minutes)
	PYTHONPATH=. $(BIN)/python tests/campaign/elections/campaign.py $(ARGUMENTS)

faults: brokers faketime $(ARCHIVES) ## inject 24 kinds of faults into a stream, and verify its copy (20 minutes; MIRROR_FAULTS_SECONDS=7200)
	PYTHONPATH=. $(BIN)/python tests/campaign/chaos/campaign.py $(ARGUMENTS)

properties: $(INSTALLED) ## look for examples that break a property, other ones each time (a minute for each; ROUNDS=5)
	@for round in $$(seq $(or $(ROUNDS),1)); do \
		$(BIN)/pytest -q $(WORKERS) 2 --hypothesis-profile=explore -m "hypothesis and $(NEEDS_NOTHING)" || exit 1; \
	done

lowest: $(INSTALLED) ## run the quick tests with the oldest packages that pyproject.toml allows (10 minutes)
	PYTHONPATH=. $(BIN)/python -m tests.installation.lowest lowest
	build/lowest/bin/python -m pytest -q $(WORKERS) 2 -m "$(QUICK)"

mutations: $(INSTALLED) ## break each check that guards copying by sequences, and require that a test fails (2 minutes)
	PYTHONPATH=. $(BIN)/python -m tests.campaign.mutations.campaign $(ARGUMENTS)

equality: brokers ## copy hundreds of generated topics, compared by an independent client (ARGUMENTS="--rounds 50 --seed N")
	PYTHONPATH=. $(BIN)/python tests/campaign/equality/campaign.py $(ARGUMENTS)

isolation: brokers ## measure what sick partitions and throttled targets cost the healthy ones (needs an idle machine)
	PYTHONPATH=. $(BIN)/python tests/campaign/measurements/isolation.py $(ARGUMENTS)

takeovers: brokers $(ARCHIVES) ## kill MirrorMaker 2 20 times in each of six ways, take its topics over and give them back (an hour)
	PYTHONPATH=. $(BIN)/python tests/campaign/takeovers/campaign.py $(ARGUMENTS)

cluster: brokers releases sparks foreign prometheus faketime kerberos buildah base $(ARCHIVES) ## the longest tests: real executors, kills, traces and dashboards of real runs, make dist, speculation (40 minutes)
	$(BIN)/pytest -p no:randomly -m cluster
	$(BIN)/pytest -p no:randomly tests/e2e/cluster_campaign.py

memory: brokers ## measure the memory of copies against its bounds
	PYTHONPATH=. $(BIN)/python tests/campaign/measurements/memory.py $(ARGUMENTS)

follower: brokers ## measure what a stopped follower of some target partitions costs the others (needs an idle machine)
	PYTHONPATH=. $(BIN)/python tests/campaign/measurements/follower.py $(ARGUMENTS)

stores: brokers browser prometheus ## show a sick partition in Zipkin and Prometheus: pictures in build/stores (4 minutes; ARGUMENTS=--wait)
	PYTHONPATH=. $(BIN)/python tests/campaign/stores/campaign.py $(ARGUMENTS)

lock: $(INSTALLED) kerberos ## lock the versions of pyproject.toml again (UPGRADE=--upgrade: to the newest)
	env -u PIP_FIND_LINKS CUSTOM_COMPILE_COMMAND='make lock' \
		$(BIN)/pip-compile $(LOCK_OPTIONS) $(UPGRADE) --output-file $(LOCK) pyproject.toml
	env -u PIP_FIND_LINKS CUSTOM_COMPILE_COMMAND='make lock' \
		$(BIN)/pip-compile $(filter-out $(LOCKED),$(LOCK_OPTIONS)) $(UPGRADE) \
		--output-file tests/schedules/requirements.txt tests/schedules/requirements.in
	PYTHONPATH=. $(BIN)/python -m tests.installation.lowest > build/lowest.in
	env -u PIP_FIND_LINKS CUSTOM_COMPILE_COMMAND='make lock' \
		$(BIN)/pip-compile $(filter-out $(LOCKED),$(LOCK_OPTIONS)) $(UPGRADE) \
		--output-file tests/installation/lowest.txt build/lowest.in

clean: ## delete what was made here (the fetched brokers stay in your cache)
	rm -rf $(VENV) build dist *.egg-info .coverage htmlcov mirror-report spark-warehouse metastore_db derby.log artifacts
	rm -rf .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < tuple(map(int, "$(MINIMUM)".split("."))))' || \
		{ echo 'Python $(MINIMUM) or later is needed, and $(PYTHON) is not; say which: make PYTHON=python$(MINIMUM)' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# The install is editable: only a change of the lock or of pyproject.toml asks for another one.
$(INSTALLED): $(LOCK) pyproject.toml $(VENV)/.pyspark $(VENV)/.packages
	@# Quiet: setuptools warns of every editable install.
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@# Elsewhere Python keeps what it has compiled for the first import. pip would compile on one core.
	@[ -z '$(PYTHONDONTWRITEBYTECODE)' ] || { \
		echo 'compiling all packages, which takes 20 s of CPU: PYTHONDONTWRITEBYTECODE is set, so that Python would keep none'; \
		$(BIN)/python -m compileall -q -j 0 mirror $(VENV)/lib; }
	@touch $@

# Parts for `make --jobs`: pip makes PySpark's wheel, which takes as long as all other packages together. pip itself
# comes first: it must not be replaced while it runs. The lock is complete, so that no part looks for dependencies. GSSAPI's
# wants headers, so that only `make kerberos` installs it.
$(VENV)/.pip $(VENV)/.pyspark $(VENV)/.gssapi $(VENV)/.packages: $(LOCK) | $(BIN)/python
	@awk -v part=$(@F) "$$PARTS" $(LOCK) > $@.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --require-hashes -r $@.txt
	@touch $@

$(VENV)/.pyspark $(VENV)/.gssapi $(VENV)/.packages: $(VENV)/.pip

define PARTS
/^[^ #]/ { split($$0, words, "=="); name = words[1]; of = name ~ /^(pip|pyspark|gssapi)$$/ ? "." name : ".packages" }
of == part
endef
export PARTS

# ------------------------------------------------------------------------------------------------------------- dist
newcomer: dist brokers $(ARCHIVES) ## type what jobs/INSTALL.md says for a first copy, in an empty home, and write the times (5 minutes)
	PYTHONPATH=. $(BIN)/python -m tests.installation.newcomer

# The lock's versions and hashes bind as constraints, so that one lock serves: what it locks for development is not
# asked for here.
$(ENVIRONMENT)/.installed: $(LOCK) $(ASKED) | $(INSTALLED)
	rm -rf $(ENVIRONMENT)
	$(BIN)/python -m venv --without-pip $(ENVIRONMENT)
	$(BIN)/python -m pip --python $(ENVIRONMENT)/bin/python install --quiet --disable-pip-version-check \
		--require-hashes --constraint $(LOCK) --requirement $(ASKED)
	@touch $@

# Written only if it changes, as by other EXTRAS: the environment is made again then.
$(ASKED): pyproject.toml FORCE | $(INSTALLED)
	@mkdir -p $(@D) && $(BIN)/python -c "$$DEPENDENCIES" $(PACKED_EXTRAS) $(EXTRAS) > $@.new
	@cmp -s $@ $@.new || cp $@.new $@

.PHONY: FORCE
FORCE:

define DEPENDENCIES
import sys, tomllib
with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)["project"]
extras = (one for extra in sys.argv[1:] for one in project["optional-dependencies"][extra])
print(*project["dependencies"], *extras, sep="\n")
endef
export DEPENDENCIES

# For the image, which has PySpark: what the lock says of the packages of the environment.
define LOCKED_PART
import re, sys
names = {re.sub("[-_.]+", "-", line.split("==")[0]).lower() for line in sys.stdin}.union(sys.argv[2:])
for part in re.split(r"(?m)^(?=\w)", open(sys.argv[1]).read()):
    if part.split("==")[0] in names:
        print(part, end="")
endef
export LOCKED_PART

# Plain tar: a virtual environment can be moved but for the first lines of its scripts, so these stay behind
# (`python -m mirror.cli` is `mirror`). It has no interpreter of its own: executors need the Python of $(VENV), at its path.
$(PACKED): $(ENVIRONMENT)/.installed $(SOURCES) LICENSE Makefile
	rm -rf build/lib build/bdist.* $(DIST)
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir $(DIST) .
	$(BIN)/python -m pip --python $(ENVIRONMENT)/bin/python install --quiet --disable-pip-version-check \
		--no-deps --no-index --force-reinstall $(DIST)/*.whl
	$(BIN)/python -m pip --python $(ENVIRONMENT)/bin/python list --format=freeze | \
		$(BIN)/python -c "$$LOCKED_PART" $(LOCK) pyspark py4j > $(DIST)/requirements.txt
	find $(ENVIRONMENT)/bin -mindepth 1 -not -name 'python*' -delete
	tar --create --gzip --file $@ --directory $(ENVIRONMENT) .
	@ls -sh $(DIST)
