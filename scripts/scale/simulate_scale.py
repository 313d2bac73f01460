"""Iteration time and efficiency of many GPUs, computed and not measured: python scripts/scale/simulate_scale.py.

Every process keeps its number of prompts (weak scaling). The collectives take the time of rings whose slowest link
bounds them, and phases end with the slowest process. The assumptions and tables of docs/scale.md are printed.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, replace
from statistics import NormalDist

STRATEGIES = ("ddp", "fsdp2", "hsdp")
SIZES = (8, 64, 512)


@dataclass(frozen=True)
class Phases:
    """Seconds of an iteration of one process with its prompts."""

    rollout: float  # sampling
    learn: float  # forward, backward and step of all updates
    other: float = 0.0  # scores, collation, annotators


@dataclass(frozen=True)
class Work:
    """What the collectives of an iteration carry.

    Args:
        weights: bytes of all weights, in the precision in which they are gathered.
        gradients: bytes of all gradients, in the precision in which they are summed.
        blocks: collectives in which FSDP2 gathers or reduces all weights.
        updates: optimiser steps.
        micro_batches: of an update. FSDP2 gathers weights twice and reduces gradients in each; DDP reduces gradients,
            and HSDP sums those of its copies, once an update.
        gathers: times that sharded weights are gathered for sampling and scoring.
        rows: of a process in an iteration; None for processes that are never waited for.
        variation: standard deviation of the tokens of a row over their mean.
    """

    weights: float
    gradients: float
    blocks: int
    updates: int
    micro_batches: int = 1
    gathers: int = 2
    rows: int | None = None
    variation: float = 0.0


@dataclass(frozen=True)
class Links:
    """What connects the processes.

    Args:
        node: processes of a node.
        inside: bytes a second that a process sends to another one of its node.
        between: bytes a second that a process sends to another node, while all others of its node do.
        latency: seconds of one step of a ring.
        overlap: part of the time of forward and backward during which the collectives of the learn step proceed.
    """

    node: int
    inside: float
    between: float
    latency: float
    overlap: float = 0.0


@dataclass(frozen=True)
class Simulated:
    """Seconds of an iteration and their parts; efficiency is one process's iteration over this one."""

    iteration: float
    efficiency: float
    parts: dict[str, float]


