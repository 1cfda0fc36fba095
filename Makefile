# One word per chore.

PYTHON ?= python

.PHONY: check test nightly conformance conformance-full bench docs package fmt replay

# What must hold before a change is shown to anyone: seconds, not minutes.
check:
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	$(PYTHON) -m mypy
	$(PYTHON) -m pytest -q tests/test_smoke.py

# Everything except the full conformance tier and other nightly tests.
test:
	$(PYTHON) -m pytest -n auto -m "not nightly" tests

# All of them. PYTHON=python3.15 (or another): its tests of numbers as well, which .ci/run leaves out.
nightly:
	$(PYTHON) -m pytest -n auto tests

# PyTorch's own op tests against Lucerne: the tier that fits in a change, and all of it.
conformance:
	$(PYTHON) -m tests.conformance fast

conformance-full:
	$(PYTHON) -m tests.conformance full

# Is a change a refactor? Graphs, guards, breaks and kernels of two commits, compared.
replay:
	$(PYTHON) -m tests.replay against $(BASE)

bench:
	$(PYTHON) -m benchmarks suite

# The site: pages and a reference of every public name, in build/docs (extra `docs`).
docs:
	$(PYTHON) -m tools.site

# What a release uploads, in dist.
package:
	$(PYTHON) -m tools.package dist

fmt:
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .
