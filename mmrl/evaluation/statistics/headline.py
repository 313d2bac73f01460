"""Choose the held-out metric by which runs are compared: the mean of the first evaluator."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from mmrl.core.errors import ConfigError

PREFIX = "val/"
NO_MEANS = ("lower", "upper", "errors", "n", "prompts", "standard_error")
"""Names of an evaluator's metrics that are no means over problems."""


def find_headline(config: Mapping[str, Any], names: Collection[str]) -> str | None:
    """Return the metric of the first evaluator of a run's evaluation under its first decode: its mean, or its return.

    Args:
        config: of the run, as in its config.yaml.
        names: of the metrics that the run has.

    Returns:
        The name, as val/greedy/exact/mean; None where nothing is evaluated or nothing was measured.
    """
    evaluation = (config["data"]["init_args"].get("evaluation") or {}).get("init_args") or {}
    return choose_headline(evaluation.get("sampling") or (), evaluation.get("evaluators") or (), names)


def choose_headline(decodes: Iterable[str], evaluators: Iterable[str], names: Collection[str]) -> str | None:
    """Return the mean, or the return, of the first evaluator that has one, under the first decode; None without any.

    Args:
        decodes: names, in the order of the configuration.
        evaluators: names, in the order of the configuration.
        names: of the metrics that were measured.
    """
    for decode in decodes:
        for evaluator in evaluators:
            place = f"{PREFIX}{decode}/{evaluator}/"
            means = [name for name in names if name.startswith(place) and name.rpartition("/")[2] not in NO_MEANS]
            preferred = [name for name in (f"{place}mean", f"{place}return") if name in means]
            if preferred or means:
                return (preferred or means)[0]
    return None


def check_metric(name: str, names: Collection[str], place: str) -> str:
    """Return a metric's name, which may lack the prefix val/; one that a run does not have is refused.

    Raises:
        ConfigError: naming the metrics that the run has.
    """
    metric = next((each for each in (name, f"{PREFIX}{name}") if each in names), None)
    if metric is None:
        beginnings = (f"{name.partition('/')[0]}/", PREFIX, "")
        has = next((part for start in beginnings if (part := sorted(n for n in names if n.startswith(start)))), [])
        raise ConfigError(f"metric={name}: {place} has no such metric; it has {', '.join(has[:12])}")
    return metric


def interval_of(name: str, metrics: Mapping[str, float]) -> tuple[float, float] | None:
    """Return the interval over held-out problems that an evaluator measured beside a mean; None if there is none."""
    place = name.removesuffix("mean")
    ends = [metrics.get(f"{place}{end}") for end in ("lower", "upper")]
    return None if name == place or None in ends else (ends[0], ends[1])  # type: ignore[return-value]
