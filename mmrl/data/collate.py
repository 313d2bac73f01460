"""Collate episodes into a batch of rows, and apply the row transforms of an iteration."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from mmrl.core.batch import NO_GROUP, Batch, Ragged, pad_stack
from mmrl.core.columns import OPTIONAL, is_ragged, pad_value
from mmrl.core.groups import number_distinct
from mmrl.core.transitions import columns_of
from mmrl.core.types import Collector, Completion, Context, Episode, Observation, Turn
from mmrl.data.parity import sampled_rows
from mmrl.distributed import parallel
from mmrl.policies.base import Policy
from mmrl.transforms.base import EpisodeTransform, StatefulTransform
from mmrl.transforms.rows.base import RowTransform

log = logging.getLogger(__name__)


def learnable(
    episodes: Sequence[Episode], collected: Sequence[Episode], ctx: Context, transforms: Sequence[EpisodeTransform] = ()
) -> Batch:
    """Collate the rows to learn from; if there are none, one masked row, so that all ranks take part in collectives.

    It has the columns of the others too: the transforms that write some are given it. A rank without an episode, since
    there are more ranks than prompts, takes one of another rank. Collective.
    """
    spare = _find_spare(collected)
    if spare is None:
        raise RuntimeError(
            f"iteration {ctx.iteration}: all {len(collected)} episodes of task {ctx.task.name!r} ended in an error "
            "before the first decision; see the log above"
        )
    if any(episode.turns for episode in episodes):
        return collate(episodes, ctx.policy)
    if any(episode.ended != "cut" for episode in collected):
        log.warning("iteration %d: no episode is left to learn from", ctx.iteration)
    # no row on this rank: the masked row needs the columns that the transforms write on other ranks
    spares = [spare]
    for transform in transforms:
        if transform.writes() or transform.contexts():
            alone = isinstance(transform, StatefulTransform)  # it gathers, and other ranks have rows and do not
            spares = transform(spares, replace(ctx, collector=Collector()) if alone else ctx)
    batch = collate(spares, ctx.policy).select(torch.tensor([0]))
    return batch.with_columns(
        action_mask=torch.zeros_like(batch["action_mask"]), group=torch.full_like(batch["group"], NO_GROUP)
    )


def _find_spare(collected: Sequence[Episode]) -> Episode | None:
    """Return this rank's first episode with a turn, else that of the first rank that has one; None if there is none."""
    local_episode = next((episode for episode in collected if episode.turns), None)
    flags = parallel.gather([local_episode is not None])
    if all(flags) or not any(flags):
        return local_episode
    rank, _ = parallel.rank_and_size()
    # by one rank only: episodes may have images
    shared = parallel.gather([local_episode] if rank == flags.index(True) else [])
    return local_episode or shared[0]


def collate(episodes: Sequence[Episode], policy: Policy) -> Batch:
    """Build a batch with one row per turn, in order. The episode's reward is added to its last turn."""
    played = [episode for episode in episodes if len(episode.turns)]
    if not played:
        raise ValueError("no turns to collate: every episode is empty")
    # turns of vectorised environments are stored as a table, others one by one; N rows over E episodes
    columns = columns_of(episode.turns for episode in played)
    batch = _stack([turn for e in played for turn in e.turns], policy) if columns is None else _of_table(columns)
    # [E] rows per episode, and the index of its last row among the N
    lengths = torch.tensor([len(episode.turns) for episode in played])
    ends = lengths.cumsum(0) - 1
    rows = int(lengths.sum())

    def per_row(values: list) -> Tensor:
        return torch.tensor(values).repeat_interleave(lengths)

    # [N] bool: last rows, which alone have a bootstrap value and can be terminal
    last = torch.zeros(rows, dtype=torch.bool).index_fill(0, ends, True)
    over = per_row([episode.ended in ("done", "length") for episode in played])
    following = per_row([float(episode.bootstrap_value) for episode in played])
    earned = torch.tensor([float(episode.reward) for episode in played], dtype=torch.float64)
    return batch.with_columns(
        reward=batch["reward"].double().index_add(0, ends, earned).float(),
        group=per_row([episode.group for episode in played]),
        episode=per_row([number for number, episode in enumerate(episodes) if len(episode.turns)]),
        step=torch.arange(rows) - (ends + 1 - lengths).repeat_interleave(lengths),
        episode_reward=earned.float().repeat_interleave(lengths),
        is_last=last,
        is_terminal=last & over,
        bootstrap_value=torch.where(last, following, 0.0),
        is_demo=per_row([episode.source == "demo" for episode in played]),
    )


