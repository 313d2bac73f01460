"""One process of `bench_scale.py --measure decoding`: decode with FSDP2 in two ways and write FILE.RANK.

gathered: the weights are gathered once, and decoding communicates nothing. aligned: the weights outside the blocks stay
gathered, and those of each block are gathered in every decoding step, so that all ranks have to make as many steps.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

from benchmark.collectives import CountCollectives, synchronize
from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.rng import Noise
from mmrl.distributed.sharding import gather_weights, shard

PROMPT_TOKENS = 32


@contextmanager
def gather_root(policy: Any) -> Iterator[None]:
    """Gather the weights outside the blocks; those of a block are gathered in each call of it."""
    policy._get_fsdp_state()._lazy_init()
    policy.unshard()
    try:
        yield
    finally:
        policy.reset_iter_state()
        policy.reshard()


WAYS: dict[str, Callable[[Any], Any]] = {"gathered": gather_weights, "aligned": gather_root}


def build_decode(policy: Any, data: Any, device: torch.device) -> Callable[[], Tensor]:
    """Return a function that decodes `max_tokens` tokens for this rank's rows, whose prompts are random ids."""
    policy.stop_condition = lambda strings: lambda ids: torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
    count = data.num_prompts // dist.get_world_size()
    generator = torch.Generator().manual_seed(dist.get_rank())
    ids = torch.randint(5, policy.model.config.vocab_size, (count, PROMPT_TOKENS), generator=generator).to(device)
    owner = torch.arange(count * data.group_size, device=device) // data.group_size
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return lambda: policy.act_groups(inputs, owner, data.sampling, Noise(range(len(owner)))).action


def measure(policy: Any, decode: Callable[[], Tensor], rounds: int, device: torch.device) -> dict[str, Any]:
    """Count the bytes of each way, and time them in turn.

    Raises:
        RuntimeError: the ways decode different tokens.
    """
    found: dict[str, Any] = {name: {"seconds": [], "cpu": []} for name in WAYS}
    tokens = {}
    for name, way in WAYS.items():  # warms up
        with CountCollectives() as counted, way(policy):
            tokens[name] = decode()
        used = {kind: each for (_, kind), each in counted.used.items()}
        found[name] |= {"bytes": used["all_gather"].bytes, "calls": used["all_gather"].calls}
    if not torch.equal(*tokens.values()):
        raise RuntimeError("the two ways decode different tokens")
    for _ in range(rounds):
        for name, way in WAYS.items():
            dist.barrier()
            started, cpu = time.perf_counter(), time.process_time()
            with way(policy):
                decode()
            synchronize(device)
            found[name]["cpu"].append(time.process_time() - cpu)
            dist.barrier()
            found[name]["seconds"].append(time.perf_counter() - started)
    rows, steps = tokens["gathered"].shape
    return {**found, "rows": rows, "steps": steps}


def main() -> None:
    file, rounds, words = sys.argv[1], int(os.environ["ROUNDS"]), sys.argv[2:]
    cli = CLI(to_lightning(compose(words)), build=False)
    cli.build()
    on_gpu = cli.trainer.strategy.root_device.type == "cuda"
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    policy: Any = cli.model.policy
    parameters = sum(parameter.numel() for parameter in policy.parameters())
    shard(policy, init_device_mesh(device.type, (dist.get_world_size(),)))
    policy.eval()
    found = measure(policy, build_decode(policy, cli.datamodule, device), rounds, device)
    Path(f"{file}.{os.environ['RANK']}").write_text(json.dumps({**found, "parameters": parameters}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
