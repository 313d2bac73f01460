"""Memory of all ranks against the plan of the run: of the devices, of the hosts, and shared memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mmrl.commands.doctor.checks import where
from mmrl.commands.doctor.facts import SHARED_MEMORY, Facts
from mmrl.commands.doctor.machine import Finding
from mmrl.commands.planning.memory import CUDA_CONTEXT
from mmrl.commands.planning.planning import RankPlan, RunPlan
from mmrl.commands.planning.report import format_bytes

NCCL_SHARED = 32 << 20
"""Shared memory of a rank for NCCL, where GPUs of a host reach each other by it: assumed, not measured."""


def check_memory(facts: Sequence[Facts], plan: RunPlan) -> Iterator[Finding]:
    """Compare what is free with what the run needs."""
    if facts[0].device != "cpu":
        yield check_gpus(facts, plan)
    yield check_hosts(facts, plan)
    yield check_shared(facts, plan)


def check_gpus(facts: Sequence[Facts], plan: RunPlan) -> Finding:
    """Each GPU has room for its rank; the context of this process is in use already."""
    short = [each for each in facts if each.free < _plan_of(each, plan).peak - CUDA_CONTEXT]
    if short:
        each = short[0]
        return Finding(
            "GPU memory",
            f"{where(short)}: {each.device} has {format_bytes(each.free)} free of {format_bytes(each.total)}, and the "
            f"run needs {format_bytes(_plan_of(each, plan).peak - CUDA_CONTEXT)}; end other processes on it "
            "(nvidia-smi), or take a change that `mmrl plan` names",
            good=False,
            essential=True,
        )
    fullest = min(facts, key=lambda each: each.free)
    needs = format_bytes(max(rank.peak for rank in plan.ranks))
    return Finding("GPU memory", f"at least {format_bytes(fullest.free)} free (rank {fullest.rank}), {needs} needed")


def check_hosts(facts: Sequence[Facts], plan: RunPlan) -> Finding:
    """Each host has room for its ranks."""
    lines = []
    for host, ranks in _by_host(facts).items():
        free = min(each.host_free for each in ranks) + sum(each.resident for each in ranks)
        needed = sum(_plan_of(each, plan).host for each in ranks)
        if free < needed:
            return Finding(
                "host memory",
                f"{where(ranks)}: {format_bytes(free)} available, and its {len(ranks)} processes need "
                f"{format_bytes(needed)}; end other processes, or start fewer processes on a host",
                good=False,
                essential=True,
            )
        lines.append(f"{host}: {format_bytes(free)} available, {format_bytes(needed)} needed")
    return Finding("host memory", _shorten(lines))


def check_shared(facts: Sequence[Facts], plan: RunPlan) -> Finding:
    """/dev/shm of each host has room for the files of the engine and for NCCL."""
    lines = []
    for host, ranks in _by_host(facts).items():
        needed = max(_plan_of(each, plan).files for each in ranks)
        if len(ranks) > 1 and ranks[0].device != "cpu":
            needed += len(ranks) * NCCL_SHARED
        free = min(each.shared_free for each in ranks)
        if free < needed:
            return Finding(
                "shared memory",
                f"{where(ranks)}: {SHARED_MEMORY} has {format_bytes(free)} free, and {format_bytes(needed)} are needed "
                "(weights for the engine, NCCL); start the container with --shm-size or --ipc=host, or set "
                "engine.folder to another file system for the engine's part",
                good=False,
                essential=True,
            )
        lines.append(f"{host}: {format_bytes(free)} free in {SHARED_MEMORY}, {format_bytes(needed)} needed")
    return Finding("shared memory", _shorten(lines))


def _plan_of(facts: Facts, plan: RunPlan) -> RankPlan:
    return plan.ranks[min(facts.rank, len(plan.ranks) - 1)]


def _by_host(facts: Sequence[Facts]) -> dict[str, list[Facts]]:
    hosts: dict[str, list[Facts]] = {}
    for each in facts:
        hosts.setdefault(each.host, []).append(each)
    return hosts


def _shorten(lines: Sequence[str]) -> str:
    return "; ".join(lines[:4]) + (f"; and {len(lines) - 4} other hosts" if len(lines) > 4 else "")
