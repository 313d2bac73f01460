"""A callback that notes the numbers by which a run shows that its mechanism acts, and ends it when all were seen."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from mmrl.core.batch import Batch
from mmrl.core.types import Episode
from mmrl.curricula.levels import LevelCurriculum, UniformLevels
from mmrl.curricula.regret import RegretLevels, UniformPairs
from tests.acts.conditions import Condition
from tests.acts.gradients import TermGradients, term_names

ROWS = ("rows/trained", "rollout/rows", "replay/rows")
"""Metrics that say how many rows an iteration learns from, the first that is logged."""
Numbers = dict[str, list[float]]


class Actions(TermGradients):
    """Notes the numbers of each iteration, and stops the run once every condition held and every term has a gradient.

    Args:
        conditions: that have to hold, each in some iteration.
        least: iterations that are run in any case.
        minutes: of training, after which the run is stopped as unfinished.
    """

    def __init__(self, conditions: Sequence[Condition], least: int, minutes: float):
        super().__init__()
        self.conditions, self.least, self.seconds = conditions, least, 60 * minutes
        self.iterations: list[Numbers] = []
        self.rows: list[int] = []  # that are trained on, in each iteration
        self.unfinished = False
        self._numbers: Numbers = {}  # of this iteration
        self._started = 0.0
        self._visited: Counter[int] = Counter()
        self._patches = ExitStack()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._started = time.monotonic()
        data = trainer.datamodule
        for part in {type(part): part for part in (*data.transforms.values(), *data.rows.values())}.values():
            self._patches.enter_context(count_changes(type(part), self._add))
        self._patches.enter_context(count_repeats(type(data.curriculum), self._visited, self._add))
        self._patches.enter_context(count_shaped(type(data.reward), self._add))

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._patches.close()

    def on_rollout_end(self, trainer: Any, collected: Any, batch: Batch, ctx: Any) -> None:
        for key, values in read_info([*collected.sampled, *collected.episodes]).items():
            self._numbers[f"info/{key}"] = bounds(values)
        name = type(trainer.datamodule.rollout).__name__
        self._numbers[name] = [float(sum(count_other_prompts(collected.sampled, ctx.task)))]

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        super().on_train_batch_start(trainer, pl_module, batch, batch_idx)
        for piece in [batch] if isinstance(batch, dict) else batch:
            weighted = piece["loss_weights"] != 0 if "loss_weights" in piece else None
            for name, column in piece.items():
                if values := read_column(column, weighted):
                    old = self._numbers.get(f"column/{name}", [])
                    self._numbers[f"column/{name}"] = bounds([*old, *values])

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        metrics = dict(pl_module.iteration_metrics)
        self.rows.append(int(next((metrics[name] for name in ROWS if name in metrics), 0)))
        self.iterations.append({**self._numbers, **{name: [float(value)] for name, value in metrics.items()}})
        self._numbers = {}
        missing = [each for each in self.conditions if each.find(self.iterations) is None]
        late = time.monotonic() - self._started > self.seconds
        if len(self.iterations) >= self.least and not missing and self.terms == term_names(pl_module):
            trainer.should_stop = True
        elif late and len(self.iterations) < trainer.max_epochs:
            self.unfinished = trainer.should_stop = True

    def _add(self, name: str, count: float) -> None:
        self._numbers[name] = [sum(self._numbers.get(name, [])) + count]


@contextmanager
def count_changes(part: type, add: Callable[[str, float], None]) -> Iterator[None]:
    """Count the episodes or rows that the transforms of a class add, drop or change."""
    call = part.__call__

    def counted(self: Any, items: Any, ctx: Any) -> Any:
        before = fingerprints(items)
        result = call(self, items, ctx)
        after = fingerprints(result)
        add(part.__name__, (before - after).total() + (after - before).total())
        return result

    with patch.object(part, "__call__", counted):
        yield


@contextmanager
def count_repeats(part: type, visited: Counter[int], add: Callable[[str, float], None]) -> Iterator[None]:
    """Count the problems that a curriculum selects again while others were never selected, or of a curriculum over
    levels those that uniform levels would not have."""
    select = part.select

    def counted(self: Any, count: int, ctx: Any) -> list[int]:
        level = getattr(self, "drawn", 0)
        selected = select(self, count, ctx)
        if isinstance(self, LevelCurriculum):
            add(part.__name__, count_other_levels(self, level, selected, ctx))
            return selected
        repeated = sum(visited[index] > 0 for index in selected) if len(visited) < len(ctx.task) else 0
        visited.update(selected)
        add(part.__name__, repeated)
        return selected

    with patch.object(part, "select", counted):
        yield


def count_other_levels(curriculum: LevelCurriculum, first: int, selected: Sequence[int], ctx: Any) -> int:
    """Count the selected problems that the uniform curriculum of the same kind does not select in their place.

    Args:
        curriculum: that selected.
        first: number of its first level.
        selected: its problems.
        ctx: of the selection.
    """
    uniform = UniformPairs() if isinstance(curriculum, RegretLevels) else UniformLevels()
    uniform.drawn = first
    return sum(index != other for index, other in zip(selected, uniform.select(len(selected), ctx), strict=True))


@contextmanager
def count_shaped(part: type, add: Callable[[str, float], None]) -> Iterator[None]:
    """Count the episodes whose reward is not the plain verifier's score `exact`."""
    call = part.__call__

    def counted(self: Any, group: Sequence[Episode]) -> Sequence[float]:
        rewards = call(self, group)
        add(part.__name__, sum(reward != episode.scores.get("exact") for reward, episode in zip(rewards, group)))
        return rewards

    with patch.object(part, "__call__", counted):
        yield


