"""Compute the effect of a method from the metrics of several seeds: its interval and a verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from mmrl.core.errors import ConfigError
from mmrl.evaluation.statistics.intervals import disjoint, student_interval, wilson
from mmrl.evaluation.statistics.power import detectable_mean, quantile
from mmrl.experiments.experiment import Experiment

HELPS, HURTS, NOTHING = "helps", "hurts", "no effect at this scale"
UNDECIDED = "undecided"
"""In place of NOTHING where the experiment would have missed a difference of LARGE."""
LARGE = 0.1
"""Of a metric between 0 and 1."""
CEILING, FLOOR = 0.95, 0.05
"""Ends of both sides beyond which a metric between 0 and 1 leaves no room for a difference."""

Share = tuple[float, Sequence[float] | None]
"""A measured value, and its Wilson interval if it is a fraction of held-out problems."""


def gain_interval(ends: Sequence[Share], origins: Sequence[Share]) -> tuple[float, float]:
    """Compute the interval of the mean gain over seeds: values at the end against those of the start or a baseline.

    Student's t over seeds. Gains that are equal on several seeds, such as one held-out problem of 64, have no spread to
    compute it from; then the Wilson intervals of both values bound the gain, if they are fractions.
    """
    gains = [end - origin for (end, _), (origin, _) in zip(ends, origins)]
    bounds = [(end, origin) for (_, end), (_, origin) in zip(ends, origins) if end and origin]
    if len(gains) > 1 and len(bounds) == len(gains) and max(gains) - min(gains) < 1e-6:
        return mean(end[0] - origin[1] for end, origin in bounds), mean(end[1] - origin[0] for end, origin in bounds)
    return student_interval(gains)


def decide_verdict(bounds: tuple[float, float]) -> str:
    """Return the verdict of a gain's interval: "helps" or "hurts" only if the interval excludes zero."""
    low, high = bounds
    return HELPS if low > 0 else HURTS if high < 0 else NOTHING


def find_ends(result: Mapping[str, Any]) -> list[tuple[float, float]]:
    """The metric at the end of each seed of a stored result, and what it is measured against: baseline or start.

    Empty where costs are compared.
    """
    seeds, baseline = result["seeds"], result["baseline"]
    others, key = (baseline["seeds"], "after") if isinstance(baseline, Mapping) else (seeds, "before")
    return [(row["after"], other[key]) for row, other in zip(seeds, others) if "after" in row]


def smallest_shown(result: Mapping[str, Any]) -> float | None:
    """The smallest true difference that an experiment as spread as this one finds four times in five.

    Gains without spread have bounds by Wilson intervals, to whose normal quantile the power's is added. None where
    there are fewer than two seeds, or costs are compared.
    """
    gains = [end - origin for end, origin in find_ends(result)]
    if len(gains) > 1 and max(gains) - min(gains) < 1e-6:
        low, high = result.get("interval_over_baseline") or result["interval"]
        return (high - low) / 2 * (1 + quantile(0.6) / quantile(0.95))  # quantile(0.6) is exceeded once in five
    return detectable_mean(gains)


def read_verdict(result: Mapping[str, Any]) -> str:
    """The verdict of a stored result; "undecided" for no effect where a large difference would be missed."""
    size = smallest_shown(result)
    missed = size is not None and size > LARGE and _is_share(find_ends(result))
    return UNDECIDED if result["verdict"] == NOTHING and missed else result["verdict"]


def describe_verdict(result: Mapping[str, Any]) -> str:
    """The verdict, and where no effect was seen "at its ceiling" or "floor".

    There both sides end on average, so that there is no room for a difference.
    """
    verdict, pairs = read_verdict(result), find_ends(result)
    if verdict not in (NOTHING, UNDECIDED) or not pairs or not _is_share(pairs):
        return verdict
    means = [mean(side) for side in zip(*pairs)]
    end = "ceiling" if min(means) > CEILING else "floor" if max(means) < FLOOR else ""
    return f"{verdict}, at its {end}" if end else verdict


def _is_share(pairs: Sequence[tuple[float, float]]) -> bool:
    return all(0 <= value <= 1 for pair in pairs for value in pair)


def read_usage(run: Mapping[str, Any]) -> dict[str, float]:
    """Read iterations, training episodes, and seconds with uncached warm-start stages, of one run."""
    return {
        "iterations": max(float(row.get("iterations") or 0) for row in run["rows"]),
        "episodes": sum(float(row.get("rollout/episodes_collected") or 0) for row in run["rows"]),
        "seconds": float(run["seconds"]),
    }


