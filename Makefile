# The commands of this repository. Everything is installed into .venv, except nginx, haproxy, Prometheus, PostgreSQL and
# Chromium, which tests and benchmarks use: make installs Debian's packages of them if it runs as root.
.PHONY: alerts clients draw-dashboards help demo site t test test-fast test-parts interpreters coverage check format lock generated fuzz bench-audit bench-capture bench-causes bench-core bench-envoy bench-first-token bench-inprocess bench-ledger bench-packets bench-page bench-pump bench-recorder bench-recount bench-scrape bench-startup bench-tap bench-websocket bench-worker pictures properties scale soak chaos clean faults types wheels sbom

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What was installed: what the demo and `up` need, and all of it.
DEMO := $(VENV)/.demo
INSTALLED := $(VENV)/.installed

help:  ## show this
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(DEMO)  ## play simulated providers through the real tap, print what is seen
	$(BIN)/streamgauge demo

# Most tests wait for programs that they start: four run at a time for each core, beside one broker. Tests that share what is
# costly to make have a group, and the short tests come last (tests/conftest.py).
WORKERS ?= $$((4 * $$(nproc)))
DISTRIBUTED := --dist loadgroup --no-loadscope-reorder
# Without compiled files each test process, and each program that a test starts, would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

test: $(INSTALLED) test-parts tests/__pycache__  ## format, lint, and all tests, with a real Kafka of their own (13 minutes on two cores)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python -m tests.kafka_broker $(BIN)/pytest -q -n $(WORKERS) $(DISTRIBUTED) --durations 30 --junitxml build/tests.xml

test-fast: $(INSTALLED)  ## the tests that start no program and compute briefly, with few generated examples (a minute)
	HYPOTHESIS_PROFILE=few $(BIN)/pytest -q -n 4 $(DISTRIBUTED) -m 'not slow'

P ?= tests/core/http1
t: $(INSTALLED)  ## the tests of the path P that are not slow, with few generated examples: make t P=tests/core/http1
	HYPOTHESIS_PROFILE=few $(BIN)/pytest -q -m 'not slow' $(P)

# In a new clone one process compiles the tests: several at the same time would each compile all of them.
tests/__pycache__: | $(INSTALLED)
	$(BIN)/pytest -q --collect-only > /dev/null || true

# What tests need beside Python's packages.
test-parts: $(INSTALLED)
	./scripts/install_packages 'bubblewrap systemd strace' bwrap systemd-analyze strace || echo 'tests that need them are skipped'
	PYTHON=$(BIN)/python ./scripts/install_deploy_tools || echo 'tests that need them are skipped'
	./scripts/install_collector >/dev/null || echo 'tests that need it are skipped'
	./scripts/install_packages 'prometheus prometheus-alertmanager' promtool prometheus amtool prometheus-alertmanager || echo 'tests that need it are skipped'
	./scripts/install_packages 'nginx haproxy' nginx haproxy || echo 'tests that need them are skipped'
	./scripts/install_packages postgresql initdb postgres || echo 'tests that need it are skipped'
	./scripts/install_packages 'chromium fonts-dejavu-core' chromium || echo 'tests that need it are skipped'
	./scripts/install_packages 'zsh fish' zsh fish || echo 'tests that need them are skipped'
	./scripts/install_packages nodejs node || echo 'tests that need it are skipped'
	./scripts/install_packages golang-go go || echo 'tests that need it are skipped'
	./scripts/install_packages 'default-jdk-headless wget' javac wget || echo 'tests that need them are skipped'

types: $(INSTALLED)  ## strict types: of the package, the tests and the benchmarks
	$(BIN)/mypy

interpreters: $(INSTALLED)  ## the tests of core and command line on each further CPython found here, and a tap alone on each
	./scripts/test_interpreters

wheels: $(INSTALLED)  ## build the sdist, the wheel for manylinux and the one for every platform into dist/, and their SBOM
	$(BIN)/python scripts/build_wheels.py
	./scripts/make_sbom || echo 'the SBOM was not written'

sbom: $(INSTALLED)  ## write the software bill of materials of what runs into dist/ (CycloneDX)
	./scripts/make_sbom

coverage: $(INSTALLED)  ## how many branches of the core its fast tests reach; fails below 95 %
	HYPOTHESIS_PROFILE=few $(BIN)/pytest -q -n 2 $(DISTRIBUTED) -m 'not slow' tests/core -k 'not on_how_the_bytes_come' --cov

check: $(INSTALLED)  ## format, lint, strict types, analysis of the C code, known vulnerabilities of dependencies
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	./scripts/analyze_c
	./scripts/audit_dependencies
	$(BIN)/mypy

