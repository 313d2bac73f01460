"""Two processes against one on a sample of types: copies of the weights (DDP), and shards (FSDP2).

`python -m scripts.model_sweep.processes RESULTS FAMILY:TYPE...` writes {"DDP": {FAMILY:TYPE: "yes" or why not},
"FSDP2": ...} as JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.multiprocessing
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from mmrl.core.batch import Batch
from mmrl.distributed.ddp import DDP
from mmrl.distributed.parallel import allow_unused_parameters, rank_and_size
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


def compare(path: str, family: str, score: Callable[[Any, Batch, Tensor], tuple[Tensor, Tensor]]) -> str:
    """Compare scores of rows and gradients of all weights of one process with those of two.

    Args:
        path: of the checkpoint.
        family: of the type.
        score: scores rows with a policy whose weights two processes have, computes the gradients of their sum, and
            returns the scores and those of one process, given as the last argument.
    """
    policy = POLICIES[family](path=path)
    batch, _ = sample(policy)
    whole = policy.train()(batch).logprobs
    whole.sum().backward()
    alone = {name: weight.grad for name, weight in policy.named_parameters()}
    policy.zero_grad()
    scored, expected = score(policy, batch, whole)
    if not (difference := float((scored - expected).detach().abs().max())) < EXACT:
        return f"scores differ by {difference:.1g} nats"
    for name, weight in policy.named_parameters():
        gradient = weight.grad.full_tensor() if isinstance(weight.grad, DTensor) else weight.grad
        one = alone[name]
        if one is None and gradient is None:
            continue
        # no gradient is one of zero
        scale = 0.0 if one is None else float(one.abs().max())
        difference = scale if gradient is None else float((gradient - (0 if one is None else one)).abs().max())
        if not difference < EXACT * (1 + scale):
            return f"the gradient of {name} differs by {difference:.1g}"
    return "yes"


def finds_unused(policy: Any) -> bool:
    """Whether `strategy=ddp` looks for weights without a gradient."""
    trainer = SimpleNamespace(strategy=DDP())
    allow_unused_parameters(trainer, policy)
    return trainer.strategy._ddp_kwargs.get("find_unused_parameters", False)


def score_copies(policy: Any, batch: Batch, whole: Tensor) -> tuple[Tensor, Tensor]:
    """Score every second row in each process, whose gradients torch averages."""
    rank, size = rank_and_size()
    rows = torch.arange(rank, len(whole), size)
    model = DistributedDataParallel(policy, find_unused_parameters=finds_unused(policy))
    for _ in range(2):  # a weight without a gradient in the first pass is refused in the second
        policy.zero_grad()
        scored = model(batch.select(rows)).logprobs
        (size * scored.sum()).backward()
    return scored, whole[rows]


def score_shards(policy: Any, batch: Batch, whole: Tensor) -> tuple[Tensor, Tensor]:
    """Score all rows in each process, with shards of the weights."""
    shard(policy, init_device_mesh("cpu", (2,)))
    scored = policy(batch).logprobs
    scored.sum().backward()
    return scored, whole


STRATEGIES = {"DDP": score_copies, "FSDP2": score_shards}


def run_rank(rank: int, folder: str, types: list[str], results: str) -> None:
    """Compare the types in one of two processes."""
    wait = timedelta(seconds=90)  # for a process that has failed alone
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2, timeout=wait
    )
    outcomes: dict[str, dict[str, str]] = {strategy: {} for strategy in STRATEGIES}
    for each in types:
        family, _, kind = each.partition(":")
        for strategy, score in STRATEGIES.items():
            try:
                outcomes[strategy][each] = compare(f"{folder}/{family}-{kind}", family, score)
            except Exception as error:  # in both processes alike
                outcomes[strategy][each] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            if rank == 0:
                print(each, strategy, outcomes[strategy][each], flush=True)
        if rank == 0:
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
