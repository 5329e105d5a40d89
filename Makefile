# The one entry point for people and for CI. `make help` lists the targets.
PYTHON ?= python3
MODEL ?= smollm2
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Torch is a test tool only, pinned by version: an unpinned torch draws gigabytes.
TORCH := torch==2.13.0
ORDINARY := "not chaos and not soak and not full"
PURE := $(addprefix tests/,architecture unit property scenarios replay)
SCENARIO ?= all
SEED ?= 1
DATA ?=
NATIVE := CMakeLists.txt $(wildcard native/*.h native/*.cpp native/kernels/*)
CMAKE = PATH="$(CURDIR)/$(BIN):$$PATH" cmake -S . -G Ninja -DTERCET_PYTHON=OFF -DTERCET_TESTS=ON
INSTALL = $(PIP) install --no-deps --no-build-isolation --editable .
# Where the peers of `make bench-peers` are installed: outside our environment.
PEERS ?= .peers

.PHONY: help setup serve test check parity chaos soak bench bench-peers accuracy sim lock clean

help:
	@echo "make serve [MODEL=smollm2]     install what is needed and serve on 127.0.0.1:8000"
	@echo "make test                      every test that fits 15 minutes on two cores"
	@echo "make check                     lint, strict types, tests/architecture"
	@echo "make parity                    the whole comparison with transformers"
	@echo "make native | sanitize | emulate   kernels alone | under sanitizers | as on ARM"
	@echo "make chaos | soak              kills and hangs for minutes | long runs"
	@echo "make bench [DATA=folder]       the tables of docs/benchmarks"
	@echo "make bench-peers               beside OpenVINO GenAI, vLLM and llama.cpp (installs gigabytes)"
	@echo "make accuracy DATA=folder      quantized models on WikiText-2, LAMBADA and PIQA"
	@echo "make sim [SCENARIO=x] [SEED=n] the machines in virtual time"
	@echo "make lock                      resolve requirements/*.lock anew"

setup: $(VENV)/.runtime

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Tercet needs Python 3.11 or newer; '$(PYTHON)' is older. Use make PYTHON=..."; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "'$(PYTHON) -m venv' failed: install your system's venv package (Debian: python3-venv)"; exit 1; }

$(VENV)/.dependencies: requirements/runtime.lock requirements/build.lock | $(BIN)/python
	@echo "Installing the locked dependencies into $(VENV) ..."
	@$(PIP) install --require-hashes -r requirements/runtime.lock -r requirements/build.lock
	@touch $@

# The native device needs a C++20 compiler. Without one everything else works: the reference device
# serves, slowly, and `make setup` can be run again.
$(VENV)/.runtime: $(VENV)/.dependencies pyproject.toml $(NATIVE)
	@echo "Building the native CPU device ..."
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(INSTALL) > $(VENV)/build.log 2>&1 || { \
	  echo "The native CPU device could not be built ($(VENV)/build.log says why)."; \
	  echo "It needs a C++20 compiler (Debian: apt install g++; Fedora: dnf install gcc-c++)."; \
	  echo "Going on without it: models are served by the reference device, much slower."; \
	  SKBUILD_WHEEL_CMAKE=false $(INSTALL); }
	@touch $@

$(VENV)/.test: $(VENV)/.runtime requirements/test.lock requirements/parity.lock
	@echo "Installing the test tools ..."
	@$(PIP) install --require-hashes -r requirements/test.lock
	@$(PIP) install --require-hashes -r requirements/parity.lock && $(PIP) install $(TORCH) || \
	  echo "Torch or transformers could not be installed: parity tests will be skipped."
	@touch $@

serve: setup
	@$(BIN)/tercet serve $(MODEL)

# What computes alone takes both cores; what has processes, threads and patience of its own runs by
# itself.
test: $(VENV)/.test
	$(BIN)/python -m pytest -m $(ORDINARY) -n 2 --dist worksteal $(PURE)
	$(BIN)/python -m pytest -m $(ORDINARY) tests $(PURE:%=--ignore=%)

check: $(VENV)/.test
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/architecture

# The kernels' own tests; under sanitizers; and the portable path on another processor, emulated
# (Debian: apt install g++-aarch64-linux-gnu qemu-user).
native: setup
	@$(CMAKE) -B build/native && $(BIN)/cmake --build build/native && \
	  build/native/native/tests/native_tests

sanitize: setup
	@for kind in address,undefined thread; do \
	  $(CMAKE) -B build/sanitize-$$kind -DTERCET_SANITIZE=$$kind && \
	  $(BIN)/cmake --build build/sanitize-$$kind && \
	  build/sanitize-$$kind/native/tests/native_tests || exit 1; done

emulate: setup
	@$(CMAKE) -B build/aarch64 -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
	  -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ && $(BIN)/cmake --build build/aarch64 && \
	  qemu-aarch64 -L /usr/aarch64-linux-gnu build/aarch64/native/tests/native_tests

parity: $(VENV)/.test
	$(BIN)/python -m pytest -m parity -s tests/parity

chaos: $(VENV)/.test
	$(BIN)/python -m pytest -m chaos -s tests

soak: $(VENV)/.test
	TERCET_EXAMPLES=random $(BIN)/python -m pytest tests/property
	$(BIN)/python -m pytest -m soak -s tests

bench: $(VENV)/.test
	$(BIN)/python -m benchmarks --data "$(DATA)"

bench-peers: $(VENV)/.test
	$(BIN)/python -m benchmarks.peers --peers "$(PEERS)" --write

accuracy: $(VENV)/.test
	$(BIN)/python -m benchmarks.accuracy --data "$(DATA)" --write

sim: setup
	@$(BIN)/tercet sim $(SCENARIO) --seed $(SEED)

lock: | $(BIN)/python
	@$(PIP) install uv
	@$(BIN)/python tests/architecture/lock.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