def mean_usage(usages: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Compute the means over a side's runs."""
    return {name: round(mean(each[name] for each in usages), 1) for name in usages[0]}


def measure(run: Mapping[str, Any], metric: str, per_task: str | None = None) -> dict[str, Any]:
    """Read the metric before and after training; for a fraction also its Wilson intervals over held-out problems.

    Args:
        run: rows of metrics.csv, seed and seconds of a run.
        metric: column that is compared.
        per_task: prefix of columns <prefix>/<task>/mean, for which the same numbers are computed.
    """
    out = {"seed": run["seed"], **_before_and_after(run, metric)}
    if per_task:
        prefix = f"{per_task}/"
        names = [name for name in run["rows"][0] if name.startswith(prefix) and name.endswith("/mean")]
        tasks = sorted(name[len(prefix) : -len("/mean")] for name in names if name.count("/") == prefix.count("/") + 1)
        if not tasks:
            raise ConfigError(f"metrics.csv has no columns {per_task}/<task>/mean; set an evaluator that writes them")
        out["per_task"] = {task: _before_and_after(run, f"{prefix}{task}/mean") for task in tasks}
    return out | {"seconds": run["seconds"]}


def _before_and_after(run: Mapping[str, Any], metric: str) -> dict[str, Any]:
    """Read a metric in the first row that has it and in the last, and the Wilson interval of each."""
    rows = [row for row in run["rows"] if row.get(metric)]
    if len(rows) < 2:
        raise ConfigError(
            f"metrics.csv has fewer than two rows with {metric}; set data.evaluation, trainer.check_val_every_n_epoch"
        )
    ends, count = (rows[0], rows[-1]), metric.rsplit("/", 1)[0] + "/n"
    before, after = ((float(row[metric]), int(float(row.get(count) or 0))) for row in ends)
    out: dict[str, Any] = {"before": before[0], "after": after[0], "episodes": after[1]}
    if before[1] and after[1] and all(0 <= share <= 1 for share, _ in (before, after)):
        bounds = [_read_interval(row, metric) or wilson(share * n, n) for row, (share, n) in zip(ends, (before, after))]
        out |= {"wilson_before": bounds[0], "wilson_after": bounds[1], "disjoint": disjoint(*bounds)}
    return out


def _read_interval(row: Mapping[str, Any], metric: str) -> tuple[float, float] | None:
    """Read the interval of a mean that the evaluator wrote; it counts problems, also where each has several samples."""
    prefix, _, name = metric.rpartition("/")
    low, high = (row.get(f"{prefix}/{end}") for end in ("lower", "upper")) if name == "mean" else (None, None)
    return (float(low), float(high)) if low and high else None


def cost_to_threshold(run: Mapping[str, Any], metric: str, threshold: float, cost: str) -> dict[str, Any]:
    """Read the cost at which the metric first reaches the threshold (None if never), and the total cost of the run."""
    rows = [row for row in run["rows"] if row.get(metric)]
    hit = next((row for row in rows if float(row[metric]) >= threshold), None)
    total = max((float(row[cost]) for row in rows if row.get(cost)), default=math.inf)
    return {
        "seed": run["seed"],
        "cost": float(hit[cost]) if hit else None,
        "total_cost": total,
        "seconds": run["seconds"],
    }


def summarise(
    experiment: Experiment, seeds: Sequence[Mapping[str, Any]], baseline: Sequence[Mapping[str, Any]] | None
) -> dict[str, Any]:
    """Compute effect, interval, verdict, and whether each seed meets the target.

    With a baseline the verdict is about the paired difference over seeds, else about the gain over the start. A run
    that never reaches the threshold counts with its total cost, a lower bound.
    """
    target = experiment.target
    if experiment.threshold is not None:
        out = _summarise_costs(seeds, target)
        if baseline:
            gains = [_charged_cost(other) - _charged_cost(row) for row, other in zip(seeds, baseline)]
            return {**out, **_compare(mean(gains), student_interval(gains))}
        return {**out, "verdict": HELPS if out.get("target_met") else NOTHING}
    ends, starts = [_end(row) for row in seeds], [(row["before"], row.get("wilson_before")) for row in seeds]
    bounds = gain_interval(ends, starts)
    out = {"effect": _mean_gain(ends, starts), "interval": bounds}
    if target:
        out["target_met"] = all(_meets_target(row, target) for row in seeds)
    if baseline:
        others = [_end(row) for row in baseline]
        return {**out, **_compare(_mean_gain(ends, others), gain_interval(ends, others))}
    return {**out, "verdict": decide_verdict(bounds)}


def _end(row: Mapping[str, Any]) -> Share:
    return row["after"], row.get("wilson_after")


def _mean_gain(ends: Sequence[Share], origins: Sequence[Share]) -> float:
    return mean(end - origin for (end, _), (origin, _) in zip(ends, origins))


def _compare(gain: float, bounds: tuple[float, float]) -> dict[str, Any]:
    return {"effect_over_baseline": gain, "interval_over_baseline": bounds, "verdict": decide_verdict(bounds)}


def _summarise_costs(seeds: Sequence[Mapping[str, Any]], target: Mapping[str, float]) -> dict[str, Any]:
    costs = [row["cost"] for row in seeds]
    charged = [_charged_cost(row) for row in seeds]
    out: dict[str, Any] = {
        "mean_cost": mean(charged),
        "interval": student_interval(charged),
        "never_reached": costs.count(None),
    }
    if target:
        out["target_met"] = all(cost is not None and cost <= target.get("max_cost", math.inf) for cost in costs)
    return out


def _charged_cost(row: Mapping[str, Any]) -> float:
    return row["total_cost"] if row["cost"] is None else row["cost"]


def _meets_target(row: Mapping[str, Any], target: Mapping[str, float]) -> bool:
    """Whether one seed meets the target; no task may end below the Wilson interval of its start."""
    gain = row["after"] - row["before"]
    enough = row["after"] >= target.get("min_after", -math.inf) and gain >= target.get("min_gain", 0)
    retained = all(task["after"] >= task["wilson_before"][0] for task in row.get("per_task", {}).values())
    return row["before"] <= target.get("max_before", math.inf) and enough and row.get("disjoint", True) and retained
