"""Preference data: two answers to a prompt of which one was preferred, and single answers that are desirable or not."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from mmrl.core.types import AssistantMessage, Context, Episode, Observation, Prompt, Request, Task, Turn
from mmrl.rollouts.base import Rollout
from mmrl.rollouts.offline.demonstrations import demonstration
from mmrl.transforms.best_worst import label_preference

FIRST_ROWS = 16
"""Rows of a task that are read before a model is built."""
NUMBERS = ("margin", "probability")
"""Columns of a pair beside its answers; the batch has them as preference_NAME."""


def answers(prompt: Prompt) -> tuple[str, str]:
    """The preferred and the other answer of a prompt."""
    missing = [name for name in ("chosen", "rejected") if name not in prompt.info]
    if len(missing) == 1:
        raise ValueError(
            f"{prompt.place or prompt.key}: the row has one answer with a label, and pairs of answers are needed; "
            "recipe=kto learns from single answers (rollout=labelled)"
        )
    if missing:
        raise ValueError(f"prompt {prompt.key!r} has no {missing}; pairs come from a task such as task=preferences")
    return prompt.info["chosen"], prompt.info["rejected"]


def check_answers(task: Task, read: Callable[[Prompt], Sequence[str]]) -> None:
    """Refuse a task whose first rows have no conversation, or answers that are no texts, are empty or are all alike.

    Args:
        task: of labelled answers.
        read: the answers of a prompt.
    """
    for prompt in (task[index] for index in range(min(FIRST_ROWS, len(task)))):
        place, texts = prompt.place or prompt.key, read(prompt)
        if not prompt.messages:
            raise ValueError(f"{place}: the row has no messages before its answers; give it a prompt")
        for text in texts:
            if not isinstance(text, str):
                raise ValueError(f"{place}: an answer is {repr(text)[:80]} ({type(text).__name__}), not a text")
            if not text.strip() and not isinstance(text, AssistantMessage):
                raise ValueError(f"{place}: an answer is empty; fill it in or leave the row out")
        if len(texts) == 2 and texts[0] == texts[1] and not isinstance(texts[0], AssistantMessage):
            raise ValueError(f"{place}: both answers are {texts[0][:80]!r}, so none is preferred; leave the row out")


class LabelledAnswers(Rollout):
    """All answers of every prompt as episodes of one group, each desirable or not; the policy did not sample them.

    A prompt has a `chosen` answer, a `rejected` one, or both in `Prompt.info`; chosen ones are desirable.
    """

    samples = False

    @classmethod
    def writes(cls) -> frozenset[str]:
        return frozenset({"preference"})

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        out = []
        for slot, prompt in prompts:
            episodes = []
            for sample_index, (answer, sign) in enumerate(self.label(prompt)):
                raw = {**prompt.observation, "answer": answer}  # for those that read it with the prompt
                turn = Turn(demonstration(raw, answer, ctx))
                episodes.append(label_preference(Episode(prompt, slot, sample_index, [turn], source="demo"), sign))
            done = [episode.turns[0].completion for episode in episodes]
            if len(done) == 2 and _same(*(completion.observation for completion in done)):
                for completion in done:
                    completion.prompt_id = slot  # so that the prompt is read once
            out += episodes
        return out

    def check_task(self, task: Task) -> None:
        check_answers(task, lambda prompt: [answer for answer, _ in self.label(prompt)])

    def label(self, prompt: Prompt) -> list[tuple[str, int]]:
        """Return the answers of a prompt with their signs, 1 desirable and -1 not."""
        signs = {"chosen": 1, "rejected": -1}
        labelled = [(prompt.info[name], sign) for name, sign in signs.items() if name in prompt.info]
        if not labelled:
            raise ValueError(f"prompt {prompt.key!r} has no labelled answer; take a task such as task=preferences")
        return labelled


class PreferencePairs(LabelledAnswers):
    """Both answers of every prompt as episodes of one group, chosen and rejected; the policy did not sample them.

    The columns `margin` and `probability` of `Prompt.info` are those of the pair; NaN where it has none.
    """

    @classmethod
    def writes(cls) -> frozenset[str]:
        return frozenset({"preference", "preference_margin", "preference_probability"})

    def check_columns(self, task: Task, readers: Mapping[str, str]) -> None:
        needed = {name: readers[column] for name in NUMBERS if (column := f"preference_{name}") in readers}
        if not needed:
            return
        for prompt in (task[index] for index in range(len(task))):
            for name, reader in needed.items():
                if not isinstance(prompt.info.get(name), int | float):
                    raise ValueError(
                        f"{prompt.place or prompt.key}: the row has no column {name!r}, which {reader} reads; add it "
                        "to every row, or leave its option out (margins, soft_labels)"
                    )

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        return [_with_numbers(episode) for episode in super().collect(prompts, ctx)]

    def label(self, prompt: Prompt) -> list[tuple[str, int]]:
        return list(zip(answers(prompt), (1, -1)))


def _with_numbers(episode: Episode) -> Episode:
    """Add margin and probability of the pair to its row."""
    numbers = {name: episode.prompt.info.get(name) for name in NUMBERS}
    columns = {
        f"preference_{name}": torch.tensor(float(value) if isinstance(value, int | float) else math.nan)
        for name, value in numbers.items()
    }
    return replace(episode, turns=[turn.with_columns(**columns) for turn in episode.turns])


def _same(one: Observation, other: Observation) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


class ScoredPairs(Rollout):
    """Score both answers of every prompt with a reward model (accuracy on preference pairs).

    The episode's scores are `right`, whether the preferred answer got more, and `margin`, how much more; of a model
    with several heads the margin is the mean of theirs and `spread` their standard deviation.
    """

    def check_task(self, task: Task) -> None:
        check_answers(task, answers)

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        requests = [
            Request({**prompt.observation, "answer": answer}, 0) for _, prompt in prompts for answer in answers(prompt)
        ]
        done = ctx.engine.sample(requests, ctx.sampling)
        out = []
        for (slot, prompt), chosen, rejected in zip(prompts, done[::2], done[1::2]):
            margin = float(chosen.output) - float(rejected.output)
            scores = {"right": float(margin > 0), "margin": margin}
            if "head_scores" in chosen.extra:
                margins = chosen.extra["head_scores"] - rejected.extra["head_scores"]
                scores["spread"] = float(margins.std(correction=0))
            out.append(Episode(prompt, slot, 0, [Turn(chosen)], info={"scores": scores}))
        return out
