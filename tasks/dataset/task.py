"""Problems from a data set as people have it: JSON Lines, CSV, parquet, Arrow, or a hub id."""

from __future__ import annotations

import copy
import dataclasses
import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mmrl.core.errors import check_interval
from mmrl.core.types import Episode, Prompt
from mmrl.rewards.extract import build_extractor
from mmrl.rewards.math_equality import compare_answers
from tasks.answers import AnswerTask
from tasks.checks import check_index, check_split, final_line
from tasks.dataset.columns import FORMATS, RowLayout, VideoLayout, with_columns
from tasks.dataset.media import blank_media, load_media
from tasks.dataset.problems import Problem
from tasks.dataset.source import TableSource, find_source
from tasks.dataset.splits import Rows, Rules, scan, split_column, split_fraction, split_tables
from tasks.dataset.template import check_template
from tasks.dataset.verify import verify
from tasks.images import MAX_PIXELS, PILLOW_PIXELS

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DatasetTask(AnswerTask):
    """Problems from a file, a folder or a hub id, verified by equal text or equal number.

    Args:
        path: a JSON Lines, JSON, CSV, TSV, parquet or Arrow file; a folder that `datasets` reads; or a hub id.
        held_out_path: of the held-out split; None to hold out rows of `path`.
        held_out_fraction: share of the distinct problems of `path` that is held out when nothing else tells the split.
        format: of the rows: "questions" (question, answer), "trl" (prompt, solution), "verl" (prompt,
            reward_model.ground_truth, images, videos), "prompts" (prompt without an answer) or "conversations"
            (messages whose last one is the answer). The options below name other columns.
        prompt: column of the prompt, a text or a list of chat messages.
        answer: column of the answer, a text or a number; "a.b" is entry b of column a.
        images: column of an image or a list of images (paths, bytes, or {bytes, path}), or a list of such columns.
        videos: column of a video file or its frames, or a list of such columns.
        tools: column of the schemas of tools that the chat template shows: a list, or its JSON text.
        ignored: entries of chat messages that are left out, such as id and timestamp, and columns of images, videos and
            tools that the policy shall not see; others are refused by name.
        system: system message, before prompts that have none.
        template: text of the user's message with {column} for columns, in place of `prompt`.
        answer_extract: extractor that finds the answer in its column, as `extract`; "marker" for "...#### 7".
        frames: that are taken evenly from each video; with `fps` the most.
        show_videos: "images" shows these frames as images; "videos" shows videos, with the times of their frames, to a
            policy whose processor takes videos.
        fps: frames taken from each second of a video that is shown as one; None takes `frames` of any.
        frame_rate: frames per second of videos that are lists of images, or the column that holds it.
        image_folder: where paths of images start and which they may not leave; None for the file's folder.
        max_pixels: of an image; a larger one is refused.
        check_images: images that are decoded before the first step, to find broken ones; others when they are used.
        max_prompt_tokens: longer prompts, counted with the policy's tokenizer, are left out; None keeps all.
        equality: "text" compares texts and numbers; "math" also expressions in LaTeX, by math-verify.
        equality_timeout_s: limit of a comparison by math-verify; a longer one scores `timeout` 1 and `exact` 0.
        skip_bad: leave out rows that are malformed, have no answer or contradict earlier ones; False refuses them.
        subset: configuration of a data set on the hub.
        train_split: of a data set on the hub, or of a folder.
        held_out_split: of the same data set for the held-out split; None to hold out a part of the other.
        held_out_column: column that tells which rows are held out.
        held_out_values: its values in those rows.
        split: "train" or "held_out".
        seed: of the fraction; part of the task, not of the run.
    """

    path: str
    held_out_path: str | None = None
    held_out_fraction: float = 0.1
    format: Literal["questions", "trl", "verl", "prompts", "conversations"] = "questions"
    prompt: str | None = None
    answer: str | None = None
    images: str | list[str] | None = None
    videos: str | list[str] | None = None
    tools: str | None = None
    ignored: Sequence[str] = ()
    system: str | None = None
    template: str | None = None
    answer_extract: str | dict[str, Any] | None = None
    frames: int = 8
    show_videos: Literal["images", "videos"] = "images"
    fps: float | None = None
    frame_rate: float | str | None = None
    image_folder: str | None = None
    max_pixels: int = MAX_PIXELS
    check_images: int = 10_000
    max_prompt_tokens: int | None = None
    equality: Literal["text", "math"] = "text"
    equality_timeout_s: float = 5.0
    skip_bad: bool = False
    subset: str | None = None
    train_split: str = "train"
    held_out_split: str | None = None
    held_out_column: str | None = None
    held_out_values: Sequence[str] = ("test",)
    split: str = "train"
    seed: int = 0
    _chosen: dict[str, np.ndarray] | None = field(default=None, init=False, repr=False, compare=False)

    name, foreign = "dataset", True

    @classmethod
    def packages_of(cls, init_args: dict[str, Any]) -> tuple[str, ...]:
        return ("math_verify",) if init_args.get("equality") == "math" else ()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_split(self.name, self.split)
        check_interval(f"task {self.name!r}:", "(0, 1)", held_out_fraction=self.held_out_fraction)
        check_interval("task", f"[1, {PILLOW_PIXELS}]", max_pixels=self.max_pixels)
        if self.format not in FORMATS:
            raise ValueError(f"task.format must be one of {', '.join(FORMATS)}, got {self.format!r}")
        if self.template is not None:
            check_template(self.template, self.images is not None or self.videos is not None)
        if self.answer_extract is not None:
            build_extractor(self.answer_extract, "task.answer_extract")
        for option, least in (("frames", 1), ("check_images", 0), ("max_prompt_tokens", 1)):
            value = getattr(self, option)
            if value is not None and value < least:
                raise ValueError(f"task.{option} must be at least {least}, got {value}")
        check_interval("task", "(0, 1e4)", equality_timeout_s=self.equality_timeout_s)
        ways = ("held_out_path", "held_out_split", "held_out_column")
        if len(options := [way for way in ways if getattr(self, way) is not None]) > 1:
            raise ValueError(f"task.{options[0]} and task.{options[1]} both tell the split; set one of them")
        if self.held_out_column is None and tuple(self.held_out_values) != ("test",):
            raise ValueError(
                f"task.held_out_values={list(self.held_out_values)} are values of a column; set task.held_out_column"
            )
        self._refuse_splits_of_a_file()
        self._video_layout()

    def _video_layout(self) -> VideoLayout:
        return VideoLayout(self.show_videos, self.frames, self.fps, self.frame_rate)

    @property
    def _rows(self) -> Rows:
        train = find_source(self.path, self.subset, self.train_split, "task.path")
        held_out = None
        if self.held_out_path is not None:
            held_out = find_source(self.held_out_path, self.subset, self.train_split, "task.held_out_path")
        elif self.held_out_split is not None:
            held_out = find_source(self.path, self.subset, self.held_out_split, "task.path")
        columns = dict(prompt=self.prompt, answer=self.answer, images=self.images, videos=self.videos, tools=self.tools)
        layout = RowLayout(
            with_columns(FORMATS[self.format], **columns),
            self.system,
            self.template,
            None if self.answer_extract is None else json.dumps(self.answer_extract),
            self._video_layout(),
            train.folder if self.image_folder is None else Path(self.image_folder).expanduser().resolve(),
            tuple(self.ignored),
            train.filled,
        )
        rules = Rules(
            self.max_pixels,
            self.check_images,
            self.skip_bad,
            self.held_out_fraction,
            self.held_out_column,
            tuple(map(str, self.held_out_values)),
            self.seed,
        )
        rows = _splits(train, held_out, layout, rules, self.image_folder is None)[self.split]
        return rows if self._chosen is None else rows.take(self._chosen[self.split])

    def _refuse_splits_of_a_file(self) -> None:
        options = {"subset": self.subset, "train_split": self.train_split, "held_out_split": self.held_out_split}
        overrides = [f"task.{name}={value}" for name, value in options.items() if value not in (None, "train")]
        if overrides and os.path.isfile(os.path.expanduser(self.path)):  # False for what is no path at all
            raise ValueError(
                f"task 'dataset': {Path(self.path).name} is one file, and {', '.join(overrides)} is for data sets with "
                "parts; leave it out, and name held-out rows by task.held_out_path or task.held_out_column"
            )

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Prompt:
        check_index(self, index)
        problem = self._rows.problem(index)
        return self._prompt(index, problem, load_media(problem.media, self.max_pixels))

    def prompts_to_check(self) -> Iterator[Prompt]:
        for index, problem in enumerate(self._rows.problems()):
            prompt = self._prompt(index, problem, blank_media(problem.media))
            prompt = self.add_form(prompt, is_first=index == 0) if self.state_form else prompt
            yield prompt if problem.target is None else dataclasses.replace(prompt, answer=problem.target)

    def _prompt(self, index: int, problem: Problem, media: dict[str, tuple[Any, ...]]) -> Prompt:
        return Prompt(
            key=f"{self.name}/{self.split}/{index}",
            messages=problem.messages,
            **media,
            answer=problem.answer,
            info=problem.info,
            place=problem.place,
            tools=problem.tools,
        )

    def drop_long_prompts(self, fits: Callable[[Prompt, int], bool]) -> DatasetTask:
        limit = self.max_prompt_tokens
        if limit is None:
            return self
        whole, masks = self._select(None), {}
        for split in ("train", "held_out"):
            part = whole.on(split)
            masks[split] = np.array([fits(prompt, limit) for prompt in part.prompts_to_check()])
            dropped = int((~masks[split]).sum())
            if dropped == len(masks[split]):
                raise ValueError(
                    f"task.max_prompt_tokens={limit}: all {dropped} prompts of split {split!r} are longer; raise it"
                )
            if dropped:
                log.warning(
                    "%s: %d of %d prompts (%s) are longer than task.max_prompt_tokens=%d and are left out",
                    *(self.path, dropped, len(masks[split]), split, limit),
                )
        return self._select(masks)

    def on(self, split: str) -> DatasetTask:
        check_split(self.name, split)
        other = copy.copy(self)
        object.__setattr__(other, "split", split)
        return other

    def _select(self, chosen: dict[str, np.ndarray] | None) -> DatasetTask:
        other = copy.copy(self)
        object.__setattr__(other, "_chosen", chosen)
        return other

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        return {} if prompt.answer is None else verify(answer, prompt.answer)

    def score_names(self, prompt: Prompt) -> tuple[str, ...]:
        return (*super().score_names(prompt), *(("timeout",) if self.equality == "math" else ()))

    def score(self, episode: Episode) -> dict[str, float]:
        return self.scores([episode])[0]

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        results = [AnswerTask.score(self, episode) for episode in episodes]
        if self.equality == "text":
            return results
        other = [index for index, scores in enumerate(results) if scores.get("exact") == 0]
        replies = [self._read_reply(episodes[i]) for i in other]
        pairs = [(episodes[i].prompt.answer, text) for i, text in zip(other, replies)]
        outcomes = dict(zip(other, compare_answers(pairs, self.equality_timeout_s)))
        for index, scores in enumerate(results):
            if outcomes.get(index) == "equal":
                scores["exact"] = 1.0
            scores["timeout"] = float(outcomes.get(index) == "timeout")
        return results

    def _read_reply(self, episode: Episode) -> str:
        """The extracted answer, or the last line after the thoughts; empty if there is none."""
        if "extracted" in episode.info:
            return episode.info["extracted"] or ""
        return final_line(self.read_answer(episode) or "")

    def demonstrate(self, index: int) -> str:
        check_index(self, index)
        problem = self._rows.problem(index)
        if problem.target is not None and self.extract is None and self.answer_extract is None:
            return problem.target
        if problem.answer is None:
            raise ValueError(f"{problem.place}: there is no answer to imitate; set task.answer to its column")
        return self.write_answer(problem.answer)


@lru_cache(maxsize=8)
def _splits(
    train: TableSource, held_out: TableSource | None, layout: RowLayout, rules: Rules, beside: bool
) -> dict[str, Rows]:
    """Rows of both splits; `beside` says that images of the held-out file are beside that file."""
    train_scan = scan(train, layout, rules)
    other = None
    if held_out is not None:
        folder = held_out.folder if beside else layout.folder
        other = scan(held_out, dataclasses.replace(layout, folder=folder, filled=held_out.filled), rules)
        splits = split_tables(train_scan, other, rules)
    else:
        splits = (split_fraction if rules.held_out_column is None else split_column)(train_scan, rules)
    for part in (train_scan, other):
        if part is not None and part.reasons:
            log.warning(
                "%s: %d of %d rows are left out (task.skip_bad=true), the first one because: %s",
                *(part.source.path, len(part.reasons), len(part.indices) + len(part.reasons), part.reasons[0]),
            )
    return splits
