"""What a tracker gets beside metrics and configuration: tables of samples, and videos."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from PIL import Image

from mmrl.files.atomic import write_file
from mmrl.samples.view import count_choices, mean_advantage, message_text

RUN_ID = "tracker_run_id.txt"
"""In the folder of a logger: the id of the tracker's run."""
COLUMNS = (
    "iteration",
    "key",
    "prompt",
    "right answer",
    "completion",
    "reward",
    "scores",
    "advantage",
    "length",
    "ended",
)


@runtime_checkable
class SampleLogger(Protocol):
    """Logger that takes tables of samples and videos; `log_metrics` and `log_hyperparams` are Lightning's."""

    def log_samples(self, groups: Sequence[Mapping[str, Any]], step: int) -> None: ...

    def log_video(self, name: str, file: Path, step: int) -> None: ...


@runtime_checkable
class ContinuedLogger(Protocol):
    """Logger of a tracker in which a resumed run goes on under the id of its first part."""

    def continue_run(self) -> None: ...


def read_run_id(folder: str | Path) -> str | None:
    """Read the id of the tracker's run that an earlier process kept in the folder; None if there is none."""
    file = Path(folder) / RUN_ID
    return file.read_text(encoding="utf-8").strip() or None if file.is_file() else None


def keep_run_id(folder: str | Path, run_id: str) -> None:
    """Keep the id of a tracker's run, for a run that resumes this one."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    write_file(Path(folder) / RUN_ID, f"{run_id}\n")


def sample_rows(groups: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    """Build one row of `COLUMNS` for every completion."""
    return [_row(group, episode) for group in groups for episode in group["episodes"]]


def sample_table(
    groups: Sequence[Mapping[str, Any]], image_class: Callable[[Image.Image], Any]
) -> tuple[list[str], list[list[Any]]]:
    """Build the columns and rows of a table with a column more, the first image of the prompt; None without one.

    Args:
        groups: samples of an iteration.
        image_class: the tracker's class of an image.
    """
    images = [_open(group["images"]) for group in groups for _ in group["episodes"]]
    cells = [None if image is None else image_class(image) for image in images]
    return [*COLUMNS, "image"], [[*row, image] for row, image in zip(sample_rows(groups), cells)]


def _row(group: Mapping[str, Any], episode: Mapping[str, Any]) -> list[Any]:
    turns = episode.get("turns", [])
    text = "".join("".join(turn["tokens"]) for turn in turns) or episode.get("output") or episode.get("instruction", "")
    return [
        group["iteration"],
        group["key"],
        "\n".join(map(message_text, group["messages"])),
        "" if group.get("answer") is None else str(group["answer"]),
        text,
        episode.get("reward"),
        ", ".join(f"{name} {value}" for name, value in episode.get("scores", {}).items()),
        mean_advantage(episode),
        count_choices(episode),
        episode["ended"],
    ]


def _open(images: Sequence[str]) -> Image.Image | None:
    return Image.open(io.BytesIO(base64.b64decode(images[0].partition(",")[2]))) if images else None
