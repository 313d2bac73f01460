"""Write the results of an evaluation as one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from markupsafe import Markup

from mmrl.core.types import Episode
from mmrl.evaluation.report.result import EvaluationResult, episode_row
from mmrl.evaluation.report.tables import format_detectable_difference
from mmrl.evaluation.samples import group_samples
from mmrl.evaluation.statistics.curves import plot_run
from mmrl.evaluation.statistics.paired import PairedComparison
from mmrl.evaluation.video.clips import get_outcome
from mmrl.evaluation.video.recording import EpisodeVideos
from mmrl.evaluation.video.scenes import classify_episode, encode_videos, select_episodes, sort_failures_first
from mmrl.evaluation.video.writer import CountingVideoWriter
from mmrl.files.atomic import write_file
from mmrl.files.contract import flatten_entries, format_value
from mmrl.samples.html import MAX_BYTES, SCRIPT, STYLE, content_policy, load_page, render_section
from mmrl.samples.images import data_uri

NAME = "report.html"
MAX_ROWS = 1000  # of a decode


@dataclass(frozen=True)
class HtmlReport:
    """HTML report of an evaluation: <run>/report.html.

    Args:
        folder: of the run.
        evaluation: protocol and episodes.
        result: what is in evaluation.json.
        compared: the two checkpoints problem by problem, per rate; empty for one checkpoint.
        score_name: score of 0 or 1 that says whether an episode succeeded; None when there is none.
        videos: by decode and checkpoint; empty for none.
        writer: of the videos, which counts those that fail.
    """

    folder: Path
    evaluation: EvaluationResult
    result: Mapping[str, Any]
    compared: Mapping[str, Sequence[PairedComparison]] = field(default_factory=dict)
    score_name: str | None = None
    videos: Mapping[str, Mapping[str, EpisodeVideos]] = field(default_factory=dict)
    writer: CountingVideoWriter = field(default_factory=CountingVideoWriter)

    def write(self) -> Path:
        """Write <folder>/report.html."""
        return write_file(Path(self.folder) / NAME, self.html())

    def html(self) -> str:
        """Build the HTML file."""
        protocol = self.evaluation.protocol
        curve = plot_run(self.folder)
        script = Markup((Path(__file__).parent / "page.js").read_text())  # a file of this package
        decodes = list(list(self.evaluation.episodes.values())[-1])
        return load_page(Path(__file__).parent).render(
            result=self.result,
            name=Path(self.folder).name,
            hash=protocol.hash,
            sections={
                "protocol (hashed)": _flatten(protocol.entries),
                "policy": _flatten(protocol.policy),
                "environment": _flatten(protocol.environment),
            },
            rates=self._rates(),
            other_metrics=self._other_metrics(),
            compared=[(name, part) for name, parts in self.compared.items() for part in parts],
            curve=None if curve is None else data_uri(curve.read_bytes(), "image/png"),
            videos=[(decode, self._encode_videos(decode)) for decode in self.videos],
            decodes=[(decode, *self._table(decode)) for decode in decodes],
            samples=[(decode, section) for decode in decodes if (section := self._samples(decode)) is not None],
            samples_style=STYLE,
            scripts=[SCRIPT, script],
            policy=content_policy(SCRIPT, script),
        )

    def _rates(self) -> list[dict[str, Any]]:
        """List every success rate: of each task if there are several, and of all episodes."""
        rates = []
        for title, decodes in self.result["metrics"].items():
            for decode, evaluators in decodes.items():
                tasks = self.result["tasks"][title].get(decode, {})
                parts = [*tasks.items(), ("all" if tasks else "", evaluators)]
                for task, metrics in parts:
                    for name, values in metrics.items():
                        if {"mean", "lower", "upper"} <= values.keys():
                            place = {"title": title, "decode": decode, "task": task, "name": name}
                            problems = values["n"] / self.result["num_samples"]
                            rates.append(
                                {**place, **values, "mdd": format_detectable_difference(values["mean"], problems)}
                            )
        return rates

    def _other_metrics(self) -> list[tuple[str, str, str, str]]:
        """List (checkpoint, decode, measure, value) of all metrics other than success rates."""
        rows = []
        for title, decodes in self.result["metrics"].items():
            for decode, evaluators in decodes.items():
                for name, values in evaluators.items():
                    if not {"mean", "lower", "upper"} <= values.keys():
                        keys = [key for key in values if key != "errors" and not key.endswith(("_lower", "_upper"))]
                        rows += [(title, decode, f"{name}/{key}", f"{values[key]:.4g}") for key in keys]
        return rows

    def _encode_videos(self, decode: str) -> list[Any]:
        last = list(self.evaluation.episodes.values())[-1][decode]
        return encode_videos(self.videos[decode], select_episodes(last, self.score_name), self.score_name, self.writer)

    def _samples(self, decode: str) -> Markup | None:
        """Render prompts and completions of a decode, failures first; None where the policy writes no text."""
        sides = {title: decodes[decode] for title, decodes in self.evaluation.episodes.items() if decode in decodes}
        groups = {
            title: group_samples(sort_failures_first(episodes, self.score_name), self.score_name)
            for title, episodes in sides.items()
        }
        groups = {title: samples for title, samples in groups.items() if samples}
        decodes = len(list(self.evaluation.episodes.values())[-1])
        return render_section(groups, max_bytes=MAX_BYTES // decodes) if groups else None

    def _table(self, decode: str) -> tuple[list[str], list[dict[str, Any]], int]:
        """Build the table of episodes: extra columns, rows with failures first, and the total number of rows."""
        sides = {title: decodes[decode] for title, decodes in self.evaluation.episodes.items() if decode in decodes}
        *earlier, last = sides.values()
        before = {(e.prompt.key, e.sample_index): e for e in (earlier[0] if earlier else [])}
        names = sorted({name for episode in last for name in episode.scores} - {self.score_name, "return"})
        ordered = sort_failures_first(last, self.score_name)
        rows = [self._row(e, before.get((e.prompt.key, e.sample_index)), names) for e in ordered[:MAX_ROWS]]
        return names, rows, len(ordered)

    def _row(self, episode: Episode, before: Episode | None, names: Sequence[str]) -> dict[str, Any]:
        plain = episode_row(episode)
        length = plain["decisions"] if plain["decisions"] is not None else plain["tokens"]
        scores = [episode.scores.get(name) for name in names]
        return {
            **plain,
            "kind": classify_episode(episode, self.score_name),
            "outcome": get_outcome(episode, self.score_name) or plain["ended"],
            "before": None if before is None else get_outcome(before, self.score_name) or before.ended,
            "before_kind": None if before is None else classify_episode(before, self.score_name),
            "length": "" if length is None else length,
            "return": _format_number(episode.scores.get("return")),
            "further": [_format_number(value) for value in scores],
        }


def _flatten(stated: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, format_value(value)) for name, value in flatten_entries(stated).items()]


def _format_number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
