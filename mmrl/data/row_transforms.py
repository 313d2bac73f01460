"""Apply the row transforms of an iteration, and check the age of the rows that they give."""

from __future__ import annotations

import time
from collections.abc import Mapping

import torch

from mmrl.batch import Batch
from mmrl.data.collate import NO_GROUP
from mmrl.data.parity import sampled_rows
from mmrl.rows.base import RowTransform
from mmrl.types import Context


def apply_rows(
    transforms: Mapping[str, RowTransform], batch: Batch, ctx: Context, staleness: int
) -> tuple[Batch, dict[str, float]]:
    """Run the row transforms in order; returns the rows to train on and metrics, equal on all ranks. Collective.

    A rank without rows keeps one masked row, as `learnable` gives it, so that all ranks take part in collectives.

    Args:
        transforms: by name; without any the batch is returned as it is.
        batch: the annotated rows of this rank.
        ctx: of the iteration.
        staleness: versions that freshly sampled rows may be older than the learner.
    """
    if not transforms:
        return batch, {}
    started = time.perf_counter()
    # without the masked row that a rank without episodes has
    rows = batch.select((batch["group"] != NO_GROUP).nonzero().flatten())
    for name, transform in transforms.items():
        rows.require(transform.reads(), f"data.rows.{name}")
        rows = transform(rows, ctx)
    # age of each sampled row, in versions of the weights, over all ranks
    allowed = staleness + max(transform.max_age for transform in transforms.values())
    ages = (ctx.iteration - rows["policy_version"][sampled_rows(rows)]).tolist()
    everyone = ctx.collector.gather([(rows.rows, ages)])
    ages = [age for _, part in everyone for age in part]
    if ages and (max(ages) > allowed or min(ages) < 0):
        wrong = max(ages) if max(ages) > allowed else min(ages)
        raise ValueError(
            f"iteration {ctx.iteration}: data.rows ({', '.join(transforms)}) gave rows that weights of version "
            f"{ctx.iteration - wrong} sampled, but only versions {ctx.iteration - allowed} to {ctx.iteration} may; a "
            "row transform that adds older rows says so in max_age"
        )
    # rows and mean age over all ranks, so that every rank reports the same metrics
    metrics = {"rows/trained": float(sum(count for count, _ in everyone)), "time/rows": time.perf_counter() - started}
    if ages:
        metrics["rows/staleness"] = sum(ages) / len(ages)
    return (rows if rows.rows else _mask_first(batch)), metrics


def _mask_first(batch: Batch) -> Batch:
    """Return the first row as one that is in no minibatch."""
    row = batch.select(torch.tensor([0]))
    return row.with_columns(
        action_mask=torch.zeros_like(row["action_mask"]), group=torch.full_like(row["group"], NO_GROUP)
    )
