"""A measurement as one HTML file that needs nothing beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from mmrl.evaluation.clips import outcome
from mmrl.evaluation.contract import entries, shown
from mmrl.evaluation.curves import run_curve
from mmrl.evaluation.film import Shown
from mmrl.evaluation.paired import Paired
from mmrl.evaluation.result import Result, row
from mmrl.evaluation.scenes import data_uri, failures_first, kind, scenes, telling
from mmrl.evaluation.tables import points
from mmrl.types import Episode

NAME = "report.html"
MOST_ROWS = 1000  # of a decode


@dataclass(frozen=True)
class Page:
    """What <run>/report.html shows.

    Args:
        folder: of the run.
        found: protocol and episodes.
        result: what is in evaluation.json.
        compared: the two checkpoints problem by problem, per rate; empty for one checkpoint.
        score: of 0 or 1 that says whether an episode succeeded; None when there is none.
        films: by decode and checkpoint; empty for none.
    """

    folder: Path
    found: Result
    result: Mapping[str, Any]
    compared: Mapping[str, Sequence[Paired]] = field(default_factory=dict)
    score: str | None = None
    films: Mapping[str, Mapping[str, Shown]] = field(default_factory=dict)

    def write(self) -> Path:
        """<folder>/report.html."""
        path = Path(self.folder) / NAME
        path.write_text(self.html(), encoding="utf-8")
        return path

    def html(self) -> str:
        """The whole file."""
        pages = Environment(
            loader=FileSystemLoader(Path(__file__).parent),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        protocol = self.found.protocol
        curve = run_curve(self.folder)
        decodes = list(list(self.found.played.values())[-1])
        return pages.get_template("page.html").render(
            result=self.result,
            name=Path(self.folder).name,
            hash=protocol.hash,
            sections={
                "protocol (hashed)": _flat(protocol.entries),
                "policy": _flat(protocol.policy),
                "environment": _flat(protocol.environment),
            },
            rates=self._rates(),
            others=self._others(),
            compared=[(name, part) for name, parts in self.compared.items() for part in parts],
            curve=None if curve is None else data_uri(curve.read_bytes(), "image/png"),
            scenes=[(decode, self._scenes(decode)) for decode in self.films],
            decodes=[(decode, *self._table(decode)) for decode in decodes],
        )

    def _rates(self) -> list[dict[str, Any]]:
        """Every success rate: of each task where there are several, and of all."""
        made = []
        for title, decodes in self.result["numbers"].items():
            for decode, evaluators in decodes.items():
                tasks = self.result["tasks"][title].get(decode, {})
                parts = [*tasks.items(), ("all" if tasks else "", evaluators)]
                for task, numbers in parts:
                    for name, values in numbers.items():
                        if {"mean", "lower", "upper"} <= values.keys():
                            place = {"title": title, "decode": decode, "task": task, "name": name}
                            problems = values["n"] / self.result["num_samples"]
                            made.append({**place, **values, "mdd": points(values["mean"], problems)})
        return made

    def _others(self) -> list[tuple[str, str, str, str]]:
        """(checkpoint, decode, measure, value) of what is no rate of successes."""
        made = []
        for title, decodes in self.result["numbers"].items():
            for decode, evaluators in decodes.items():
                for name, values in evaluators.items():
                    if not {"mean", "lower", "upper"} <= values.keys():
                        wanted = [key for key in values if key != "errors" and not key.endswith(("_lower", "_upper"))]
                        made += [(title, decode, f"{name}/{key}", f"{values[key]:.4g}") for key in wanted]
        return made

    def _scenes(self, decode: str) -> list[Any]:
        last = list(self.found.played.values())[-1][decode]
        return scenes(self.films[decode], telling(last, self.score), self.score)

    def _table(self, decode: str) -> tuple[list[str], list[dict[str, Any]], int]:
        """Further columns, rows with the failures first, and how many rows there are in all."""
        sides = {title: decodes[decode] for title, decodes in self.found.played.items() if decode in decodes}
        *earlier, last = sides.values()
        before = {(e.prompt.key, e.sample_index): e for e in (earlier[0] if earlier else [])}
        names = sorted({name for episode in last for name in episode.scores} - {self.score, "return"})
        ordered = failures_first(last, self.score)
        rows = [self._row(e, before.get((e.prompt.key, e.sample_index)), names) for e in ordered[:MOST_ROWS]]
        return names, rows, len(ordered)

    def _row(self, episode: Episode, before: Episode | None, names: Sequence[str]) -> dict[str, Any]:
        plain = row(episode)
        length = plain["decisions"] if plain["decisions"] is not None else plain["tokens"]
        scores = [episode.scores.get(name) for name in names]
        return {
            **plain,
            "kind": kind(episode, self.score),
            "outcome": outcome(episode, self.score) or plain["ended"],
            "before": None if before is None else outcome(before, self.score) or before.ended,
            "before_kind": None if before is None else kind(before, self.score),
            "length": "" if length is None else length,
            "return": _number(episode.scores.get("return")),
            "further": [_number(value) for value in scores],
        }


def _flat(stated: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, shown(value)) for name, value in entries(stated).items()]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
