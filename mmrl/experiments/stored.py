"""The proofs that a checkout holds: docs/proofs/<recipe>.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from mmrl.config.compose import CONF, compose
from mmrl.experiments.content import content

FOLDER = CONF.parent / "docs" / "proofs"


@dataclass(frozen=True)
class Plan:
    """What a recipe's `prove:` section asks for: the words of each side, and how they are compared."""

    recipe: str
    prove: DictConfig

    def sides(self, alone: bool = False) -> dict[str, list[str]]:
        """The words of every run of the method and of its baseline, without the seed."""
        shared = list(self.prove.get("words") or [])
        sides = {"method": [f"recipe={self.recipe}", *shared]}
        if self.prove.get("baseline") and not alone:
            words = list(self.prove.baseline.get("words") or [])
            other = [word for word in words if word.startswith("recipe=")] or [f"recipe={self.recipe}"]
            sides["baseline"] = [*other, *shared, *(word for word in words if not word.startswith("recipe="))]
        return sides

    def refuse_early_ends(self, alone: bool = False) -> None:
        """Refuse a side whose last measurement is not at its end: the other one would be ahead by its longer training.

        Raises:
            ValueError: naming the side and what to set.
        """
        for side, words in self.sides(alone).items():
            trainer = compose(words).trainer
            if trainer.max_epochs % trainer.check_val_every_n_epoch:
                raise ValueError(
                    f"recipe {self.recipe!r}, proof: the {side} has {trainer.max_epochs} iterations and is measured "
                    f"every {trainer.check_val_every_n_epoch}, so not at its end; set trainer.check_val_every_n_epoch"
                )

    @property
    def seeds(self) -> list[int]:
        """What the proof is run on: so many from 0 on, or those that are named."""
        asked = self.prove.get("seeds", 3)
        return list(range(asked)) if isinstance(asked, int) else list(asked)

    def content(self, alone: bool = False) -> dict[str, str]:
        """The hash of each side."""
        return {side: content(words) for side, words in self.sides(alone).items()}

    @property
    def compared(self) -> str:
        """The number that is compared, in words."""
        prove = self.prove
        return prove.get("column") or f"{prove.cost} until {prove.reach.column} >= {prove.reach.at_least}"


def plan_of(recipe: str) -> Plan | None:
    """The plan in the recipe's own file; None where it has none. Plans of recipes that it builds on do not count."""
    path = CONF / "recipe" / f"{recipe}.yaml"
    if not path.exists():
        compose([f"recipe={recipe}"])  # refuses a recipe that there is not
    prove = (yaml.safe_load(path.read_text()) or {}).get("prove")
    return Plan(recipe, OmegaConf.create(prove)) if prove else None


def proof_of(recipe: str, folder: Path = FOLDER) -> dict[str, Any] | None:
    """The stored proof; None where there is none."""
    path = folder / f"{recipe}.json"
    return json.loads(path.read_text()) if path.exists() else None


def state(plan: Plan, folder: Path = FOLDER) -> str:
    """missing, stale or current: whether the stored proof is of the recipe as it is now, on as many seeds."""
    proof = proof_of(plan.recipe, folder)
    if proof is None:
        return "missing"
    enough = len(proof["seeds"]) >= len(plan.seeds)
    return "current" if enough and proof.get("content") == plan.content() else "stale"


def told(proof: Mapping[str, Any]) -> str:
    """A proof in a few words: verdict, effect with its interval, and over what."""
    baseline = proof["baseline"]
    over = baseline if isinstance(baseline, str) else baseline["name"]
    if "effect_over_baseline" in proof:
        effect, bounds = proof["effect_over_baseline"], proof["interval_over_baseline"]
    elif "effect" in proof:
        effect, bounds = proof["effect"], proof["interval"]
    else:
        costs = ", ".join("never" if row["cost"] is None else f"{row['cost']:,.0f}" for row in proof["seeds"])
        return f"{proof['verdict']}: {costs} {proof['compared']}"
    return f"{proof['verdict']}: {effect:+.3f} [{bounds[0]:+.3f}, {bounds[1]:+.3f}] over {over}"


def table(folder: Path = FOLDER) -> str:
    """The proofs of a folder as rows of a Markdown table."""
    rows = []
    for path in sorted(folder.glob("*.json")):
        proof = json.loads(path.read_text())
        seeds = proof["seeds"]
        minutes = mean(row["seconds"] for row in seeds) / 60
        if "cost" in seeds[0]:
            before = proof["compared"]
            after = ", ".join("never" if r["cost"] is None else f"{r['cost']:,.0f}" for r in seeds)
        else:
            before, after = (", ".join(_format_value(row, key) for row in seeds) for key in ("before", "after"))
        rows.append(f"| `{proof['recipe']}` | {before} | {after} | {len(seeds)} | {minutes:.1f} |")
    return "\n".join(rows)


def _format_value(row: dict[str, Any], key: str) -> str:
    return f"{100 * row[key]:.1f} %" if "wilson_after" in row else f"{row[key]:.3g}"
