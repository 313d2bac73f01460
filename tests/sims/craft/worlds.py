"""Small crafting worlds for tests."""

from pathlib import Path
from typing import Any

import yaml

from sims.craft import CraftSim

TINY: dict[str, Any] = {
    "materials": {"log": {"count": 3}, "stone": {"count": 1, "tools": ["table"]}},
    "recipes": {"plank": {"from": {"log": 1}, "makes": 2}, "table": {"from": {"plank": 3}}},
    "target": "stone",
    "size": 3,
    "max_steps": 40,
}
"""The stone takes a table of 3 planks, which are the half of 2 logs' and more: 2 logs, 2 makings, 4 planks."""


def tiny(**options: Any) -> CraftSim:
    """A grid of 3 x 3 with 3 logs and a stone that a table must be held for."""
    return CraftSim(**{**TINY, **options})


def default(**options: Any) -> CraftSim:
    """The world of sim=craft."""
    text = (Path(__file__).parents[3] / "conf/sim/grids/craft.yaml").read_text()
    settings = yaml.safe_load(text)
    settings.pop("_target_")
    return CraftSim(**{**settings, **options})
