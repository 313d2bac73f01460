"""Competence over a level space: how well the policy does at each held-out level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

import numpy as np

from mmrl.core.types import Episode
from mmrl.curricula.levels import LEVEL
from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.metrics.finished_episodes import count_errors, drop_errors, get_score
from mmrl.evaluation.report.plots import COLOURS

Level = tuple[float, ...]


@dataclass(frozen=True)
class LevelMastery(Evaluator):
    """Share of the held-out levels that the policy masters, with a plot of its score over the level space.

    A level is mastered if the mean score of its finished episodes reaches the threshold. `mean` is the share of the
    levels that are, `score` the mean over the levels of their mean scores, `n` their number and `errors` the number of
    episodes left out.

    The plot has one parameter of the levels, or two as a map, on which mastered levels have a dot; over further
    parameters the score is averaged.

    Args:
        threshold: least score of a mastered level.
        score_name: name of a score, of which more is better.
        axes: one or two parameters for the plot; None: the first two.
    """

    threshold: float
    score_name: str = "return"
    axes: Sequence[str] | None = None
    plots_alone = True

    def __post_init__(self) -> None:
        if self.axes is not None and (isinstance(self.axes, str) or not 1 <= len(self.axes) <= 2):
            raise ValueError(f"evaluator.axes must be a list of one or two parameters, got {self.axes!r}")

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        means = list(self.means(episodes).values())
        mastered = sum(mean >= self.threshold for mean in means)
        return {
            "mean": mastered / len(means) if means else nan,
            "score": sum(means) / len(means) if means else nan,
            "n": float(len(means)),
            "errors": count_errors(episodes),
        }

    def means(self, episodes: Sequence[Episode], names: Sequence[str] | None = None) -> dict[Level, float]:
        """Mean score by level, in ascending order; of some parameters, if they are named."""
        groups: dict[Level, list[float]] = {}
        for episode in drop_errors(episodes):
            level = _level_of(episode)
            place = tuple(level[name] for name in names or level)
            groups.setdefault(place, []).append(get_score(episode, self.score_name))
        return {level: sum(scores) / len(scores) for level, scores in sorted(groups.items())}

    def plot(self, axes: Any, start: Sequence[Episode], episodes: Sequence[Episode]) -> bool:
        finished = drop_errors(episodes)
        if not finished:
            return False
        names = self._axes(_level_of(finished[0]))
        means = self.means(episodes, names)
        axes.set_xlabel(names[0])
        if len(names) == 1:
            for colour, label, side in zip(COLOURS[1::-1], ("start", "now"), (self.means(start, names), means)):
                axes.plot([level[0] for level in side], list(side.values()), "o-", color=colour, label=label, ms=4)
            axes.axhline(self.threshold, color="0.6", linewidth=1, label="mastered")
            axes.set_ylabel(self.score_name)
            axes.legend(frameon=False)
            return True
        _draw_map(axes, means, self.threshold, self.score_name)
        axes.set_ylabel(names[1])
        return True

    def _axes(self, level: Mapping[str, float]) -> list[str]:
        if self.axes is None:
            return list(level)[:2]
        if missing := [name for name in self.axes if name not in level]:
            raise ValueError(f"evaluator.axes has {missing}, but the parameters of the levels are {list(level)}")
        return list(self.axes)


def _level_of(episode: Episode) -> dict[str, float]:
    """The level of an episode, by parameter, from its scores."""
    level = {name.removeprefix(LEVEL): value for name, value in episode.scores.items() if name.startswith(LEVEL)}
    if not level:
        raise ValueError(
            f"the episode {episode.prompt.key!r} reports no level, so its mastery cannot be measured: "
            "take task=levels sim=levels"
        )
    return level


def _draw_map(axes: Any, means: Mapping[Level, float], threshold: float, score_name: str) -> None:
    """Draw mean scores over two parameters as coloured cells, with a dot on those that reach the threshold."""
    columns, rows = (sorted({level[k] for level in means}) for k in range(2))
    # [rows, columns], nan where no episode finished
    cells = np.array([[means.get((x, y), nan) for x in columns] for y in rows])
    image = axes.pcolormesh(columns, rows, cells, shading="nearest", cmap="viridis")
    axes.figure.colorbar(image, ax=axes, label=score_name)
    mastered = [level for level, mean in means.items() if mean >= threshold]
    axes.plot([x for x, _ in mastered], [y for _, y in mastered], ".", color="white", markersize=4, label="mastered")
