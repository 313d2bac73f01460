"""Merge the infos of single environments into those of a vector environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

_NUMBERS = (int, float, bool, np.number, np.bool_)


def merge_infos(
    reports: Sequence[Mapping[str, Any]], venv: VectorEnv, start: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Merge the infos of one step; keys with plain numbers in all environments are converted at once.

    Args:
        reports: of every environment, in order.
        venv: whose way of adding one environment's report is used for everything else.
        start: infos to add to.
    """
    infos = start or {}
    if not any(reports):
        return infos
    shared, everyone = set(), np.ones(len(reports), dtype=np.bool_)
    for key, value in reports[0].items():
        if isinstance(value, _NUMBERS) and key not in infos:
            column = [report.get(key) for report in reports]
            if len(set(map(type, column))) == 1:
                infos[key], infos[f"_{key}"] = np.array(column, dtype=type(value)), everyone
                shared.add(key)
    for i, report in enumerate(reports):
        if len(report) > len(shared):
            rest = {key: value for key, value in report.items() if key not in shared}
            infos = venv._add_info(infos, rest, i)
    return infos
