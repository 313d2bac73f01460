"""Rollouts of answers that a file holds: completions to imitate, and preference pairs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from mmrl.core.rng import derive_rng
from mmrl.core.types import Context, Episode, Prompt, Turn
from mmrl.rollouts.base import Rollout, text_observation
from mmrl.rollouts.offline.demonstrations import add_row_seeds, demonstration
from mmrl.rollouts.offline.pairs import LabelledAnswers


class Answers(Rollout):
    """Completions of the task's training problems from a JSON Lines file, as demonstrations.

    A line has `key` and `index` of the problem and `completion`, as `mmrl rounds` writes them; prompts, images and
    right answers are the task's. Every pass over the file has an order of its own, independent of the curriculum, and
    an iteration reads the next `data.num_prompts` lines.

    Args:
        path: of the file.
    """

    samples = False
    texts: tuple[str, ...] = ("completion",)

    def __init__(self, path: str):
        self.path = Path(path)

    @classmethod
    def writes(cls) -> frozenset[str]:
        return frozenset({"row_seed"})

    @cached_property
    def _rows(self) -> list[dict[str, Any]]:
        if not self.path.is_file():
            raise ValueError(f"rollout.path={self.path}: no such file; `mmrl rounds` writes files of answers")
        rows = []
        for number, line in enumerate(self.path.read_bytes().split(b"\n"), start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{self.path}:{number}: not JSON ({error}); write the file again") from error
            self._check(row, f"{self.path}:{number}")
            rows.append(row)
        if not rows:
            raise ValueError(f"rollout.path={self.path} has no answers; loosen the filter that wrote it")
        return rows

    def _check(self, row: Any, place: str) -> None:
        types = {"key": str, "index": int, **dict.fromkeys(self.texts, str)}
        for name, kind in types.items():
            if not isinstance(row, Mapping) or not isinstance(row.get(name), kind):
                raise ValueError(f"{place}: {name} is missing or no {kind.__name__}; lines have {sorted(types)}")

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        first = ctx.iteration * (ctx.num_prompts or len(prompts) * ctx.world_size)
        orders: dict[int, Sequence[int]] = {}
        episodes: list[Episode] = []
        for slot, _ in prompts:
            pass_number, position = divmod(first + slot, len(self._rows))
            if pass_number not in orders:
                rng = derive_rng("answers", ctx.seed, pass_number)
                orders[pass_number] = rng.permutation(len(self._rows)).tolist()
            episodes += self._build(self._rows[orders[pass_number][position]], slot, ctx)
        return episodes

    def _build(self, row: Mapping[str, Any], slot: int, ctx: Context) -> list[Episode]:
        """Build the episodes of a line: here one demonstration."""
        prompt = self._find_prompt(row, ctx)
        turn = Turn(demonstration(text_observation(prompt), row["completion"], ctx))
        return [Episode(prompt, slot, 0, turns=add_row_seeds([turn], slot, ctx), source="demo")]

    def _find_prompt(self, row: Mapping[str, Any], ctx: Context) -> Prompt:
        index = row["index"]
        prompt = ctx.task[index] if 0 <= index < len(ctx.task) else None
        if prompt is None or prompt.key != row["key"]:
            raise ValueError(
                f"rollout.path={self.path} has an answer to {row['key']!r}, and problem {index} of the task is "
                f"{None if prompt is None else prompt.key!r}; give the task with which the answers were sampled"
            )
        return prompt


class AnswerPairs(Answers):
    """Preference pairs of the task's training problems from a JSON Lines file, as two episodes of one group.

    A line has `key`, `index`, `chosen` and `rejected`. A policy that reads an answer with its prompt, as a reward model
    does, reads each of the two so.
    """

    texts = ("chosen", "rejected")

    @classmethod
    def writes(cls) -> frozenset[str]:
        return frozenset({"preference"})

    def _build(self, row: Mapping[str, Any], slot: int, ctx: Context) -> list[Episode]:
        prompt = self._find_prompt(row, ctx)
        text_observation(prompt)  # refuses problems of simulators
        labelled = replace(prompt, info={**prompt.info, **{name: row[name] for name in self.texts}})
        return LabelledAnswers().collect([(slot, labelled)], ctx)
