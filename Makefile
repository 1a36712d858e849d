# What people and CI type. `make test` is the whole truth; `make check` is its fast part.
PYTHON ?= python3
BIN := .venv/bin
SOURCES := pyproject.toml hatch_build.py scripts/venv scripts/locks/development.txt go.mod go.sum $(shell find agent channel confine edge native policy puller relay -type f 2>/dev/null)

.PHONY: help deps install demo test check lock native-check soak bench dist docs clean

help:
	@echo "make demo    an agent's computer that works, sleeps, wakes, forks and rolls back"
	@echo "make check   lint, types, import rules, unit tests: no sandbox is started; ONLY=mypy runs one of them"
	@echo "make test    check, then integration and end-to-end tests, as root and as an ordinary user"
	@echo "make lock    the newest Python packages to develop and test with, into scripts/locks"
	@echo "make native-check   our changes applied to gVisor and checked by Go; VERSION=... names another gVisor (minutes)"
	@echo "make soak    what takes too long for make test, hours; ONLY=churn runs one of its parts, an hour at most"
	@echo "make bench   the numbers of SPECIFICATION.md, measured here"
	@echo "make dist    the wheels of atoll, for this processor and for any, and of atoll-base (the ready-made image), in dist/"
	@echo "make docs    the site of the documentation, in dist/docs; needs nothing but Python"
	@echo "make clean   remove what was built (the home with your sandboxes stays)"

deps:
	@scripts/deps

install: .venv/.installed

.venv/.installed: $(SOURCES)
	@PYTHON=$(PYTHON) scripts/venv
	@touch $@

demo: deps install
	@$(BIN)/python examples/demo.py

check: install
	@for tool in gcc shellcheck; do command -v $$tool >/dev/null || exec scripts/deps tests; done
	@$(BIN)/python scripts/checks.py $(ONLY)

test:
	@scripts/test-all

lock:
	@PYTHON=$(PYTHON) scripts/lock

native-check:
	@$(PYTHON) scripts/native_check.py $(VERSION)

soak: deps install
	@$(BIN)/python scripts/soak.py $(ONLY)

bench: deps install
	@$(BIN)/python -m bench

dist: deps install
	@scripts/dist

docs:
	@PYTHON=$(PYTHON) scripts/docs

clean:
	rm -rf .venv .venv-docs dist packaging/base/src/atoll_base/base.* src/atoll/_bin .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find src tests bench scripts examples -name __pycache__ -type d -prune -exec rm -rf {} +
