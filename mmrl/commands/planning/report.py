"""The report of a plan: tables in the terminal, or one JSON object."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from mmrl.commands.planning.advice import Advice
from mmrl.commands.planning.planning import IMPORTS, RankPlan, RunPlan
from mmrl.commands.planning.seconds import Seconds
from mmrl.core.errors import ConfigError

UNITS = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 2**10, "mib": 2**20, "gib": 2**30}
COLUMNS = 160


def parse_bytes(text: str) -> int:
    """Parse a number of bytes such as 80GB (10^9 bytes) or 24GiB (2^30 bytes)."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", text)
    if not match or match[2].lower() not in UNITS or not float(match[1]):
        raise ConfigError(f"--memory {text}: give a size such as 80GB or 24GiB")
    return round(float(match[1]) * UNITS[match[2].lower()])


def format_bytes(count: int) -> str:
    """Format bytes as MiB below one GiB, else as GiB."""
    return f"{count / 2**30:.2f} GiB" if abs(count) >= 2**30 else f"{count / 2**20:.1f} MiB"


def print_report(plan: RunPlan, tried: Sequence[Advice], seconds: Seconds | None) -> None:
    """Print a plan: what is planned, terms by phase for every kind of rank, whether it fits, and what to change."""
    console = Console(markup=False, emoji=False)
    if not console.is_terminal:
        console = Console(width=COLUMNS, markup=False, emoji=False)
    for line in _summary(plan):
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    for rank in _distinct(plan.ranks):
        console.print()
        with console.capture() as captured:
            console.print(_phase_table(rank), highlight=False)
        print("\n".join(line.rstrip() for line in captured.get().splitlines()))
        where = f"host memory of its process {format_bytes(rank.host)}, one weight sync {format_bytes(rank.sync)}"
        console.print(f"peak {format_bytes(rank.peak)}; {where}", highlight=False, soft_wrap=True)
    console.print()
    for line in [*_activation_lines(plan), *_verdict(plan, tried), *_time_lines(seconds), *_notes(plan)]:
        console.print(line, highlight=False, soft_wrap=True, markup=False)


def _summary(plan: RunPlan) -> list[str]:
    size, processes, rows = plan.size, plan.processes, plan.rows
    dtypes = ", ".join(f"{format_bytes(count)} {name}" for name, count in size.bytes_by_dtype.items())
    sharded = f", weights divided by {processes.shards}" if processes.shards > 1 else ""
    sharded += f", sequences divided by {processes.sequence}" if processes.sequence > 1 else ""
    return [
        f"policy     {plan.policy}, {size.parameters:,} parameters ({dtypes}), {size.trainable:,} trained, "
        f"{size.blocks} repeated blocks of at most {format_bytes(size.largest_block)}",
        f"processes  {processes.nodes} x {processes.devices} {processes.device}, {processes.strategy}{sharded}, "
        f"{processes.precision}, optimiser {plan.optimizer.name}",
        f"rows       {rows.iteration} of a rank in an iteration, {rows.minibatch} in a minibatch, "
        f"{rows.micro_batch} in a micro-batch, {rows.rollout} decoded at a time",
    ]


def _distinct(ranks: Sequence[RankPlan]) -> list[RankPlan]:
    """Ranks that are alike are one."""
    if len(ranks) == 2 and (ranks[0].phases, ranks[0].host) == (ranks[1].phases, ranks[1].host):
        return [RankPlan("every rank", ranks[0].phases, ranks[0].sync, ranks[0].host)]
    return list(ranks)


def _phase_table(rank: RankPlan) -> Table:
    table = Table(box=None, pad_edge=False, title=rank.name, title_justify="left")
    table.add_column("")
    for phase in rank.phases:
        table.add_column(phase, justify="right", no_wrap=True)
    terms = list(dict.fromkeys(term for phase in rank.phases.values() for term in phase))
    for term in terms:
        table.add_row(term, *(format_bytes(phase[term]) if term in phase else "" for phase in rank.phases.values()))
    table.add_row("sum", *(format_bytes(sum(phase.values())) for phase in rank.phases.values()), style="bold")
    return table


def _activation_lines(plan: RunPlan) -> list[str]:
    lines = []
    for name, trace in (("without", plan.without_checkpointing), ("with", plan.with_checkpointing)):
        if trace is not None:
            used = " (this run)" if (name == "with") == plan.checkpointing else ""
            masks = f"attention masks {format_bytes(trace.masks)}, " if trace.masks else ""
            lines.append(
                f"activations of a micro-batch {name} checkpointing: {format_bytes(trace.activations)}, logits and "
                f"their gradient {format_bytes(trace.logits)}, {masks}{trace.tokens} tokens in {trace.passes} passes"
                f"{used}"
            )
    return lines


def _verdict(plan: RunPlan, tried: Sequence[Advice]) -> list[str]:
    cpu = plan.processes.device == "cpu"
    count = plan.processes.devices
    each = f"{count} process{'es' if count > 1 else ''} with {format_bytes(IMPORTS)} of imports each"
    what = each if cpu else "the fullest device"
    need = f"{format_bytes(plan.used)} of {format_bytes(plan.memory)} ({what})"
    if plan.fits:
        return [f"fits: {need}"]
    lines = [f"does not fit: {need}"]
    for change in tried:
        mark = "fits" if change.fits else "does not fit"
        lines.append(f"  {' '.join(_quote(word) for word in change.words)}: {format_bytes(change.used)}, {mark}")
    return lines + ([] if tried else ["  none of the changes that `mmrl plan` tries saves 2 %"])


def _quote(word: str) -> str:
    return f"'{word}'" if " " in word else word


def _time_lines(seconds: Seconds | None) -> list[str]:
    if seconds is None:
        return ["time: no estimate without measured phases; --from RUN scales those of a run"]
    parts = ", ".join(f"{name} {value:.2f}" for name, value in seconds.phases.items())
    return [f"time: {seconds.iteration:.2f} s an iteration ({parts})", f"  assumed: {seconds.assumptions}"]


def _notes(plan: RunPlan) -> list[str]:
    return [f"note: {note}" for note in plan.notes]


def to_json(plan: RunPlan, tried: Sequence[Advice], seconds: Seconds | None) -> dict[str, Any]:
    """Convert a plan to plain values; sizes are bytes."""
    size = asdict(plan.size)
    size.pop("trained")
    return {
        "policy": {"class": plan.policy, **size},
        "processes": asdict(plan.processes),
        "optimizer": asdict(plan.optimizer),
        "rows": {**asdict(plan.rows), "iteration": plan.rows.iteration},
        "tokens": {"prompt": plan.prompt_tokens, "response": plan.response_tokens},
        "ranks": [{**asdict(rank), "peak": rank.peak} for rank in plan.ranks],
        "activations": {
            name: None if trace is None else asdict(trace)
            for name, trace in (
                ("without_checkpointing", plan.without_checkpointing),
                ("with_checkpointing", plan.with_checkpointing),
            )
        },
        "memory": plan.memory,
        "used": plan.used,
        "fits": plan.fits,
        "changes": [asdict(change) for change in tried],
        "seconds": None if seconds is None else {**asdict(seconds), "iteration": seconds.iteration},
        "notes": plan.notes,
    }
