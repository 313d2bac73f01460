"""The scheduled scalars of a run: their values at an iteration, and where they are put."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from mmrl.schedules.base import Schedule
from mmrl.schedules.extraction import COLLECTION, CONTEXT, LEARNING
from mmrl.schedules.scalars import get_scalar, with_scalar

T = TypeVar("T")
TERMS = "model.objective.terms."
LONGEST = 10_000  # iterations whose values are tried before training


class ScheduledScalars:
    """The schedules of a run by the key of their scalar, as `data.sampling.temperature`.

    The values of an iteration are computed when its context is made (`Context.scheduled`); parts get them before they
    run: `update_collection` those that collect, `update_learning` those of the learn step.

    Args:
        schedules: by key.
    """

    def __init__(self, schedules: Mapping[str, Schedule]):
        self.schedules = dict(schedules)
        self.roots: dict[str, Any] = {}  # data module and learner, once `bind` knows them
        self.plain: dict[str, float] = {}  # the numbers of the configuration
        self.constants: tuple[tuple[str, float], ...] = ()  # numbers of the loss terms, which captured graphs freeze
        self._iterations = 1

    def bind(self, data: Any, learner: Any, iterations: int | None) -> None:
        """Find every scalar, and try each value that it will have.

        Args:
            data: the data module.
            learner: the learner.
            iterations: of the run; None for a run without an end.

        Raises:
            ValueError: with the key, where a part keeps no such number or refuses a value.
        """
        self.roots = {"data": data, "model": learner}
        for key, schedule in self.schedules.items():
            try:
                self.plain[key] = self._get(key)
                self._iterations = min(max(iterations or 1, 1), LONGEST)
                for value in self.all_values(key):
                    self._set({key: value})
                    data.check_sizes()
            except (KeyError, AttributeError, TypeError, ValueError) as error:
                reason = error.args[0] if error.args else error
                raise ValueError(f"{key} cannot follow {type(schedule).__name__}: {reason}") from error
        self._set(self.plain)

    def values(self, iteration: int) -> dict[str, float]:
        """Compute the value of every scalar at an iteration; none before `bind`."""
        return {key: self._value(key, iteration) for key in self.plain}

    def all_values(self, key: str) -> list[float]:
        """Compute the distinct values of one scalar in all iterations; none without a schedule of it."""
        return list(dict.fromkeys(self._value(key, i) for i in range(self._iterations))) if key in self.plain else []

    def context_fields(self, values: Mapping[str, float]) -> dict[str, Any]:
        """Return the fields of a Context that scheduled scalars change."""
        fields: dict[str, Any] = {}
        for key, value in values.items():
            name, *rest = key.split(".")[1:]
            if name in CONTEXT:
                fields[name] = with_scalar(fields.get(name, getattr(self.roots["data"], name)), rest, value)
        return fields

    def update_collection(self, values: Mapping[str, float]) -> dict[str, float]:
        """Give the parts that collect their values; returns metrics of these and of the context's."""
        self._set(_below("data", values, COLLECTION))
        return _metrics(_below("data", values, (*CONTEXT, *COLLECTION)))

    def update_learning(self, values: Mapping[str, float]) -> dict[str, float]:
        """Give the parts of the learn step their values; returns metrics of these."""
        learned = {**_below("data", values, LEARNING), **_below("model", values, ("objective",))}
        self._set(learned)
        self.constants = tuple(item for item in learned.items() if item[0].startswith(TERMS))
        return _metrics(learned)

    def restore(self) -> None:
        """Give the parts that collect the numbers of the configuration, which held-out problems use."""
        self._set(_below("data", self.plain, COLLECTION))

    def observe(self, metrics: Mapping[str, float]) -> None:
        """Show the metrics of a finished iteration to all schedules."""
        for schedule in self.schedules.values():
            schedule.observe(metrics)

    def state_dict(self) -> dict[str, Any]:
        return {key: schedule.state_dict() for key, schedule in self.schedules.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for key, schedule in self.schedules.items():
            schedule.load_state_dict(state.get(key, {}))

    def _value(self, key: str, iteration: int) -> float:
        value = self.schedules[key](iteration)
        if not math.isfinite(value):
            raise ValueError(f"the value of iteration {iteration} is {value}")
        return round(value) if isinstance(self.plain[key], int) else float(value)

    def _get(self, key: str) -> float:
        root, *path = key.split(".")
        if root not in self.roots:
            raise ValueError(f"data.schedules: the key {key!r} must begin with data. or model.")
        value = get_scalar(self.roots[root], path)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"it is {value!r} and no number")
        return value

    def _set(self, values: Mapping[str, float]) -> None:
        for key, value in values.items():
            root, *path = key.split(".")
            with_scalar(self.roots[root], path, value)


def refuse_learning(scheduled: ScheduledScalars) -> None:
    """Refuse schedules of the learn step, for data modules whose rows come from a replay buffer."""
    learned = {**_below("data", scheduled.schedules, LEARNING), **_below("model", scheduled.schedules, ("objective",))}
    if wrong := sorted(learned):
        raise ValueError(f"{wrong[0]} cannot have a schedule with a replay buffer; set a number")


def _below(root: str, values: Mapping[str, T], names: Sequence[str]) -> dict[str, T]:
    return {key: value for key, value in values.items() if key.split(".")[:2] in [[root, name] for name in names]}


def _metrics(values: Mapping[str, float]) -> dict[str, float]:
    return {f"schedule/{key}": float(value) for key, value in values.items()}
