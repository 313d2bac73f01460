"""Rated answers: labels of an answer for the heads of a reward model, and gold scores of several answers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from mmrl.core.types import Context, Episode, Prompt, Request, Task, Turn
from mmrl.rollouts.base import Rollout
from mmrl.rollouts.offline.demonstrations import demonstration
from mmrl.rollouts.offline.pairs import FIRST_ROWS


class RatedAnswers(Rollout):
    """The answer of every prompt as an episode with its `labels` of `Prompt.info`; the policy did not sample it.

    Args:
        names: labels that are learned, in the order of the heads; None for all, in the order of the file.
    """

    samples = False

    def __init__(self, names: list[str] | None = None):
        self.names = names

    @classmethod
    def writes(cls) -> frozenset[str]:
        return frozenset({"labels"})

    def check_task(self, task: Task) -> None:
        for index in range(min(FIRST_ROWS, len(task))):
            read_labels(task[index], self.names)

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        episodes = []
        for slot, prompt in prompts:
            answer, labels = prompt.info["chosen"], read_labels(prompt, self.names)
            turn = Turn(demonstration({**prompt.observation, "answer": answer}, answer, ctx))
            turn = turn.with_columns(labels=torch.tensor(list(labels.values())))
            episodes.append(Episode(prompt, slot, 0, [turn], source="demo"))
        return episodes


class ScoredLabels(Rollout):
    """Predict the labels of every answer with the heads of a reward model.

    Scores of an episode: of regression `error_NAME`, the absolute error of each label; of multi_label `right_NAME`; of
    classification `right`. Labels that are not known have no score.

    Args:
        kind: classification, multi_label or regression, as that of the loss.
        names: labels, as those of the training rollout.
    """

    def __init__(self, kind: str = "regression", names: list[str] | None = None):
        if kind not in ("classification", "multi_label", "regression"):
            raise ValueError(f"rollout.kind must be classification, multi_label or regression, got {kind!r}")
        self.kind, self.names = kind, names

    def check_task(self, task: Task) -> None:
        RatedAnswers(self.names).check_task(task)

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        requests = [Request({**prompt.observation, "answer": prompt.info["chosen"]}, 0) for _, prompt in prompts]
        out = []
        for (slot, prompt), done in zip(prompts, ctx.engine.sample(requests, ctx.sampling)):
            heads = done.extra["head_scores"][0].tolist() if "head_scores" in done.extra else [float(done.output)]
            scores = self._compare(heads, read_labels(prompt, self.names))
            out.append(Episode(prompt, slot, 0, [Turn(done)], info={"scores": scores}))
        return out

    def _compare(self, heads: list[float], labels: dict[str, float]) -> dict[str, float]:
        if self.kind == "classification":
            values = list(labels.values())
            label = round(values[0]) if len(values) == 1 else values.index(max(values))
            return {"right": float(heads.index(max(heads)) == label)}
        known = {name: (head, label) for (name, label), head in zip(labels.items(), heads) if not math.isnan(label)}
        if self.kind == "multi_label":
            return {f"right_{name}": float((head > 0) == (label > 0.5)) for name, (head, label) in known.items()}
        return {f"error_{name}": abs(head - label) for name, (head, label) in known.items()}


class ScoredCandidates(Rollout):
    """Score all answers to a prompt with a reward model: an episode for each, with `reward_model` and `gold` scores.

    The answers and their gold scores are `completions` and `gold` of `Prompt.info`.
    """

    def check_task(self, task: Task) -> None:
        for index in range(min(FIRST_ROWS, len(task))):
            _candidates(task[index])

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        rows = [(slot, prompt, *pair) for slot, prompt in prompts for pair in _candidates(prompt)]
        done = ctx.engine.sample([Request({**p.observation, "answer": a}, 0) for _, p, a, _ in rows], ctx.sampling)
        out = []
        for (slot, prompt, _, gold), completion in zip(rows, done):
            scores = {"reward_model": float(completion.output), "gold": gold}
            out.append(Episode(prompt, slot, len(out), [Turn(completion)], info={"scores": scores}))
        return out


def _candidates(prompt: Prompt) -> list[tuple[str, float]]:
    """Answers to a prompt with their gold scores."""
    completions, gold = prompt.info.get("completions"), prompt.info.get("gold")
    if not completions or not gold:
        raise ValueError(
            f"{prompt.place or prompt.key}: the row has no columns 'completions' and 'scores', from which the best of "
            "n is chosen"
        )
    return list(zip(completions, gold, strict=True))


def read_labels(prompt: Prompt, names: list[str] | None) -> dict[str, float]:
    """Read the labels of a prompt's answer by name.

    Raises:
        ValueError: it has none, or not those.
    """
    labels, place = prompt.info.get("labels"), prompt.place or prompt.key
    if not isinstance(labels, dict) or "chosen" not in prompt.info:
        raise ValueError(
            f"{place}: the row has no column 'labels' beside its 'completion'; add a number or numbers by name"
        )
    if missing := [name for name in names or () if name not in labels]:
        raise ValueError(f"{place}: there is no label {missing}; the row has {sorted(labels)}")
    return labels if names is None else {name: labels[name] for name in names}
