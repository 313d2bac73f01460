"""Columns of a row by the name of a format, and those that people mean for the policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mmrl.core.errors import check_interval
from tasks.dataset.source import Record
from tasks.dataset.template import parse_template


@dataclass(frozen=True)
class Columns:
    """Columns of a row; "a.b" is the entry b of the column a.

    Args:
        prompt: a text, which is the user's message, or a list of chat messages.
        answer: a text or a number; None for problems without one.
        images: columns of an image or a list of them; empty for text.
        videos: columns of a video or a list of them; empty for none.
        tools: of schemas of tools, a list or its JSON text; None for none.
        marks: whether <image> and <video> in a text say where they stand even where the row brings none.
        texts: whether a prompt may be a text; a conversation is a list.
        optional: those of "images", "videos" and "tools" that a row may lack.
    """

    prompt: str = "question"
    answer: str | None = "answer"
    images: tuple[str, ...] = ()
    videos: tuple[str, ...] = ()
    tools: str | None = None
    marks: bool = False
    texts: bool = True
    optional: frozenset[str] = frozenset()


_CHAT = dict(images=("images",), tools="tools", optional=frozenset({"images", "tools"}))
FORMATS: Mapping[str, Columns] = {
    "questions": Columns(),
    "prompts": Columns("prompt", None, **_CHAT),  # type: ignore[arg-type]
    "conversations": Columns("messages", None, texts=False, **_CHAT),  # type: ignore[arg-type]
    "trl": Columns("prompt", "solution", **_CHAT),  # type: ignore[arg-type]
    "verl": Columns(
        "prompt",
        "reward_model.ground_truth",
        ("images",),
        ("videos",),
        "tools",
        marks=True,
        optional=frozenset({"images", "videos", "tools"}),
    ),
}
"""Columns by the name of a row format; of `prompts` a reward function judges the completions, of `conversations` the
last message is the answer."""


_SHOWN = {"image": "images", "images": "images", "video": "videos", "videos": "videos", "tools": "tools"}
"""Columns that people mean for the policy, and the option that names such a column."""
_TEMPLATE = "chat_template_kwargs"
_BESIDE = ("system", "context", "input", "history", "audio")
"""Columns of other programs' prompts, which only reward functions read here."""


@dataclass(frozen=True)
class VideoLayout:
    """How videos of rows are shown.

    Args:
        show: "images" shows frames as images, "videos" a video as one.
        frames: that are taken evenly from each video; with `fps` the most.
        fps: frames that are taken from each second of a video that is shown as one; None takes `frames`.
        rate: frames per second of videos that are lists of images, or the column that holds it; None for unknown.
    """

    show: str
    frames: int
    fps: float | None
    rate: float | str | None

    def __post_init__(self) -> None:
        if self.show not in ("images", "videos"):
            raise ValueError(f"task.show_videos must be images or videos, got {self.show!r}")
        for option, value in (("fps", self.fps), ("frame_rate", self.rate)):
            if value is not None and self.show == "images":
                raise ValueError(
                    f"task.{option}={value}: frames that are shown as images have no times; set task.show_videos=videos"
                )
            if value is not None and not isinstance(value, str):
                check_interval("task", "(0, 1e6)", **{option: value})

    def options(self, record: Record, place: str) -> dict[str, Any]:
        """Arguments of `Media` for the videos of a row."""
        rate = self.rate
        if isinstance(rate, str):
            rate = record.get(rate)
            if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < float("inf"):
                raise ValueError(
                    f"{place}: column {self.rate!r} (task.frame_rate) must be frames per second > 0, got {rate!r:.40}"
                )
        return {"frames": self.frames, "whole": self.show == "videos", "fps": self.fps, "rate": rate}


@dataclass(frozen=True)
class RowLayout:
    """How rows become problems.

    Args:
        columns: of a row.
        system: system message before prompts that have none; None for none.
        template: text of the user's message, with {column} for columns; None for the prompt column.
        answer_extract: extractor of the answer in its column, for example "marker" for "...#### 7".
        videos: how they are shown.
        folder: where paths of images start, and which they may not leave.
        ignored: entries of chat messages, and columns of images, videos and tools, that are left out.
        filled: whether entries that are missing stand as None inside of structures, as in Arrow's tables.
    """

    columns: Columns
    system: str | None
    template: str | None
    answer_extract: str | None  # an extractor as JSON, since a layout is hashed
    videos: VideoLayout
    folder: Path
    ignored: tuple[str, ...] = ()
    filled: bool = False


def refuse_unshown(record: Record, place: str, layout: RowLayout) -> None:
    """Refuse a column of images, videos or tools that no option names: the policy would not see it."""
    columns = layout.columns
    used = {*columns.images, *columns.videos, columns.tools, columns.prompt, columns.answer, *layout.ignored}
    if record.get(_TEMPLATE) and _TEMPLATE not in layout.ignored:
        raise ValueError(
            f"{place}: column {_TEMPLATE!r} would not reach the chat template; set policy.template_arguments for all "
            f"rows, and task.ignored=[{_TEMPLATE}]"
        )
    for name, option in _SHOWN.items():
        if name in record and name not in used and record[name] not in (None, "", [], "[]"):
            raise ValueError(
                f"{place}: column {name!r} would not be shown to the policy; set task.{option}={name}, or leave it out "
                f"by task.ignored=[{name}]"
            )


def list_beside(record: Record, layout: RowLayout) -> list[str]:
    """Columns with a value that belong to the prompt in other programs and are not in the prompt here."""
    names = {name for _, name in parse_template(layout.template)} if layout.template is not None else set()
    names |= {layout.columns.prompt, layout.columns.answer, *layout.ignored}
    return [name for name in _BESIDE if record.get(name) and name not in names]


def with_columns(columns: Columns, **given: str | Sequence[str] | None) -> Columns:
    """Columns of a format with those that were named; a named column must be in every row."""
    overrides: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    for name in overrides.keys() & {"images", "videos"}:
        overrides[name] = (overrides[name],) if isinstance(overrides[name], str) else tuple(overrides[name])
    return replace(columns, **overrides, optional=columns.optional.difference(overrides))  # type: ignore[arg-type]
