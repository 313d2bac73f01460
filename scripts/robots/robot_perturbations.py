"""Store what the perturbations of a simulator do to the held-out success of trained runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

FILE = "perturbations.json"
_BOUNDS = ("mean", "lower", "upper")


def store_perturbation(recipe: str, run: Path, folder: Path) -> None:
    """Add to perturbations.json what `mmrl evaluate RUN compare=start sim.perturbation=... accept=...` measured.

    Args:
        recipe: of the run.
        run: folder with evaluation.json and protocol.json.
        folder: of perturbations.json.

    Raises:
        ValueError: the run was measured without its start, or its simulator has no perturbations.
    """
    measured = json.loads((run / "evaluation.json").read_text())
    suite = json.loads((run / "protocol.json").read_text())["entries"]["suite"]
    if set(measured["metrics"]) != {"before", "after"} or "perturbation" not in suite:
        raise ValueError(
            f"{run} has no measurement of a start and an end with a perturbation: "
            f"mmrl evaluate {run} compare=start sim.perturbation=position accept=perturbation,states"
        )
    row: dict[str, Any] = {
        "recipe": recipe,
        "perturbation": suite["perturbation"],
        "seed": yaml.safe_load((run / "config.yaml").read_text())["seed_everything"],
        "hash": measured["protocol"],
        "decodes": {},
    }
    for decode in measured["decodes"]:
        sides = {side: measured["metrics"][side][decode]["success"] for side in ("before", "after")}
        row["decodes"][decode] = {
            **{side: [values[name] for name in _BOUNDS] for side, values in sides.items()},
            "episodes": int(sides["after"]["n"]),
        }
    others = [other for other in read_perturbations(folder) if _cell(other) != _cell(row)]
    folder.mkdir(parents=True, exist_ok=True)
    rows = sorted([*others, row], key=_cell)
    (folder / FILE).write_text(json.dumps(rows, indent=2) + "\n")


def read_perturbations(folder: Path) -> list[dict[str, Any]]:
    """Read the stored rows, by recipe, perturbation and seed."""
    path = folder / FILE
    return json.loads(path.read_text()) if path.exists() else []


def _cell(row: Mapping[str, Any]) -> tuple[str, str, int]:
    return row["recipe"], row["perturbation"], row["seed"]
