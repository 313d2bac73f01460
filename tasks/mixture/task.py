"""Mixture of several tasks, each problem verified by the task that it comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from mmrl.core.rng import derive_rng
from mmrl.core.types import Episode, Prompt, Task
from tasks.checks import check_index, check_split


@dataclass(frozen=True)
class Mixture(Task):
    """The first problems of every part, in seeded random order; `info["task"]` of a prompt names its part.

    Every split of a part stays what it is, so what a part holds out is held out here too.

    Args:
        parts: the tasks, by the names under which results are reported (evaluator `SuccessRateByTask`).
        counts: training problems of each part; a part that is not named gives all. More than a part has is refused.
        held_out: held-out problems of each part, in the same way.
        split: "train" or "held_out".
        seed: of the order; part of the task, not of the run.
    """

    parts: Mapping[str, Task]
    counts: Mapping[str, int] = field(default_factory=dict)
    held_out: Mapping[str, int] = field(default_factory=dict)
    split: str = "train"
    seed: int = 0

    name = "mixture"

    def __post_init__(self) -> None:
        check_split(self.name, self.split)
        if not self.parts:
            raise ValueError(f"task {self.name!r}: parts is empty; name at least one task")
        for option in ("counts", "held_out"):
            counts = getattr(self, option)
            if unknown := sorted(set(counts) - set(self.parts)):
                raise ValueError(f"task {self.name!r}: {option} names {unknown}, the parts are {sorted(self.parts)}")
            if bad := {part: count for part, count in counts.items() if count < 1}:
                raise ValueError(f"task {self.name!r}: {option} must be at least 1, got {bad}")

    @cached_property
    def _of_split(self) -> dict[str, Task]:
        return {name: part.on(self.split) for name, part in self.parts.items()}

    @cached_property
    def _places(self) -> list[tuple[str, int]]:
        """Part and index in it of every problem."""
        counts = self.counts if self.split == "train" else self.held_out
        places = []
        for name, part in self._of_split.items():
            count = counts.get(name, len(part))
            if count > len(part):
                raise ValueError(
                    f"task {self.name!r}: {count} problems of part {name!r} are asked for in {self.split}, "
                    f"it has {len(part)}"
                )
            places += [(name, index) for index in range(count)]
        order = derive_rng("mixture", self.split, self.seed).permutation(len(places))
        return [places[i] for i in order]

    @property
    def foreign(self) -> bool:
        """Whether a part holds rows that others wrote, of which the first is tried before a run."""
        return any(getattr(part, "foreign", False) for part in self.parts.values())

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: int) -> Prompt:
        check_index(self, index)
        name, place = self._places[index]
        prompt = self._of_split[name][place]
        info = {**prompt.info, "task": name}
        return replace(prompt, key=f"{self.name}/{name}/{self.split}/{index}", info=info)

    def prompts_to_check(self) -> Iterator[Prompt]:
        return chain.from_iterable(part.prompts_to_check() for part in self._of_split.values())

    def drop_long_prompts(self, fits: Callable[[Prompt, int], bool]) -> Mixture:
        return replace(self, parts={name: part.drop_long_prompts(fits) for name, part in self.parts.items()})

    def on(self, split: str) -> Mixture:
        return replace(self, split=split)

    def score(self, episode: Episode) -> dict[str, float]:
        return self.scores([episode])[0]

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        """Score the answers, one call per part; a part sees its own prompts."""
        result: list[dict[str, float]] = [{} for _ in episodes]
        for name, part in self._of_split.items():
            mine = [i for i, episode in enumerate(episodes) if episode.prompt.info["task"] == name]
            if mine:
                judged = part.scores([self._own(episodes[i]) for i in mine])
                for i, scores in zip(mine, judged):
                    result[i] = scores
        return result

    def demonstrate(self, index: int) -> str:
        name, place = self._places[index]
        return self._of_split[name].demonstrate(place)

    def script(self, index: int) -> list[str]:
        name, place = self._places[index]
        return self._of_split[name].script(place)

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        name, place = self._places[prompt.index]
        return self._of_split[name].guess(self._of_split[name][place], rng)

    def contract(self) -> dict[str, Any]:
        each = {name: part.contract() for name, part in self.parts.items()}
        return {name: contract for name, contract in each.items() if contract}

    def _own(self, episode: Episode) -> Episode:
        name, place = self._places[episode.prompt.index]
        return replace(episode, prompt=self._of_split[name][place])