format: $(INSTALLED)  ## put the code into form
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# A file gets what a command prints once that has ended well: a command that fails would leave it empty.
into = $(2) > $(1).new && mv $(1).new $(1) || { rm -f $(1).new; exit 1; }
generated: $(INSTALLED)  ## write again what is generated: the record's structs and JSON Schema, docs/reference, the runbooks as HTML, METRICS.md, the dashboards, the alert rules, the table of faults, the chart's settings
	$(BIN)/python -m scripts.record_structs
	$(call into,schemas/record.v1.json,$(BIN)/python -m streamgauge.records)
	$(call into,schemas/audit.v1.json,$(BIN)/python -m streamgauge.audit.result)
	$(BIN)/python -m scripts.generate_reference
	$(BIN)/python -m scripts.runbook_pages
	$(BIN)/python -m dashboards.source.generate
	$(call into,dashboards/prometheus/rules/streamgauge.yml,$(BIN)/streamgauge rules generate)
	$(call into,dashboards/prometheus/slo/sloth.yml,$(BIN)/streamgauge rules generate --output sloth)
	$(BIN)/python -m tests.faults.rows
	$(BIN)/python -m scripts.chart_settings

properties: $(INSTALLED)  ## the property tests, the vectors and the audit's planted errors with many examples; make test tries a fifth or less
	HYPOTHESIS_PROFILE=many $(BIN)/pytest -q -n 2 $(DISTRIBUTED) -m hypothesis
	HYPOTHESIS_PROFILE=many $(BIN)/pytest -q -n 2 $(DISTRIBUTED) tests/audit/world/test_world.py tests/core/test_vectors.py tests/core/assembly/test_plain_delta_members.py

SECONDS ?= 60
fuzz: $(INSTALLED)  ## fuzz every part of the core by coverage, and the relay with requests and responses, SECONDS each (60)
	./scripts/fuzz all --seconds $(SECONDS)
	./scripts/fuzz requests --seconds $(SECONDS)
	./scripts/fuzz responses --seconds $(SECONDS)

bench-audit: $(INSTALLED)  ## what an audit of a month and invoices of 2 GB take, written into docs/performance.md (some hours, 47 GB in /tmp)
	$(BIN)/python -m bench.audit --document docs/performance.md

bench-capture: $(INSTALLED)  ## what the relay spends on the capture of an event, written into docs/performance.md
	$(BIN)/python -m bench.capture --document docs/performance.md

bench-causes: $(INSTALLED)  ## how often an audit names the true cause, in 200 worlds, written into docs/performance.md (twenty minutes)
	$(BIN)/python -m bench.causes --document docs/performance.md

bench-core: $(INSTALLED)  ## how fast streams are put together, written into docs/performance.md
	$(BIN)/python -m bench.core --document docs/performance.md

bench-first-token: $(INSTALLED)  ## how far the exported time to first token is off what a client sees, written into docs/performance.md
	$(BIN)/python -m bench.first_token --document docs/performance.md

bench-inprocess: $(INSTALLED)  ## what taps in applications add to a chunk, written into docs/performance.md
	$(BIN)/python -m bench.inprocess --document docs/performance.md

bench-ledger: $(INSTALLED)  ## how fast records are stored, written into docs/performance.md
	$(BIN)/python -m bench.ledger --document docs/performance.md

bench-envoy: $(INSTALLED)  ## what reports of a real Envoy cost it and the tap, written into docs/performance.md
	$(BIN)/python -m bench.envoy --document docs/performance.md

bench-packets: $(INSTALLED)  ## how fast packets become messages, written into docs/performance.md
	$(BIN)/python -m bench.packets --document docs/performance.md

bench-page: $(INSTALLED)  ## how soon the page is painted with a million records, written into docs/performance.md (ten minutes, 5 GB in /tmp)
	$(BIN)/python -m bench.page --document docs/performance.md

bench-pump: $(INSTALLED)  ## how long a byte waits in the relay's pump while captured reads are collected, written into docs/performance.md
	$(BIN)/python -m bench.pump_lock --document docs/performance.md

bench-recorder: $(INSTALLED)  ## how many events a recorder carries for each CPU-second, written into docs/performance.md
	$(BIN)/python -m bench.recorder --document docs/performance.md

bench-recount: $(INSTALLED)  ## how fast tokens are counted in deltas, beside the whole-text encoder, written into docs/performance.md
	$(BIN)/python -m bench.recount --document docs/performance.md

bench-scrape: $(INSTALLED)  ## how long a page of metrics takes, written into docs/performance.md
	$(BIN)/python -m bench.scrape --document docs/performance.md

bench-startup: $(INSTALLED)  ## check that streamgauge --version and --help take at most 1.5 times as long as an import of click
	$(BIN)/python -m bench.startup

bench-tap: $(INSTALLED)  ## what a tap costs beside nginx, haproxy and others, written into docs/performance.md (a quarter of an hour)
	./scripts/install_packages 'nginx haproxy' nginx haproxy || echo 'missing proxies are left out, as the table says'
	$(BIN)/python -m bench.tap --document docs/performance.md

bench-websocket: $(INSTALLED)  ## how much later an event of a WebSocket arrives through `up`, nginx and Envoy, written into docs/performance.md
	$(BIN)/python -m bench.websocket --document docs/performance.md

bench-worker: $(INSTALLED)  ## what a worker carries beside a bare loop, written into docs/performance.md (twenty minutes)
	$(BIN)/python -m bench.worker --document docs/performance.md