def simulate(phases: Phases, work: Work, links: Links, processes: int, strategy: str) -> Simulated:
    """Return the seconds of an iteration with a number of processes.

    Equations, for n processes, bytes S, bandwidth b of the slowest link of the ring and latency l of a step:

        gather or reduce-scatter = (n - 1) (S / (n b) + l)      all-reduce = 2 (n - 1) (S / (n b) + l)

    A phase ends with the slowest process, whose tokens are the expected maximum of n normal variables. In a rollout of
    R rows their coefficient of variation is v / sqrt(R). Which rows an update takes is drawn over the rows of all
    processes, so that in one of u updates it is sqrt((1 - 1/u + v^2) u / R), of which 1 - 1/u is the binomial share.

    Args:
        processes: 1, less than a node, or whole nodes.
        strategy: ddp; fsdp2, shards over all processes; hsdp, shards over those of a node, copies between nodes.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy {strategy!r}: one of {', '.join(STRATEGIES)}")
    if processes > links.node and processes % links.node:
        raise ValueError(f"{processes} processes are not whole nodes of {links.node}")
    one = phases.rollout + phases.learn + phases.other
    waiting = _expected_maximum(processes) * _wait_per_deviation(phases, work)
    # of an update: seconds of collectives, and of computing that can hide them
    if strategy == "ddp":  # two thirds of the last micro-batch are its backward pass
        gathering, computing = 0.0, phases.learn * 2 / 3 / (work.updates * work.micro_batches)
        sending = 2 * _pass_ring(work.gradients, 1, processes, links)
    else:
        shards = min(processes, links.node) if strategy == "hsdp" else processes
        gather = _pass_ring(work.weights, work.blocks, shards, links)
        gathering, computing = work.gathers * gather, phases.learn / work.updates
        sending = work.micro_batches * (2 * gather + _pass_ring(work.gradients, work.blocks, shards, links))
        if shards < processes:
            nodes = replace(links, node=1)
            sending += 2 * _pass_ring(work.gradients / shards, work.blocks, processes // shards, nodes)
    reducing = work.updates * max(sending - links.overlap * computing, 0.0)
    iteration = one + waiting + gathering + reducing
    parts = {"compute": one, "waiting": waiting, "gathering": gathering, "learn step": reducing}
    return Simulated(iteration, one / iteration, parts)


def _expected_maximum(count: int) -> float:
    """Expected maximum of independent standard normal variables, approximately. Source: Blom 1958, alpha = 3/8."""
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25)) if count > 1 else 0.0


def _wait_per_deviation(phases: Phases, work: Work) -> float:
    """Seconds that a process is slower in whose tokens are one standard deviation more in every phase."""
    if work.rows is None:
        return 0.0
    sampled = work.variation / math.sqrt(work.rows)
    learned = math.sqrt((1 - 1 / work.updates + work.variation**2) * work.updates / work.rows)
    return sampled * (phases.rollout + phases.other) + learned * phases.learn


def _pass_ring(size: float, pieces: int, processes: int, links: Links) -> float:
    """Seconds in which `size` bytes in so many pieces go round a ring once."""
    bandwidth = links.inside if processes <= links.node else links.between
    return (processes - 1) * (size / (processes * bandwidth) + pieces * links.latency)


@dataclass(frozen=True)
class Gpu:
    """Assumed speed of a GPU."""

    operations: float = 989e12  # a second, dense bf16 of an H100's data sheet
    bandwidth: float = 3.35e12  # bytes a second of its memory
    learn_share: float = 0.4  # of the operations in the learn step
    read_share: float = 0.5  # of the bandwidth in decoding


@dataclass(frozen=True)
class Model:
    """A model and the rows of a process in an iteration.

    Args:
        name: for the table.
        parameters: trained, bf16 in computing, fp32 in the optimiser.
        blocks: repeated ones, and one for the rest.
        cache: bytes of keys and values of a token.
        prompts, group, prompt_tokens, response_tokens: of a process; every completion has that length.
    """

    name: str
    parameters: float
    blocks: int
    cache: float
    prompts: int = 8
    group: int = 8
    prompt_tokens: int = 512
    response_tokens: int = 1024

    @property
    def rows(self) -> int:
        return self.prompts * self.group


MODELS = (
    Model("1.5 B parameters, 64 rows", 1.54e9, 29, 28672),
    Model("7.6 B parameters, 64 rows", 7.62e9, 29, 57344),
    Model("7.6 B parameters, 512 rows", 7.62e9, 29, 57344, prompts=64),
)
"""Shapes of Qwen2.5 with 1.5 and 7 B parameters."""
DECODED = 64  # rows at a time
MICRO_BATCH = 8  # rows
LINKS = Links(node=8, inside=300e9, between=40e9, latency=5e-6)
UPDATES, VARIATION = 4, 0.3


def estimate_phases(model: Model, gpu: Gpu) -> Phases:
    """Seconds of a GPU from operations and bytes: docs/performance.md counts them.

    The learn step computes activations again in the backward pass: 8 operations a weight and token. Decoding reads all
    weights and the cache of all rows in every step.
    """
    tokens = model.prompts * model.prompt_tokens + model.rows * model.response_tokens
    learn = 8 * model.parameters * tokens / (gpu.operations * gpu.learn_share)
    cached = DECODED * (model.prompt_tokens + model.response_tokens / 2) * model.cache
    steps = model.response_tokens * math.ceil(model.rows / DECODED)
    decode = steps * (2 * model.parameters + cached) / (gpu.bandwidth * gpu.read_share)
    prefill = 2 * model.parameters * model.prompts * model.prompt_tokens / (gpu.operations * gpu.learn_share)
    return Phases(rollout=prefill + decode, learn=learn)


def count_work(model: Model) -> Work:
    """Bytes of a model: bf16-mixed gathers weights in 2 bytes and sums gradients in 4."""
    micro_batches = model.rows // UPDATES // MICRO_BATCH
    sizes = (2 * model.parameters, 4 * model.parameters)
    return Work(*sizes, model.blocks, UPDATES, micro_batches, rows=model.rows, variation=VARIATION)


def format_tables() -> str:
    """Format docs/scale.md's assumptions and tables."""
    gpu = Gpu()
    lines = [
        f"Assumed of a GPU: {gpu.operations / 1e12:.0f} Tflop/s, of which a learn step reaches {gpu.learn_share:.0%}; "
        f"{gpu.bandwidth / 1e12:.2f} TB/s of memory, of which decoding reaches {gpu.read_share:.0%}.",
        f"Assumed of the links: nodes of {LINKS.node}, {LINKS.inside / 1e9:.0f} GB/s from a GPU to others of its node, "
        f"{LINKS.between / 1e9:.0f} GB/s to other nodes, {LINKS.latency * 1e6:.0f} us a step of a ring.",
        f"Assumed of a run: prompts of {MODELS[0].prompt_tokens} tokens with {MODELS[0].group} completions, of which "
        f"{DECODED} are decoded at a time for {MODELS[0].response_tokens} steps, {UPDATES} updates in micro-batches of "
        f"{MICRO_BATCH} rows, gradient checkpointing, bf16-mixed; the tokens of a row vary by {VARIATION:.0%}; no "
        "held-out numbers.",
    ]
    for model in MODELS:
        phases, work = estimate_phases(model, gpu), count_work(model)
        lines += [
            "",
            f"| {model.name} a GPU: rollout {phases.rollout:.1f} s, learn {phases.learn:.1f} s | GPUs | "
            "s an iteration | efficiency | waiting, s | gathering, s | learn step's collectives, s |",
            "|---|---:|---:|---:|---:|---:|---:|",
        ]
        for strategy in STRATEGIES:
            for processes in SIZES:
                lines.append(_format_row(phases, work, processes, strategy))
    return "\n".join(lines) + "\n"


def _format_row(phases: Phases, work: Work, processes: int, strategy: str) -> str:
    """A row with two numbers where hiding matters: nothing is hidden, and all that can be."""
    links = [replace(LINKS, overlap=overlap) for overlap in (0.0, 1.0)]
    slow, fast = (simulate(phases, work, each, processes, strategy) for each in links)
    both = (f"{slow.iteration:.1f} to {fast.iteration:.1f}", f"{slow.efficiency:.0%} to {fast.efficiency:.0%}")
    reducing = f"{slow.parts['learn step']:.2f} to {fast.parts['learn step']:.2f}"
    parts = (f"{slow.parts['waiting']:.2f}", f"{slow.parts['gathering']:.2f}", reducing)
    return f"| `{strategy}` | {processes} | {' | '.join((*both, *parts))} |"


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(format_tables(), end="")