def fingerprints(items: Any) -> Counter:
    """What tells episodes, or rows of a batch, from each other: reward, contexts, information, number of turns."""
    if isinstance(items, Batch):
        names = [name for name, column in sorted(items.items()) if isinstance(column, torch.Tensor)]
        sums = [items[name].detach().float().nan_to_num().flatten(1).sum(1) for name in names if items[name].dim() > 1]
        return Counter(tuple(row) for row in torch.stack(sums, 1).tolist())
    return Counter(map(fingerprint, items))


def fingerprint(episode: Episode) -> tuple:
    first = episode.turns[0].completion if len(episode.turns) else None
    contexts = tuple(sorted(first.others)) if first is not None else ()
    extra = tuple(sorted(first.extra)) if first is not None else ()
    identity = (id(episode.prompt), episode.sample_index, episode.source, episode.role, len(episode.turns))
    return (
        *identity,
        episode.reward,
        repr(episode.scores),
        repr(sorted(episode.info)),
        contexts,
        extra,
        episode.tokens,
    )


def read_info(episodes: Iterable[Episode]) -> dict[str, list[float]]:
    """The numbers, and the lengths of lists, in the information of episodes and of their prompts, by key."""
    values: dict[str, list[float]] = defaultdict(list)
    for episode in episodes:
        for key, value in (*episode.prompt.info.items(), *episode.info.items()):
            if isinstance(value, bool | int | float):
                values[key].append(float(value))
            elif isinstance(value, list | tuple):
                values[key].append(float(len(value)))
    return values


def count_other_prompts(episodes: Iterable[Episode], task: Any) -> Iterator[bool]:
    """Whether the prompt of each episode is not the task's: it has a hint, noise in its image, another question."""
    for episode in episodes:
        with suppress(KeyError, IndexError, ValueError, TypeError):  # a prompt that is no problem of the task
            original = task[episode.prompt.index]
            images = zip(episode.prompt.images, original.images)
            same = episode.prompt.messages == original.messages and all(np.array_equal(*pair) for pair in images)
            yield not same


def read_column(column: Any, weighted: torch.Tensor | None) -> list[float]:
    """The lowest and the highest number of a column, at the choices that are trained on where it has one for each."""
    if not isinstance(column, torch.Tensor) or not column.numel():
        return []
    if weighted is not None and column.shape == weighted.shape:
        column = column[weighted]
    elif weighted is not None and column.shape[:1] == weighted.shape[:1]:
        column = column[weighted.flatten(1).any(1)]
    column = column[column.isfinite()] if column.is_floating_point() else column
    return [float(column.min()), float(column.max())] if column.numel() else []


def bounds(values: Sequence[float]) -> list[float]:
    return [min(values), max(values)]
