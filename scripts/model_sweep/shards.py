"""Sharded weights (FSDP2) of two processes against one, on a sample of types.

`python -m scripts.model_sweep.shards RESULTS FAMILY:TYPE...` writes {FAMILY:TYPE: "yes" or why not} as JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing
from torch.distributed.device_mesh import init_device_mesh

from mmrl.distributed.sharding import shard
from scripts.model_sweep.checkpoints import build_checkpoint
from scripts.model_sweep.checks import POLICIES
from scripts.model_sweep.experts import EXACT, sample

SAMPLE = (
    *("text:llama", "text:gemma3_text", "text:qwen3_moe", "text:mixtral", "text:gpt_oss", "text:deepseek_v3"),
    *("text:deepseek_v4", "text:llama4_text", "text:qwen3_5_text", "text:qwen3_next", "text:nemotron_h", "text:jamba"),
    *("text:kimi_linear", "text:minimax", "text:granitemoehybrid", "text:falcon_h1", "text:bamba", "text:lfm2"),
    *("text:lfm2_moe", "text:lfm3", "text:olmo_hybrid", "text:bailing_hybrid", "text:mamba", "text:mamba2"),
    *("text:falcon_mamba", "text:qwen4_exp_text", "text:qwen3_5_moe_text"),
    *("image:llava", "image:qwen2_5_vl", "image:qwen3_vl_moe", "image:qwen3_5", "image:qwen3_5_moe"),
    *("image:qwen4_exp", "image:lfm2_vl", "image:lfm3_vl", "image:nemotron_h_omni"),
)
"""Dense models, mixtures of experts of each kind of router, hybrid and recurrent models, and two halves."""


def compare_shards(path: str, family: str, mesh: Any) -> str:
    """Compare scores of rows and gradients of all weights of one process with those of shards."""
    policy = POLICIES[family](path=path)
    batch, _ = sample(policy)
    whole = policy.train()(batch).logprobs
    whole.sum().backward()
    gradients = {name: weight.grad for name, weight in policy.named_parameters()}
    policy.zero_grad()
    shard(policy, mesh)
    scored = policy(batch).logprobs
    scored.sum().backward()
    if not (difference := float((scored - whole).abs().max())) < EXACT:
        return f"scores differ by {difference:.1g} nats"
    for name, weight in policy.named_parameters():
        if (expected := gradients[name]) is None or weight.grad is None:
            continue
        gradient = weight.grad.full_tensor()
        if not (difference := float((gradient - expected).abs().max())) < EXACT * (1 + float(expected.abs().max())):
            return f"the gradient of {name} differs by {difference:.1g}"
    return "yes"


def run_rank(rank: int, folder: str, types: list[str], results: str) -> None:
    """Compare the types in one of two processes."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    mesh, outcomes = init_device_mesh("cpu", (2,)), {}
    for each in types:
        family, _, kind = each.partition(":")
        try:
            outcomes[each] = compare_shards(f"{folder}/{family}-{kind}", family, mesh)
        except Exception as error:  # in both processes alike
            outcomes[each] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        if rank == 0:
            print(each, outcomes[each], flush=True)
            Path(results).write_text(json.dumps(outcomes, indent=1) + "\n")
    torch.distributed.destroy_process_group()


def main(results: str, types: list[str]) -> None:
    """Build the checkpoints, and compare them in two processes."""
    with tempfile.TemporaryDirectory(prefix="sweep_models_") as folder:
        for each in types:
            family, _, kind = each.partition(":")
            build_checkpoint(kind, family, Path(folder) / f"{family}-{kind}")
        torch.multiprocessing.spawn(run_rank, (folder, types, results), nprocs=2)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:] or list(SAMPLE))
