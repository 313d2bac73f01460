"""Table of docs/scale.md: bytes of a learning pass whose sequence is divided over processes, measured and planned.

python scripts/scale/sequence_memory.py [--tokens 4096] [--sizes 1 2 4]

Every process counts the bytes of all tensors that are alive in forward and backward pass of one row, beyond weights and
their gradients (`LiveBytes`), with gloo on a CPU. The plan is that of `mmrl plan`, which starts no process.
"""

from __future__ import annotations

import argparse
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

from mmrl.commands.planning.live_bytes import LiveBytes
from mmrl.commands.planning.passes import PlannedGroup, TextPasses
from mmrl.commands.planning.prompts import Prompts, build_batch
from mmrl.commands.planning.shapes import fake_weights
from mmrl.distributed.sequence_group import build_sequence_group
from mmrl.policies.text.policy import TextPolicy

MIB = 1 << 20
ARCHITECTURE = {
    "model_type": "qwen2",
    "hidden_size": 256,
    "intermediate_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1 << 17,
}


@dataclass(frozen=True)
class Case:
    """Rows of a learning pass: `rows` completions of one prompt, in one sequence where that is cheaper."""

    prompt: int  # tokens
    completion: int  # tokens
    rows: int = 1
    checkpointing: bool = False


def measure(case: Case, size: int) -> dict[str, int]:
    """Measure the largest number of bytes of a process, of `size` that divide a sequence, and plan it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    processes = [context.Process(target=_measure_rank, args=(case, rank, size, port, queue)) for rank in range(size)]
    for process in processes:
        process.start()
    results = [queue.get() for _ in processes]
    for process in processes:
        process.join()
    return {name: max(result[name] for result in results) for name in results[0]} | {"planned": plan(case, size)}


def plan(case: Case, size: int) -> int:
    """Plan the bytes beyond weights and gradients, as `mmrl plan` does."""
    policy = TextPolicy(config=dict(ARCHITECTURE))
    fake_weights(policy)
    passes = TextPasses(policy, "cpu", mixed=False)
    with PlannedGroup(size=size).divide():
        learn = passes.learn(_build_rows(policy, case), case.checkpointing)
    assert learn is not None
    return learn.next_peak


def _measure_rank(case: Case, rank: int, size: int, port: int, queue: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    torch.manual_seed(0)
    policy = TextPolicy(config=dict(ARCHITECTURE), gradient_checkpointing=case.checkpointing)
    policy.measure_network()
    batch = _build_rows(policy, case)
    tokens = policy.extract_tokens(batch)
    sizes: list[int] = []
    policy.model.get_input_embeddings().register_forward_hook(lambda *call: sizes.append(call[1][0].shape[1]))
    with build_sequence_group(size, torch.device("cpu")).divide():
        batches = policy.choose_packing(tokens, batch)
        sizes.clear()
        live = LiveBytes(policy)
        with live, live.gradients_aside(policy):
            parts = policy.score_batches(tokens, batches, batch)
            torch.stack([part.sum() for part in parts if part.requires_grad]).sum().backward()
    queue.put({"measured": live.peak_of_rest, "tokens": sizes[0]})
    dist.destroy_process_group()


def _build_rows(policy: TextPolicy, case: Case) -> Any:
    prompts = Prompts([{"input_ids": torch.full((case.prompt,), 7)}], "given")
    return build_batch(policy, prompts, rows=case.rows, of_prompt=case.rows, choices=case.completion)


def format_rows(case: Case, sizes: Sequence[int]) -> list[str]:
    """Measure a case and format its rows of the table."""
    results = {size: measure(case, size) for size in sizes}
    first = results[sizes[0]]["measured"]
    what = f"{case.rows} of {case.completion} after {case.prompt}"
    checkpointing = "yes" if case.checkpointing else "no"
    return [
        f"| {what} | {checkpointing} | {size} | {result['tokens']:,} | {result['measured'] / MIB:,.1f} | "
        f"{result['measured'] / first:.2f} | {result['planned'] / MIB:,.1f} |"
        for size, result in results.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=4096, help="of prompt and completions together")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 2, 4], help="processes that divide a sequence")
    options = parser.parse_args()
    prompt = options.tokens // 4
    cases = [Case(prompt, options.tokens - prompt, 1, flag) for flag in (False, True)]
    cases += [Case(prompt, (options.tokens - prompt) // 4, 4, flag) for flag in (False, True)]
    print(
        "| completions, tokens | checkpointing | processes | tokens of each | measured, MiB | of one | planned, MiB |"
    )
    print("|---|---|---:|---:|---:|---:|---:|")
    for case in cases:
        print("\n".join(format_rows(case, options.sizes)), flush=True)


if __name__ == "__main__":
    main()
