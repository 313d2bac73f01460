"""Read conf/experiment/<room>/<recipe>.yaml: how a recipe is measured, and what it is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from mmrl.config.compose import CONF, compose
from mmrl.config.layers.files import RUN_WORDS
from mmrl.core.errors import ConfigError
from mmrl.experiments.content import hash_content

FOLDER = CONF / "experiment"
TARGETS = ("max_before", "min_after", "min_gain", "max_cost")


@dataclass(frozen=True)
class Baseline:
    """Runs with the same budget and start that the recipe is compared with.

    Args:
        name: of the baseline in tables and figures.
        overrides: overrides of its runs, added to the experiment's; a recipe= or a start= replaces the experiment's.
    """

    name: str
    overrides: Sequence[str] = ()


@dataclass(frozen=True)
class Experiment:
    """Runs of a recipe over seeds, and the metric by which they are compared.

    Args:
        recipe: that is measured.
        budget: of each seed, in words.
        metric: column of metrics.csv, on held-out problems; its first value is before training, its last after.
        threshold: with it the compared number is the `cost` until the metric first reaches this value; lower is better.
        cost: column of metrics.csv that is counted until the threshold.
        seeds: number of seeds, counted from 0, or a list of seeds.
        overrides: overrides of the runs of both sides, as on the command line.
        target: limits that each seed has to meet: max_before, min_after, min_gain (after - before), max_cost.
        per_task: prefix of columns <prefix>/<task>/mean that are reported too. With a target no task may end below the
            Wilson interval of its start.
        baseline: that the effect is measured against; without one it is measured against the start.
        explanation: of the verdict, or what the verdict leaves out.
    """

    recipe: str
    budget: str
    metric: str
    threshold: float | None = None
    cost: str | None = None
    seeds: int | Sequence[int] = 3
    overrides: Sequence[str] = ()
    target: Mapping[str, float] = field(default_factory=dict)
    per_task: str | None = None
    baseline: Baseline | None = None
    explanation: str | None = None

    def __post_init__(self) -> None:
        if (self.threshold is None) != (self.cost is None):
            raise ConfigError(f"{self._file}: threshold and cost belong together; set both or neither")
        if unknown := sorted(set(self.target) - set(TARGETS)):
            raise ConfigError(f"{self._file}: target has unknown keys {unknown}; it can have {list(TARGETS)}")

    @property
    def _file(self) -> str:
        path = _find_file(self.recipe)
        return f"conf/experiment/{path.relative_to(FOLDER) if path else self.recipe}"

    @property
    def seed_list(self) -> list[int]:
        """List of the seeds."""
        return list(range(self.seeds)) if isinstance(self.seeds, int) else list(self.seeds)

    @property
    def comparison(self) -> str:
        """Description of the compared number."""
        return self.metric if self.cost is None else f"{self.cost} until {self.metric} >= {self.threshold:g}"

    def sides(self, with_baseline: bool = True) -> dict[str, list[str]]:
        """Return the overrides of the runs of the method and of its baseline, without the seed."""
        sides = {"method": [f"recipe={self.recipe}", *self.overrides]}
        if self.baseline and with_baseline:
            baseline_words = list(self.baseline.overrides)
            recipe = [word for word in baseline_words if word.startswith(RUN_WORDS)] or [f"recipe={self.recipe}"]
            sides["baseline"] = [*recipe, *self.overrides, *(word for word in baseline_words if word not in recipe)]
        return sides

    def hash_sides(self, with_baseline: bool = True) -> dict[str, str]:
        """Compute the content hash of each side."""
        return {side: hash_content(words) for side, words in self.sides(with_baseline).items()}

    def check_evaluation_interval(self, with_baseline: bool = True) -> None:
        """Refuse a side that the metric does not measure, or that is not evaluated after its last iteration.

        Raises:
            ConfigError: naming the side and what to set.
        """
        for side, words in self.sides(with_baseline).items():
            config = compose(words)
            self._check_metric(side, config.data.get("evaluation"))
            trainer = config.trainer
            if trainer.max_epochs % trainer.check_val_every_n_epoch:
                raise ConfigError(
                    f"{self._file}: the {side} has {trainer.max_epochs} iterations and is evaluated every "
                    f"{trainer.check_val_every_n_epoch}, so not at its end; set trainer.check_val_every_n_epoch"
                )

    def _check_metric(self, side: str, evaluation: Any) -> None:
        """Refuse a metric val/DECODE/EVALUATOR/... whose decode or evaluator this side's evaluation does not have."""
        first, *names = self.metric.split("/")
        if first != "val" or len(names) < 2:
            return
        for name, key in zip(names, ("sampling", "evaluators")):
            options = [each for each, part in ((evaluation or {}).get(key) or {}).items() if part is not None]
            if name not in options:
                raise ConfigError(
                    f"{self._file}: the {side} is not measured by metric {self.metric}: evaluation.{key} has "
                    f"{', '.join(options) or 'nothing'}, and no {name}"
                )


def read_experiment(recipe: str) -> Experiment | None:
    """Read the experiment of a recipe; None if it has none.

    Raises:
        ConfigError: there is no such recipe, or its experiment has unknown keys or lacks some.
    """
    path = _find_file(recipe)
    if path is None:
        compose([f"recipe={recipe}"])  # raises for an unknown recipe
        return None
    node: dict[str, Any] = yaml.safe_load(path.read_text())
    try:
        baseline = Baseline(**node.pop("baseline")) if "baseline" in node else None
        return Experiment(recipe, **node, baseline=baseline)
    except TypeError as error:
        cause = str(error).split("__init__() ")[-1]
        raise ConfigError(f"conf/experiment/{path.relative_to(FOLDER)}: {cause}") from error


def _find_file(recipe: str) -> Path | None:
    return next(FOLDER.rglob(f"{recipe}.yaml"), None)
