# make setup   the environment: .venv with torch (CPU), unpatch and torch_vnpu, in place
# make demo    ablate the historical torch_npu patches and write evidence/
# make test    style, types and tests
# make opinfo  PyTorch's operator database on npu against CPU, all of it (some ten minutes); writes docs/operators.md
# make audit-truth  audits of real packages against what is known of them (some six minutes)
# make readers  real readers of traces (HolisticTraceAnalysis, torch-tb-profiler) on traces of ours
# make bench   what README and docs quote of time (but for audits: docs/audit.md)
# Each needs Python 3.11, gcc (with g++) and make, nothing else; nothing is built again where nothing changed.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.PHONY: setup demo test check opinfo audit-truth readers bench clean

PYTHON ?= $(shell command -v python3.11 || command -v python3)
JOBS ?= 2
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Without a compiler cache two units at a time fit in 4 GB.
export MAX_JOBS ?= $(JOBS)

NATIVE := $(shell find torch_vnpu/csrc -name '*.cpp' -o -name '*.h') torch_vnpu/setup.py torch_vnpu/pyproject.toml

setup: $(STAMPS)/native

$(STAMPS)/torch:
	@echo "== environment: $(VENV) with torch 2.13.0 (about a minute)"
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if v == (3, 11) else f"Python 3.11 is needed, {sys.executable} is {v[0]}.{v[1]}; say make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch==2.13.0 numpy 'setuptools>=77' ninja
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/unpatch: $(STAMPS)/torch unpatch/pyproject.toml requirements-dev.txt
	@echo "== unpatch and the tools of the tests"
	$(PIP) -r requirements-dev.txt
	$(PIP) --no-build-isolation -e './unpatch[torch]'
	@touch $@

# pip is silent about what it compiles; of ninja's lines the number and the file are shown, errors as they come.
$(STAMPS)/native: $(STAMPS)/unpatch $(NATIVE)
	@echo "== torch_vnpu: $(words $(filter %.cpp,$(NATIVE))) C++ files, two at a time (about a minute)"
	@: > $(STAMPS)/build.log; \
	  $(BIN)/python -m pip install --disable-pip-version-check -v --no-deps --no-build-isolation -e ./torch_vnpu >> $(STAMPS)/build.log 2>&1 & build=$$!; \
	  tail -n +1 -f --pid=$$build $(STAMPS)/build.log | sed -un -E 's#^ *(\[[0-9]+/[0-9]+\]) .* -c .*/csrc/([^ ]+\.cpp) .*#   \1 \2#p; /(error|Error):/p' ; \
	  wait $$build || { tail -40 $(STAMPS)/build.log; echo "the build failed; all of it is in $(STAMPS)/build.log"; exit 1; }
	@touch $@

demo: setup
	$(BIN)/unpatch ablate studies/torch_npu --out evidence

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# One torch thread a worker: the workers share the cores.
test: check
	OMP_NUM_THREADS=1 $(BIN)/pytest -n $(JOBS) --dist loadscope

# Interrupted, it goes on where it was, as long as the backend is the same.
opinfo: setup
	PYTHONPATH=torch_vnpu/tests/support $(BIN)/python -m opinfo docs/operators.md --jobs $(JOBS)

$(STAMPS)/audit-extras: $(STAMPS)/unpatch requirements-audit.txt
	rm -rf $(VENV)/audit-extras
	$(PIP) --no-deps --target $(VENV)/audit-extras -r requirements-audit.txt
	@touch $@

audit-truth: setup $(STAMPS)/audit-extras
	OMP_NUM_THREADS=1 UNPATCH_AUDIT_EXTRAS=$(CURDIR)/$(VENV)/audit-extras $(BIN)/pytest -m real unpatch/tests/audit

# Beside the environment: their own dependencies are many, of which reading needs few.
$(STAMPS)/readers: $(STAMPS)/native requirements-readers.txt
	$(PIP) --no-deps --target $(VENV)/readers -r requirements-readers.txt
	@touch $@

readers: $(STAMPS)/readers
	PYTHONPATH=$(abspath $(VENV)/readers) OMP_NUM_THREADS=1 $(BIN)/pytest -m readers torch_vnpu/tests/test_trace_readers.py

bench: setup
	@TASK_QUEUE_ENABLE=0 $(BIN)/python benchmarks/op_overhead.py
	@for file in $(filter-out benchmarks/audit.py,$(wildcard benchmarks/*.py)); do echo "== $$file"; $(BIN)/python $$file; done

clean:
	rm -rf $(VENV) evidence torch_vnpu/build torch_vnpu/src/torch_vnpu/*.so
