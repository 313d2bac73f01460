"""Preference pairs as a task: a prompt with a chosen and a rejected answer."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from mmrl.core.errors import check_interval
from mmrl.core.rng import derive_rng
from mmrl.core.types import AssistantMessage, Episode, Prompt, Task
from tasks.checks import check_index, check_split
from tasks.preferences.data import Pair, pairs

log = logging.getLogger(__name__)

EXAMPLE = Path(__file__).parent / "sums.jsonl"
"""Sums of two numbers with the right answer preferred to one that is wrong in a digit."""


@dataclass(frozen=True)
class Preferences(Task):
    """Pairs, or single answers with labels, of a JSON Lines or parquet file in Hugging Face's preference formats.

    Prompts that are equal are held out together. A policy's own answer has no score here; what judges pairs, such as
    the rollout `ScoredPairs`, scores whether the preferred answer got more.

    Args:
        path: of the file; None for a small one that comes with the task, about sums.
        held_out_fraction: share of the distinct prompts that is held out.
        held_out_path: of a file whose rows are the held-out ones, such as RewardBench's; the other file is then trained
            on as a whole.
        flipped_fraction: share of the training pairs whose answers are exchanged, to plant wrong labels.
        desirable_only: leave out single answers that are not desirable, so that the others can be imitated.
        skip_bad: leave rows out from which nothing can be learned, with a warning that counts them; else the first one
            is refused.
        split: "train" or "held_out".
        seed: of the split; part of the task, not of the run.
    """

    path: str | None = None
    held_out_fraction: float = 0.2
    held_out_path: str | None = None
    flipped_fraction: float = 0.0
    desirable_only: bool = False
    skip_bad: bool = False
    split: str = "train"
    seed: int = 0

    name = "preferences"

    def __post_init__(self) -> None:
        check_split(self.name, self.split)
        check_interval(f"task {self.name!r}:", "(0, 1)", held_out_fraction=self.held_out_fraction)
        check_interval(f"task {self.name!r}:", "[0, 1)", flipped_fraction=self.flipped_fraction)

    @property
    def _pairs(self) -> tuple[Pair, ...]:
        file = _locate(EXAMPLE if self.path is None else self.path, "task.path")
        if self.held_out_path is not None and self.split == "held_out":
            other = _locate(self.held_out_path, "task.held_out_path")
            return _whole(other, _version(other), self.skip_bad)
        split = (file, _version(file), self.held_out_fraction, self.skip_bad, self.desirable_only, self.seed)
        if self.split == "train":
            rows = _train(*split, self.held_out_path is not None, self.flipped_fraction)
        else:
            rows = _splits(*split)["held_out"]
        if not rows:
            raise ValueError(f"task 'preferences': split {self.split!r} has no desirable answer; add rows")
        return rows

    def __len__(self) -> int:
        return len(self._pairs)

    def __getitem__(self, index: int) -> Prompt:
        check_index(self, index)
        pair = self._pairs[index]
        return Prompt(
            key=f"{self.name}/{self.split}/{index}",
            messages=pair.messages,
            answer=pair.chosen,
            info={**pair.answers, **pair.columns},
            place=pair.place,
            tools=pair.tools,
        )

    def prompts_to_check(self) -> Iterator[Prompt]:
        for index, pair in enumerate(self._pairs):
            messages = [answer for answer in pair.answers.values() if isinstance(answer, AssistantMessage)]
            for answer in messages or [max(pair.answers.values(), key=len)]:
                key = f"{self.name}/{self.split}/{index}"
                yield Prompt(key, pair.messages, answer=answer, place=pair.place, tools=pair.tools)

    def on(self, split: str) -> Preferences:
        return replace(self, split=split)

    def score(self, episode: Episode) -> dict[str, float]:
        return dict(episode.info.get("scores", {}))

    def demonstrate(self, index: int) -> str:
        check_index(self, index)
        pair = self._pairs[index]
        if pair.chosen is None:
            raise ValueError(
                f"{pair.place}: the answer is not desirable, so it is not imitated; task.desirable_only=true leaves "
                "such rows out"
            )
        return pair.chosen


def _locate(path: str | Path, key: str) -> Path:
    file = Path(path).expanduser().resolve()
    if not file.is_file():
        raise FileNotFoundError(f"task 'preferences': there is no file {file}; set {key} to a preference file")
    return file


def _version(file: Path) -> tuple[int, int]:
    return file.stat().st_mtime_ns, file.stat().st_size  # so that a changed file is read again


@lru_cache(maxsize=8)
def _whole(file: Path, version: tuple[int, int], skip_bad: bool) -> tuple[Pair, ...]:
    return pairs(file, skip_bad)[0]


@lru_cache(maxsize=8)
def _train(
    file: Path,
    version: tuple[int, int],
    fraction: float,
    skip_bad: bool,
    desirable_only: bool,
    seed: int,
    whole: bool,
    flipped: float,
) -> tuple[Pair, ...]:
    """Rows of the training split, or of the whole file, a share of them with exchanged answers."""
    splits = _splits(file, version, fraction, skip_bad, desirable_only, seed)
    rows = splits["train"] + (splits["held_out"] if whole else ())
    order = derive_rng("preferences", "flip", seed).permutation(len(rows)) if flipped else ()
    exchanged = set(order[: round(flipped * len(rows))].tolist()) if flipped else set()
    return tuple(
        replace(row, chosen=row.rejected, rejected=row.chosen) if number in exchanged else row
        for number, row in enumerate(rows)
    )


@lru_cache(maxsize=8)
def _splits(
    file: Path, version: tuple[int, int], fraction: float, skip_bad: bool, desirable_only: bool, seed: int
) -> dict[str, tuple[Pair, ...]]:
    pairs_read, skipped = pairs(file, skip_bad)
    if skipped:
        rows = len(skipped) + len(pairs_read)
        log.warning("%s: %d of %d rows left out, the first: %s", file, len(skipped), rows, skipped[0])
    prompts = list(dict.fromkeys(map(_identity, pairs_read)))
    num_held_out = max(1, round(fraction * len(prompts)))
    if num_held_out >= len(prompts):
        raise ValueError(
            f"task 'preferences': {file} has {len(prompts)} distinct prompts, too few to hold out {num_held_out}"
        )
    order = derive_rng("preferences", "split", seed).permutation(len(prompts))
    held_out = {prompts[i] for i in order[:num_held_out]}
    used = [pair for pair in pairs_read if pair.chosen is not None or not desirable_only]
    return {
        "train": tuple(pair for pair in used if _identity(pair) not in held_out),
        "held_out": tuple(pair for pair in used if _identity(pair) in held_out),
    }


def _identity(pair: Pair) -> str:
    """Text that is equal for equal prompts."""
    return repr((pair.messages, pair.tools)) if pair.tools else repr(pair.messages)
