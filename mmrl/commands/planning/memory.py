"""Memory of a rank by phase: sums of exact and traced terms, in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mmrl.commands.planning.engine import EngineBytes
from mmrl.commands.planning.optimizer import OptimizerBytes
from mmrl.commands.planning.parameters import ModuleSize
from mmrl.commands.planning.passes import LearnPass, RolloutPass
from mmrl.commands.planning.run import Processes

CUDA_CONTEXT = 1 << 30
"""CUDA context, workspaces of cuBLAS and NCCL's buffers, on a rank's device: assumed, not measured."""
CPU_RUNTIME = 40 << 20
"""Libraries that are loaded in the first iteration, threads and buffers of a CPU process: measured."""


@dataclass(frozen=True)
class Passes:
    """Traced passes of a rank; None where a policy cannot be traced."""

    learn: LearnPass
    score: int  # peak of an annotator's pass
    rollout: RolloutPass | None  # of the local engine
    columns: int  # bytes of the rows of an iteration


@dataclass(frozen=True)
class Held:
    """Sizes of the modules of a rank."""

    policy: ModuleSize
    trained: Mapping[str, ModuleSize]  # auxiliary models
    frozen: Mapping[str, ModuleSize]  # reference and teachers
    merges: bool  # whether an export merges adapters into a copy


Phase = dict[str, int]
"""Bytes by term."""


def peak(phases: Mapping[str, Phase]) -> int:
    """Largest sum of a phase."""
    return max(sum(phase.values()) for phase in phases.values())


def plan_phases(
    held: Held,
    optimizer: OptimizerBytes,
    passes: Passes | None,
    engine: EngineBytes,
    processes: Processes,
    copies: int = 0,
) -> dict[str, Phase]:
    """Return the terms of every phase; those of a rank's device, or of its process on a CPU.

    Args:
        copies: of the policy, from which asynchronous collection samples.
    """
    always = hold_always(held, optimizer, engine, processes) | {
        "weight copies": copied_bytes(held.policy, copies, processes)
    }
    gathered = gather(held, processes)
    shards, modules = processes.shards, [held.policy, *held.trained.values()]
    gradients = sum(size.trainable_bytes for size in modules)
    full = held.policy.bytes
    phases: dict[str, Phase] = {"rollout": always}
    if engine.kind == "local":
        phases["rollout"] = {**always, **_gather_whole([held.policy], processes)}
    else:  # the policy scores a canary block by block
        phases["rollout"] = {**always, **gathered}
    if engine.merged:
        phases["sync"] = {**always, "unsharded weights": full if shards > 1 else 0, "merged weights": engine.merged}
    if not engine.always and engine.share:
        phases["rollout"]["engine"] = engine.share
    if passes is not None and passes.rollout is not None:
        used = max(passes.rollout.prefill_peak, passes.rollout.decode_peak)
        cache = min(passes.rollout.cache, used)
        phases["rollout"] |= {"KV cache": cache, "sampling": used - cache}
    if passes is not None and passes.score:
        whole = _gather_whole([held.policy, *held.frozen.values()], processes)
        phases["annotate"] = {**always, **whole, "scoring": passes.score}
    learn = {**always, **gathered}
    if shards > 1:
        # a block's gradients are whole until they are reduced, and copied for that
        passing = 2 * _largest(modules) + sum(min(size.root, size.trainable_bytes) for size in modules)
        if processes.no_sync and processes.accumulate > 1:
            passing = gradients
        learn |= {"gradients": -(-gradients // shards), "unsharded gradients": min(passing, gradients)}
    phases["learn"] = learn | _learn_terms(passes, gradients, processes)
    phases["step"] = {**always, "gradients": -(-gradients // shards), "optimiser step": -(-optimizer.step // shards)}
    phases["save"] = {**always, "merged weights": full if held.merges else 0}
    return {name: {term: size for term, size in phase.items() if size} for name, phase in phases.items()}


def hold_always(held: Held, optimizer: OptimizerBytes, engine: EngineBytes, processes: Processes) -> Phase:
    """Return what a rank holds in every phase after its first step."""
    shards = processes.shards
    trained = [held.policy, *held.trained.values()]
    gradients = sum(size.trainable_bytes for size in trained)
    return {
        "weights": sum(-(-size.parameter_bytes // shards) + size.buffer_bytes for size in trained),
        **{name: -(-size.parameter_bytes // shards) + size.buffer_bytes for name, size in held.frozen.items()},
        "optimiser state": -(-optimizer.state // shards),
        "DDP buckets": gradients if processes.bucket_copies else 0,
        "engine": engine.share if engine.always else 0,
        "runtime": CUDA_CONTEXT if processes.device == "cuda" else CPU_RUNTIME,
    }


def copied_bytes(policy: ModuleSize, copies: int, processes: Processes) -> int:
    """Return the bytes of the copies that sample (`Snapshots`): whole on every rank, with frozen weights once at most.

    A copy of a sharded policy has the precision of the forward pass; one of another policy shares its frozen weights.
    """
    if processes.shards == 1 or not copies:
        return copies * (policy.trainable_bytes + policy.buffer_bytes)
    whole = policy.parameter_bytes + (copies - 1) * policy.trainable_bytes
    return round(whole * _gathered_fraction(policy, processes)) + copies * policy.buffer_bytes


def gather(held: Held, processes: Processes) -> Phase:
    """Return the weights that FSDP2 gathers: the root, and two blocks, of which one is fetched ahead."""
    if processes.shards == 1:
        return {}
    sizes = [held.policy, *held.trained.values()]
    roots = sum(round(size.root * _gathered_fraction(size, processes)) for size in sizes)
    block = max(round(size.largest_block * _gathered_fraction(size, processes)) for size in sizes)
    return {"unsharded weights": roots + 2 * block}


def _gather_whole(sizes: list[ModuleSize], processes: Processes) -> Phase:
    """Return the weights that FSDP2 gathers for a whole phase without gradient."""
    if processes.shards == 1:
        return {}
    gathered = (round(size.parameter_bytes * _gathered_fraction(size, processes)) for size in sizes)
    return {"unsharded weights": sum(gathered)}


def _gathered_fraction(size: ModuleSize, processes: Processes) -> float:
    """Return the bytes of gathered weights over those of their shards: mixed precision gathers in 16 bits."""
    return 2 * size.parameters / max(size.parameter_bytes, 1) if processes.mixed else 1.0


def _largest(sizes: list[ModuleSize]) -> int:
    return max(size.largest_block for size in sizes)


def _learn_terms(passes: Passes | None, gradients: int, processes: Processes) -> Phase:
    """Terms of forward and backward: gradients exist before it, or it allocates them while activations are freed.

    A CPU process holds more than its tensors: glibc keeps gaps between freed temporaries, up to 0.4 GiB in a step of a
    135 M model. They are not simulated. On a CPU gradients and activations are therefore counted in full, as if neither
    used the other's memory, which is close for full training and too little with adapters or checkpointing.
    """
    sharded = processes.shards > 1
    if passes is None:
        return {} if sharded else {"gradients": gradients}
    learn, terms = passes.learn, {} if sharded else {"gradients": gradients}
    used = learn.next_peak
    if not sharded and processes.device != "cpu":
        later = learn.next_peak + gradients if processes.accumulate > 1 else 0
        if learn.first_peak > later:
            used, terms = learn.first_peak, {}
    logits, casts = min(learn.logits, used), min(learn.casts, used)
    masks = min(learn.masks, used - logits - casts)
    activations = min(learn.activations, used - logits - casts - masks)
    rest = used - activations - logits - casts - masks
    terms |= {"activations": activations, "attention masks": masks, "logits": logits, "16-bit weights": casts}
    return terms | {"backward pass" if "gradients" in terms or sharded else "gradients": rest}
