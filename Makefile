# `make demo` and `make test` need nothing but a fresh Debian-like machine.
.PHONY: demo demo-setup test test-costs golden proof lint generate packages lock setup clean

PYTHON := .venv/bin/python
ONCE ?=
PART ?=
# Most tests wait rather than compute: more workers than processors.
WORKERS ?= 4

setup:
	@tools/setup

demo-setup:
	@tools/setup demo

demo: demo-setup ## run the whole pipeline on this machine, with faults; ONCE=1: one scripted tour
	@tools/private-mounts $(PYTHON) -m demo $(if $(ONCE),--once)

test-costs:
	@echo "make test: 25 minutes on two quiet cores; 1.7 GB of disk here, and some more below /tmp while it runs"

test: test-costs setup lint ## run everything that CI runs
	$(PYTHON) -m pytest --dist=loadfile --no-loadscope-reorder --tx=$(WORKERS)*popen//python=tools/test-python

# Together, as many as there are processors; the output of each is shown when it ends. The longest is
# first.
LINTS := lint-types lint-dashboards lint-generated lint-python39 lint-style lint-servers
.PHONY: $(LINTS)
lint: setup ## run everything that CI runs except tests
	@$(MAKE) --no-print-directory --jobs=$(shell nproc) --output-sync=target --keep-going $(LINTS)

lint-types:
	.venv/bin/mypy

lint-dashboards:
	.venv/bin/mypy --python-version 3.11 dashboards

lint-generated:
	$(PYTHON) tools/generate.py --check

lint-python39:
	.venv/bin/vermin --target=3.9- --violations --no-tips --quiet exporter/nodevitals

lint-style:
	.venv/bin/ruff check
	.venv/bin/ruff format --check

lint-servers:
	.tools/root/usr/bin/amtool check-config alertmanager/alertmanager.yaml alertmanager/minimal.yaml
	.tools/root/usr/bin/promtool check config --syntax-only exporter/packaging/prometheus.yaml

golden: setup ## write tests/data/golden.prom: what the agent of a whole simulated node exposes
	PYTHONPATH=$(CURDIR)/tests:$(CURDIR)/exporter tools/test-python -m testbed.golden

proof: setup ## run the benchmarks and the long forms of tests; PART=NAME runs one of them
	tools/private-mounts $(PYTHON) -m tests.bench $(PART)

generate: setup ## write the files that are generated from code
	$(PYTHON) tools/generate.py

# Compiled modules are bound to one Python: FOR_PYTHON=3.12 for nodes with another one than this machine.
packages: setup ## build the Debian and RPM package into dist; FOR_PYTHON=3.12, ARCH=arm64
	$(PYTHON) tools/packages.py $(if $(FOR_PYTHON),--python $(FOR_PYTHON)) $(if $(ARCH),--arch $(ARCH))

lock: setup ## renew what the container image is made of; needs Debian 12
	$(PYTHON) exporter/packaging/image/lock.py

clean:
	rm -rf .venv .tools .demo .demo-pictures dist
