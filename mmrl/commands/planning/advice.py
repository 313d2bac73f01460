"""What to change when a run does not fit: words of `mmrl fit`, with the memory that each would need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mmrl.commands.planning.planning import RunPlan
from mmrl.core.errors import is_user_error

GROUPS = (2, 4, 8)
"""Numbers of devices that are tried."""
WORTH = 0.98
"""A change that saves less is not named."""


@dataclass(frozen=True)
class Advice:
    """Words that change a run, and its plan with them."""

    words: tuple[str, ...]
    used: int
    fits: bool


def advise(plan: RunPlan, words: Sequence[str], build: Callable[[Sequence[str]], RunPlan]) -> list[Advice]:
    """Plan the run again with changed words, and return those that need less memory, least changed first.

    Args:
        plan: of the words, which does not fit.
        words: of `mmrl fit`.
        build: plans words.
    """
    changes: list[Advice] = []
    for change in _candidates(plan):
        if any(other.fits and other.words[0].startswith("trainer.devices=") for other in changes) and len(change) > 1:
            continue  # fewer devices are enough
        keys = {word.partition("=")[0] for word in change}
        try:
            new_plan = build([*(word for word in words if word.partition("=")[0] not in keys), *change])
        except Exception as error:
            if not is_user_error(error):
                raise
            continue  # a change that this recipe refuses
        if new_plan.used < WORTH * plan.used:
            changes.append(Advice(change, new_plan.used, new_plan.fits))
    return changes


def _candidates(plan: RunPlan) -> list[tuple[str, ...]]:
    phase = max(plan.ranks[0].phases, key=lambda name: sum(plan.ranks[0].phases[name].values()))
    accumulate, rows = plan.processes.accumulate, plan.max_rows
    by_phase: dict[str, list[tuple[str, ...]]] = {
        "rollout": [(f"engine.max_rows={max(rows // 4, 1)}",)],
        "learn": [
            (f"trainer.accumulate_grad_batches={min(4 * accumulate, max(plan.rows.minibatch, 1))}",),
            ("policy.gradient_checkpointing=true",),
            (
                f"trainer.accumulate_grad_batches={max(plan.rows.minibatch, 1)}",
                "policy.gradient_checkpointing=true",
            ),
        ],
        "step": [("optimizer.fused=true",)] if plan.processes.device == "cuda" else [],
    }
    candidates = by_phase.get(phase, [])
    if plan.size.trainable == plan.size.parameters:
        candidates.append(("policy.lora.r=16",))
        candidates.append(("policy.dtype=bfloat16", "policy.lora.r=16", "policy.gradient_checkpointing=true"))
    if plan.processes.device == "cuda" and plan.size.trainable:
        for count in GROUPS:
            if count > plan.processes.world:
                sharded = (f"trainer.devices={count}", "strategy=fsdp2")
                candidates.append(sharded)
                candidates.append((*sharded, "policy.gradient_checkpointing=true"))
    return candidates
