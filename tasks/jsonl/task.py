"""Questions and answers from a JSON Lines file, with or without images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from mmrl.types import Episode, Prompt, Task
from tasks.checks import check_fraction, check_index, check_split, reply_text
from tasks.images import MAX_PIXELS, PILLOW_PIXELS, load_image
from tasks.jsonl.data import Columns, Images, Row, Version, read, version
from tasks.jsonl.splits import apart, refuse_contradictions, share
from tasks.jsonl.verify import verify


@dataclass(frozen=True)
class JsonlTask(Task):
    """A user's problems, one JSON object per line, verified by equal text or equal number.

    Args:
        path: the JSON Lines file; with `held_out_path`, all of it trains.
        held_out_path: a file of its own for the held-out split.
        held_out_fraction: share of the distinct problems of `path` that is held out when there is no such file.
        question: column of the question.
        answer: column of the answer, text or number.
        image: column of the path of an image; none for text.
        image_folder: where those paths start and which they may not leave; None for the JSON Lines file's folder.
        max_pixels: of an image; a larger one is refused before the first row is used.
        instructions: put before every question, on lines of its own.
        split: "train" or "held_out".
        seed: of the split; part of the task, not of the run.
    """

    path: str
    held_out_path: str | None = None
    held_out_fraction: float = 0.1
    question: str = "question"
    answer: str = "answer"
    image: str | None = None
    image_folder: str | None = None
    max_pixels: int = MAX_PIXELS
    instructions: str = ""
    split: str = "train"
    seed: int = 0

    name = "jsonl"

    def __post_init__(self) -> None:
        check_split(self.name, self.split)
        check_fraction(self.name, self.held_out_fraction)
        if not 1 <= self.max_pixels <= PILLOW_PIXELS:
            raise ValueError(f"task.max_pixels must be in [1, {PILLOW_PIXELS}], got {self.max_pixels}")

    @property
    def _rows(self) -> tuple[Row, ...]:
        folder = None if self.image_folder is None else Path(self.image_folder).expanduser().resolve()
        images = Images(folder, self.max_pixels)
        train = version(self.path, "task.path")
        held_out = None if self.held_out_path is None else version(self.held_out_path, "task.held_out_path")
        columns = Columns(self.question, self.answer, self.image)
        return _splits(train, held_out, columns, images, self.held_out_fraction, self.seed)[self.split]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Prompt:
        check_index(self, index)
        row = self._rows[index]
        return self._prompt(
            index, row, () if row.image is None else (load_image(row.image, row.place, self.max_pixels),)
        )

    def prompts_to_check(self) -> Iterator[Prompt]:
        for index, row in enumerate(self._rows):
            blank = () if row.image_size is None else (np.broadcast_to(np.uint8(0), (*row.image_size, 3)),)
            yield self._prompt(index, row, blank)

    def _prompt(self, index: int, row: Row, images: tuple[np.ndarray, ...]) -> Prompt:
        text = f"{self.instructions}\n{row.question}" if self.instructions else row.question
        content: Any = text if row.image is None else [{"type": "image"}, {"type": "text", "text": text}]
        return Prompt(
            key=f"{self.name}/{self.split}/{index}",
            messages=({"role": "user", "content": content},),
            images=images,
            answer=row.answer,
            info={"place": row.place},
        )

    def on(self, split: str) -> JsonlTask:
        return replace(self, split=split)

    def score(self, episode: Episode) -> dict[str, float]:
        return verify(reply_text(episode), episode.prompt.answer)

    def demonstrate(self, index: int) -> str:
        check_index(self, index)
        return self._rows[index].answer


@lru_cache(maxsize=8)
def _splits(
    train: Version, held_out: Version | None, columns: Columns, images: Images, held_out_fraction: float, seed: int
) -> dict[str, tuple[Row, ...]]:
    rows = read(train.file, columns, images)
    refuse_contradictions(rows)
    if held_out is None:
        return share(rows, held_out_fraction, seed)
    others = read(held_out.file, columns, images)
    refuse_contradictions(others)
    return apart(rows, others)
