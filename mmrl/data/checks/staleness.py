"""Staleness: age of the sampling weights of an iteration's rows, in versions."""

from __future__ import annotations

from torch import Tensor

from mmrl.batch import Batch
from mmrl.types import Context


def sampled_rows(batch: Batch) -> Tensor:
    """Mask of rows that this run's policy sampled; demonstrations and logged rows have version -1."""
    return batch["action_mask"].any(1) & ~batch["is_demo"] & (batch["policy_version"] >= 0)


def measure_staleness(batch: Batch, ctx: Context, allowed: int) -> dict[str, float]:
    """Mean staleness of the sampled rows of all ranks; refuses rows older than `allowed` or newer than the learner.

    Weights have the version of the iteration that began with them.
    """
    sampled = sampled_rows(batch)
    own = (ctx.iteration - batch["policy_version"][sampled]).tolist()
    ages = [age for part in ctx.collector.gather([own]) for age in part]
    if not ages:
        return {}
    if max(ages) > allowed or min(ages) < 0:
        wrong = max(ages) if max(ages) > allowed else min(ages)
        raise ValueError(
            f"iteration {ctx.iteration} was given rows that weights of version {ctx.iteration - wrong} sampled, but "
            f"only versions {ctx.iteration - allowed} to {ctx.iteration} may: data.engine was not given the weights "
            "by sync, or its completions carry another version than that of the weights they were sampled with"
        )
    return {"rollout/staleness": sum(ages) / len(ages)}