def _of_table(columns: dict[str, Tensor]) -> Batch:
    """Columns of the rows of a transition table; every row is a prompt of its own."""
    rows = len(columns["reward"])
    length = columns["obs.input_ids"].shape[1] if "obs.input_ids" in columns else 0
    return Batch(columns, prompt_id=torch.arange(rows), prompt_length=torch.full((rows,), length))


def _stack(turns: Sequence[Turn], policy: Policy) -> Batch:
    """Columns of turns that are stored one by one."""
    done = [turn.completion for turn in turns]
    prompts = number_distinct(c.prompt_id for c in done)
    # [N, T] columns per choice, padded on the right; [N] columns per row
    batch = Batch(
        action=collate_rows("action", [c.action for c in done]),
        behavior_logprobs=collate_rows("behavior_logprobs", [c.behavior_logprobs for c in done]),
        action_mask=collate_rows("action_mask", [c.action_mask for c in done]),
        reward=torch.tensor([turn.reward for turn in turns], dtype=torch.float64),
        prompt_id=torch.tensor(prompts),
        prompt_length=torch.tensor([len(c.observation.get("input_ids", ())) for c in done]),
        policy_version=torch.tensor([c.policy_version for c in done]),
    )
    # value estimates [N] or [N, T], of all rows or of none
    values = [c.value for c in done]
    estimates = [value for value in values if value is not None]
    if len(estimates) == len(values):
        batch["values"] = collate_rows("values", estimates)
    elif estimates:
        raise ValueError("some turns carry a value and some do not; all must come from the same kind of policy")
    for name in sorted({name for c in done for name in c.extra}):
        batch[name] = collate_rows(name, _rows_of_column(name, done))
    # equal observations of one prompt_id are one object, which the policy stores once
    observations = policy.collate(_one_object([c.observation for c in done], prompts))
    batch |= {f"obs.{name}": column for name, column in observations.items()}
    for context in sorted({name for c in done for name in c.others}):
        batch |= _other(context, done, prompts, policy)
    return batch


def _other(context: str, done: Sequence[Completion], prompts: Sequence[int], policy: Policy) -> dict[str, Any]:
    """Columns of a further context for the same choices."""
    missing = sum(context not in c.others for c in done)
    if missing:
        raise ValueError(f"{missing} of {len(done)} rows have no context {context!r}; all rows of a batch must have it")
    observations = _one_object([c.others[context] for c in done], prompts)
    shared = {
        "prompt_id": torch.tensor(prompts),
        "prompt_length": torch.tensor([len(observation.get("input_ids", ())) for observation in observations]),
    }
    return {f"other.{context}.{name}": column for name, column in {**policy.collate(observations), **shared}.items()}


def _one_object(observations: Sequence[Observation], prompts: Sequence[int]) -> list[Observation]:
    """Replace equal observations of one prompt by one object, because policies store shared observations once."""
    first: dict[int, Observation] = {}
    return [first.setdefault(prompt, observation) for prompt, observation in zip(prompts, observations)]


def _rows_of_column(name: str, done: Sequence[Completion]) -> list[Tensor]:
    """The rows of a further column; an optional one is padding in the rows that lack it."""
    lacking = [name not in c.extra for c in done]
    if any(lacking) and name not in OPTIONAL:
        raise ValueError(f"column {name!r} is given by some turns and not by others; all turns of a batch must have it")
    like = next(c.extra[name] for c, lacks in zip(done, lacking) if not lacks)
    return [
        like.new_full(_size_without(name, c, like), pad_value(name)) if lacks else c.extra[name]
        for c, lacks in zip(done, lacking)
    ]


def _size_without(name: str, completion: Completion, like: Tensor) -> list[int]:
    """Size of a row's entry of an optional column that it lacks."""
    return [0, *like.shape[1:]] if is_ragged(name) else [len(completion.action), *(1 for _ in like.shape[1:])]


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


def collate_rows(name: str, rows: Sequence[Tensor]) -> Tensor | Ragged:
    """Collate per-choice rows [T_i, ...] of a column to [N, T, ...], padded or ragged as `mmrl.core.columns` states."""
    if is_ragged(name):
        return Ragged(torch.cat(list(rows)), torch.tensor([len(row) for row in rows]))
    return pad_stack(rows, pad_value(name))