scale: $(INSTALLED)  ## what a stream costs, and the tested limits, written into docs/scale.md (up to an hour, 35 GB in /tmp)
	./scripts/install_packages postgresql initdb postgres || echo 'what needs it is left out, as the page says'
	$(BIN)/python -m bench.scale_limits --check
	$(BIN)/python -m bench.scale --document docs/scale.md
	$(BIN)/python -m bench.scale_limits --document docs/scale.md

alerts: $(INSTALLED)  ## one outage after the other under a real Prometheus and Alertmanager: which alert comes (nine minutes)
	./scripts/install_packages 'prometheus prometheus-alertmanager' promtool prometheus amtool prometheus-alertmanager
	STREAMGAUGE_ALERTS=1 $(BIN)/python -m tests.kafka_broker $(BIN)/pytest -q -s tests/dashboards/test_outages.py

# In a network namespace, so that no client asks another host.
clients: $(INSTALLED)  ## real clients with and without a tap, written into docs/compatibility.md (ten minutes, 1 GB; needs npm and root)
	./scripts/install_clients build/clients
	unshare --net sh -c 'ip link set lo up && exec $(BIN)/python -m bench.clients --document docs/compatibility.md'

draw-dashboards: $(INSTALLED)  ## draw the dashboards with Grafana's own components into build/dashboards (five minutes; needs npm)
	$(BIN)/python -m tests.dashboards.draw build/dashboards

pictures: $(INSTALLED)  ## the documents' pictures of the built-in page and of top, of the demo's streams (two minutes): look at them
	./scripts/install_packages 'chromium fonts-dejavu-core' chromium
	$(BIN)/python -m tests.live.pictures docs

site: $(INSTALLED)  ## the documents as a site with a search, in build/site; fails if a link leads nowhere
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -f scripts/mkdocs.yml

faults: $(INSTALLED)  ## every fault of docs/reliability.md at its full length, four at a time (an hour)
	STREAMGAUGE_FAULTS=full $(BIN)/python -m tests.kafka_broker $(BIN)/pytest -q -n 4 $(DISTRIBUTED) --durations 60 $$($(BIN)/python -m tests.faults.rows tests)

MINUTES ?= 10
soak: $(INSTALLED)  ## a tap under load for MINUTES (10) while its broker is killed and comes back
	./scripts/install_packages prometheus promtool prometheus
	$(BIN)/python -m bench.soak --minutes $(MINUTES)

chaos: MINUTES := 5
chaos: $(INSTALLED)  ## workers, taps and the broker killed under traffic, MINUTES (5) each; a verifier judges every stream
	$(BIN)/python -m tests.chaos.run --minutes $(MINUTES)

LOCK := uv pip compile --universal --python-version 3.11 --generate-hashes --no-strip-extras --no-emit-index-url --no-annotate --no-header
# What README and tutorial use before anything else is installed; with what builds. One package is for browsers alone, one for
# Windows, where taps do not run.
DEMO_PARTS := --extra demo --extra rules --extra top --extra up --group build --no-emit-package httpx2-jsfetch --no-emit-package colorama
lock:  ## resolve the dependencies again (needs uv): what runs, that with what tests need, the demo's part, and what checks deploy/
	$(LOCK) --upgrade --all-extras pyproject.toml -o requirements.lock
	$(LOCK) --upgrade --all-extras --group dev --constraint requirements.lock pyproject.toml -o requirements-dev.lock
	$(LOCK) --upgrade $(DEMO_PARTS) --constraint requirements-dev.lock pyproject.toml -o requirements-demo.lock
	$(LOCK) --upgrade tests/deploy/tools.in -o tests/deploy/tools.lock

clean:  ## remove what was installed and built here
	rm -rf $(VENV) dist build pipeline/streamgauge/live/static/uplot pipeline/streamgauge/taps/proxy/native/_pump.abi3.so pipeline/streamgauge/core/http1/_chunks.abi3.so .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage

# Without a compilation of all modules: the demo imports few of them, and Python compiles those.
$(DEMO): requirements-demo.lock pyproject.toml scripts/build_hook.py scripts/build_native.py scripts/fetch_uplot.py $(wildcard pipeline/streamgauge/*/*/_*.c pipeline/streamgauge/*/*/*/_*.c)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Streamgauge needs Python 3.11 or newer: make PYTHON=/path/to/python3.11"; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo "$(PYTHON) cannot make a virtual environment: install its venv (Debian, Ubuntu: apt-get install python3-venv)"; exit 2; }
	@echo "Installing what the demo and \`streamgauge up\` need into $(VENV), about a minute:"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python scripts/install_locked.py requirements-demo.lock
	@echo "  Streamgauge itself, with its part in C"
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(BIN)/python -m scripts.missing_parts
	@touch $(DEMO)

$(INSTALLED): $(DEMO) requirements-dev.lock
	@echo "Installing what tests and checks need into $(VENV), some minutes:"
	@$(BIN)/python scripts/install_locked.py requirements-dev.lock
	@# pip itself compiles on one core. What cannot be compiled is not imported either.
	$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true
	@touch $(INSTALLED)
