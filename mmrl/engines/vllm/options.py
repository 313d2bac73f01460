"""vLLM engine arguments, in process or for a server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from transformers import AutoConfig

from mmrl.engines.vllm.sampling import TIED, WIDEST
from mmrl.engines.vllm.worker import EMPTY, EXTENSION, LOADER, TRANSFER
from mmrl.files.pretrained import load_pretrained
from mmrl.policies.text.architecture import list_unknown_types

BLOCK = 32  # tokens of a prefix-cache block; supported by CPU and GPU attention


def engine_options(
    folder: Path,
    on_cpu: bool,
    dtype: str | None = None,
    max_model_len: int | None = None,
    eager: bool | None = None,
    cache_gib: float | None = None,
    memory_share: float | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Return the arguments of `vllm.EngineArgs` by name, as JSON values.

    Args:
        folder: the checkpoint.
        on_cpu: whether it is vLLM's build for CPUs.
        dtype: of weights and arithmetic; None takes that of the checkpoint, which vLLM's own "auto" would round.
        max_model_len: prompt and completion together, in tokens; None takes all that the model allows.
        eager: no CUDA graphs and no compilation; None is true on a CPU and leaves it to vLLM otherwise.
        cache_gib: memory of the key-value cache; None is 1 on a CPU and leaves it to vLLM otherwise.
        memory_share: of the accelerator's memory that vLLM may use; None leaves it to vLLM.
        seed: of vLLM itself; every request brings its own.
    """
    options: dict[str, Any] = {
        "model": str(folder),
        "dtype": dtype or checkpoint_dtype(folder),
        "seed": seed,
        "block_size": BLOCK,
        # a recurrent state is that of a whole prompt: vLLM stores it by blocks only where prompts are read in chunks
        "enable_prefix_caching": not keeps_state(folder),
        "load_format": LOADER,
        "weight_transfer_config": {"backend": TRANSFER},
        "worker_extension_cls": EXTENSION,
        "logprobs_mode": "processed_logprobs",
        "max_logprobs": WIDEST + TIED,
        "generation_config": "vllm",  # the checkpoint's generation config would change the sampling
        "structured_outputs_config": {"backend": "guidance"},  # llguidance, as the learner computes the masks again
    }
    if on_cpu:
        eager, cache_gib = (True if eager is None else eager), (1.0 if cache_gib is None else cache_gib)
        options["skip_mm_profiling"] = True  # the cache size is fixed
        # with chunked prefill vLLM rewinds a request's random generator, which fails on a CPU
        options["enable_chunked_prefill"] = False
    settings = {
        "max_model_len": max_model_len,
        "enforce_eager": eager,
        "kv_cache_memory_bytes": None if cache_gib is None else int(cache_gib * 2**30),
        "gpu_memory_utilization": memory_share,
    }
    return options | {name: value for name, value in settings.items() if value is not None}


def keeps_state(folder: Path) -> bool:
    """Whether layers of a checkpoint keep a summary of all earlier tokens, or states that are not keys and values."""
    try:
        config = load_pretrained(AutoConfig, folder)  # the file itself states no layer types of Mamba, Jamba, Falcon-H1
    except ValueError:  # a type that this transformers does not know; vLLM says so, or knows it
        return True
    return bool(list_unknown_types(config))


def load_format(folder: Path) -> str:
    """Return vLLM's load format for a checkpoint folder, which may have no weights."""
    return EMPTY if next(folder.glob("*.safetensors"), None) is None else LOADER


def checkpoint_dtype(folder: Path) -> str:
    """Return the dtype in which a checkpoint folder stores its weights."""
    config = json.loads((folder / "config.json").read_text())
    return config.get("dtype") or config.get("torch_dtype") or "float32"
