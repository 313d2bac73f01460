"""From the metrics of several seeds to an effect, its interval and a verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any

from scipy.stats import t as student

from mmrl.evaluation.statistics.intervals import disjoint, wilson

HELPS, HURTS, NOTHING = "helps", "hurts", "no effect at this scale"


def interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """Student's interval of the mean over seeds; everything where there are fewer than two."""
    if len(values) < 2:
        return (-math.inf, math.inf)
    half = float(student.ppf((1 + level) / 2, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    return mean(values) - half, mean(values) + half


def verdict(bounds: tuple[float, float]) -> str:
    """What an interval of a gain says: only one that is clear of zero says anything."""
    low, high = bounds
    return HELPS if low > 0 else HURTS if high < 0 else NOTHING


def spent(results: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """What a side used, as means over its seeds: iterations, episodes in training, seconds with the warm-start stages
    that were not kept from another run."""
    sums = [
        {
            "iterations": max(float(row.get("iterations") or 0) for row in result["rows"]),
            "episodes": sum(float(row.get("rollout/episodes_collected") or 0) for row in result["rows"]),
            "seconds": float(result["seconds"]),
        }
        for result in results
    ]
    return {name: round(mean(each[name] for each in sums), 1) for name in sums[0]}


def measured(result: Mapping[str, Any], column: str, each: str | None = None) -> dict[str, Any]:
    """The column before and after; of a share also its Wilson intervals over the held-out problems.

    Args:
        result: rows of metrics.csv, seed and seconds of a run.
        column: that is compared.
        each: of the columns <each>/<part>/mean, one per task of a simulator say, the same numbers by part.
    """
    out = {"seed": result["seed"], **_twice(result, column)}
    if each:
        prefix = f"{each}/"
        names = [name for name in result["rows"][0] if name.startswith(prefix) and name.endswith("/mean")]
        parts = sorted(name[len(prefix) : -len("/mean")] for name in names if name.count("/") == prefix.count("/") + 1)
        if not parts:
            raise SystemExit(f"metrics.csv has no columns {each}/<part>/mean; does the evaluation measure parts?")
        out["parts"] = {part: _twice(result, f"{prefix}{part}/mean") for part in parts}
    return out | {"seconds": result["seconds"]}


def _twice(result: Mapping[str, Any], column: str) -> dict[str, Any]:
    """A column in the first row that has it and in the last."""
    rows = [row for row in result["rows"] if row.get(column)]
    if len(rows) < 2:
        raise SystemExit(f"{column} is not in metrics.csv twice; was the evaluation on?")
    count = column.rsplit("/", 1)[0] + "/n"
    before, after = ((float(row[column]), int(float(row.get(count) or 0))) for row in (rows[0], rows[-1]))
    out: dict[str, Any] = {"before": before[0], "after": after[0], "episodes": after[1]}
    if before[1] and after[1] and all(0 <= share <= 1 for share, _ in (before, after)):
        bounds = [wilson(share * n, n) for share, n in (before, after)]
        out |= {"wilson_before": bounds[0], "wilson_after": bounds[1], "disjoint": disjoint(*bounds)}
    return out


def reached(result: Mapping[str, Any], reach: Mapping[str, Any], cost: str) -> dict[str, Any]:
    """What had been spent when the column first reached its level; null when it never did. `spent`: by the end."""
    rows = [row for row in result["rows"] if row.get(reach["column"])]
    hit = next((row for row in rows if float(row[reach["column"]]) >= reach["at_least"]), None)
    spent = max((float(row[cost]) for row in rows if row.get(cost)), default=math.inf)
    found = float(hit[cost]) if hit else None
    return {"seed": result["seed"], "cost": found, "spent": spent, "seconds": result["seconds"]}


def summary(
    plan: Mapping[str, Any], seeds: Sequence[Mapping[str, Any]], baseline: Sequence[Mapping[str, Any]] | None
) -> dict[str, Any]:
    """Effect, interval, verdict, and whether the target is met on every seed.

    With a baseline the verdict is about the paired difference to it over seeds, else about the start. A cost that
    never reached its level counts as all that was spent, which is less than the truth.
    """
    target = plan.get("target")
    if "reach" in plan:
        out = _cost(seeds, target)
        if baseline:
            gains = [_charged_cost(other) - _charged_cost(row) for row, other in zip(seeds, baseline)]
            return {**out, **_against(gains)}
        return {**out, "verdict": HELPS if out.get("target_met") else NOTHING}
    effects = [row["after"] - row["before"] for row in seeds]
    out = {"effect": mean(effects), "interval": interval(effects)}
    if target:
        out["target_met"] = all(_meets(row, target) for row in seeds)
    if baseline:
        return {**out, **_against([row["after"] - other["after"] for row, other in zip(seeds, baseline)])}
    return {**out, "verdict": verdict(out["interval"])}


def _against(gains: Sequence[float]) -> dict[str, Any]:
    bounds = interval(gains)
    return {"effect_over_baseline": mean(gains), "interval_over_baseline": bounds, "verdict": verdict(bounds)}


def _cost(seeds: Sequence[Mapping[str, Any]], target: Mapping[str, float] | None) -> dict[str, Any]:
    costs = [row["cost"] for row in seeds]
    charged = [_charged_cost(row) for row in seeds]
    out: dict[str, Any] = {
        "mean_cost": mean(charged),
        "interval": interval(charged),
        "never_reached": costs.count(None),
    }
    if target:
        out["target_met"] = all(cost is not None and cost <= target["cost"] for cost in costs)
    return out


def _charged_cost(row: Mapping[str, Any]) -> float:
    return row["spent"] if row["cost"] is None else row["cost"]


def _meets(row: Mapping[str, Any], target: Mapping[str, float]) -> bool:
    """Whether one seed meets the recipe's target."""
    enough = row["after"] >= target.get("after", -math.inf) and row["after"] - row["before"] >= target.get("gain", 0)
    # no part may end below the interval that it began with
    kept = all(part["after"] >= part["wilson_before"][0] for part in row.get("parts", {}).values())
    return row["before"] <= target.get("before", math.inf) and enough and row.get("disjoint", True) and kept
