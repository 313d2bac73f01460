"""One process of a run of bench_scale.py: train like `mmrl fit WORDS` and write FILE.RANK: scale_run.py FILE WORDS...

With COUNT_COLLECTIVES in the environment every collective is counted and timed, which slows the run down.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import lightning as L
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._pytree import tree_leaves

from benchmark.collectives import CountCollectives, time_reductions, time_together
from benchmark.fit_memory import read_status
from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.distributed.sharding import gather_weights, is_sharded


class Watch(L.Callback):
    """Note what this process holds, its tokens and, at the end, the seconds of collectives that nothing disturbs."""

    def __init__(self, count: CountCollectives | None) -> None:
        self.count = count
        self.iterations = 0
        self.tokens: list[int] = []  # sampled in each iteration
        self.learned: list[int] = []  # choices of each micro-batch
        self.held: dict[str, int] = {}
        self.peak = 0  # bytes, before anything is timed
        self.alone: dict[str, float] = {}
        self.used: dict[str, Any] = {}

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._enter("collect")

    def on_rollout_end(self, trainer: Any, collected: Any, batch: Any, ctx: Any) -> None:
        self.tokens.append(sum(episode.tokens for episode in collected.episodes))
        self._enter("learn")

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self.learned.append(int(batch["action_mask"].sum()))

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self.iterations += 1
        self._enter("end")

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Gradients are there; the optimiser has its state from the second step on."""
        parameters = list(pl_module.policy.parameters())
        self.held = {
            "weights": sum(map(local_bytes, parameters)),
            "gradients": sum(local_bytes(p.grad) for p in parameters if p.grad is not None),
            "optimizer": sum(local_bytes(t) for o in trainer.optimizers for t in tensors(o.state)),
        }

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        on_gpu = pl_module.device.type == "cuda"
        self.peak = torch.cuda.max_memory_allocated(pl_module.device) if on_gpu else read_status("VmHWM")
        if self.count is not None:
            self.used = self.count.per_iteration(self.iterations)
        elif trainer.world_size > 1:
            policy, device = pl_module.policy, pl_module.device
            trained = sum(p.numel() * p.element_size() for p in policy.parameters() if p.requires_grad)
            self.alone = time_reductions(trained, device)
            if is_sharded(policy):
                self.alone["gather_weights"] = time_together(lambda: gather_once(policy), device)

    def _enter(self, phase: str) -> None:
        if self.count is not None:
            self.count.phase = phase


def gather_once(policy: Any) -> None:
    with gather_weights(policy):
        pass


def tensors(state: Any) -> list[Tensor]:
    """The tensors of an optimiser's state; numbers of steps are among them."""
    return [leaf for leaf in tree_leaves([dict(each) for each in state.values()]) if isinstance(leaf, Tensor)]


def local_bytes(value: Any) -> int:
    """Bytes of a tensor on this process."""
    return int((value.to_local() if hasattr(value, "to_local") else value).nbytes)


def main() -> None:
    file, words = sys.argv[1], sys.argv[2:]
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    cli = CLI(to_lightning(compose(words)), build=False)
    before = read_status("VmRSS")
    cli.build()
    count = CountCollectives() if os.environ.get("COUNT_COLLECTIVES") else None
    watch = Watch(count)
    cli.trainer.callbacks.append(watch)
    with count or nullcontext():
        cli.fit(False)
    found = {
        "before": before,
        "peak": watch.peak,
        "tokens": watch.tokens,
        "learned": watch.learned,
        "held": watch.held,
        "alone": watch.alone,
        "used": watch.used,
    }
    Path(f"{file}.{os.environ.get('RANK', '0')}").write_text(json.dumps(found))
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
