"""RLMEC: the editor's corrections of wrong answers as rows, with weights of edited and unchanged tokens.

- which tokens of a correction differ from the answer: `edited_tokens`
- corrections as rows to imitate, and the editor's context of all rows: `AddCorrections`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from mmrl.core.columns import per_choice
from mmrl.core.groups import group_episodes
from mmrl.core.rng import derive_seed
from mmrl.core.types import Completion, Context, Episode, Request, Turn
from mmrl.methods.offline.rlmec.editor import TEMPLATE, edit_observation, references
from mmrl.rollouts.base import turn_seed
from mmrl.transforms.base import EpisodeTransform


def edited_tokens(before: Sequence[int], after: Sequence[int]) -> list[bool]:
    """Whether each token of `after` replaces or extends `before` in a shortest sequence of edits (Levenshtein).

    Among equally short ones, seen from the end, a token is rather kept or replaced than inserted, and rather inserted
    than removed.
    """
    # (before + 1, after + 1) Levenshtein distance of all prefixes of both
    cost = np.add.outer(np.arange(len(before) + 1), np.arange(len(after) + 1))
    for i, old in enumerate(before, 1):
        for j, new in enumerate(after, 1):
            cost[i, j] = min(cost[i - 1, j - 1] + (old != new), cost[i, j - 1] + 1, cost[i - 1, j] + 1)
    # trace back from the end of both: a step to i - 1, j - 1 keeps or replaces, to j - 1 inserts, to i - 1 removes
    edited, i, j = [False] * len(after), len(before), len(after)
    while j:
        if i and cost[i, j] == cost[i - 1, j - 1] + (before[i - 1] != after[j - 1]):
            i, j = i - 1, j - 1
            edited[j] = before[i] != after[j]
        elif cost[i, j] == cost[i, j - 1] + 1:
            j -= 1
            edited[j] = True
        else:
            i -= 1
    return edited


@dataclass(frozen=True)
class AddCorrections(EpisodeTransform):
    """Adds the editor's correction of each wrong answer as a row to imitate, and the editor's context of all rows.

    `imitation_weights` are `edited_weight` at tokens of a correction that differ from the answer and `kept_weight` at
    its others and at right answers; wrong answers have none. A correction is the greedy completion of the editor, which
    shares the policy's tokenizer; one that does not end is left out. Source: RLMEC, 2024, arXiv:2401.06081.

    Args:
        editor: name of the generative reward model in `model.frozen_models`.
        context: name of the editor's context.
        edited_weight: of replaced and inserted tokens.
        kept_weight: of the other ones.
        success_threshold: smallest reward of a right answer.
        template: how the editor reads the {reference} and the {answer} after the question.
    """

    editor: str = "editor"
    context: str = "edit"
    edited_weight: float = 1.0
    kept_weight: float = 0.5
    success_threshold: float = 1.0
    template: str = TEMPLATE

    def sampled_models(self) -> frozenset[str]:
        return frozenset({self.editor})

    def contexts(self) -> frozenset[str]:
        return frozenset({self.context})

    def writes(self) -> frozenset[str]:
        return frozenset({"imitation_weights"})

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        groups = group_episodes(episodes)
        solutions = dict(zip(groups, references([group[0].prompt for group in groups.values()], ctx)))
        # one prompt for the editor per episode: question, reference solution, answer
        raws = [
            edit_observation(e.prompt.observation, solutions[e.group], str(_answer(e).output), self.template)
            for e in episodes
        ]
        answers = [self._weigh_answer(episode, ctx.policy.encode(raw)) for episode, raw in zip(episodes, raws)]
        wrong = [(i, episode) for i, episode in enumerate(answers) if episode.reward < self.success_threshold]
        # one greedy correction per wrong answer
        requests = [
            Request(raws[i], derive_seed("editor", turn_seed(e.group, e.sample_index, ctx)), model=self.editor)
            for i, e in wrong
        ]
        corrections = ctx.engine.sample(requests, replace(ctx.sampling, decode="argmax")) if requests else []
        # corrections join the group of their answer, with sample indices above those of the answers
        after = {slot: 1 + max(episode.sample_index for episode in group) for slot, group in groups.items()}
        return answers + [
            self._correct(e, done, after[e.group] + e.sample_index)
            for (_, e), done in zip(wrong, corrections)
            if done.ended == "done" and len(done.action)
        ]

    def _weigh_answer(self, episode: Episode, observation: dict[str, Any]) -> Episode:
        """Return the episode with the editor's context, and its answer's weights."""
        done = _answer(episode)
        weight = self.kept_weight if episode.reward >= self.success_threshold else 0.0
        extra = {**done.extra, "imitation_weights": weight * done.action_mask.float()}
        # rows that share a prompt_id share their contexts, and this one differs from answer to answer
        completion = replace(done, others={**done.others, self.context: observation}, prompt_id=None, extra=extra)
        return replace(episode, turns=[replace(episode.turns[0], completion=completion)])

    def _correct(self, episode: Episode, correction: Completion, sample_index: int) -> Episode:
        """Return the correction of an answer as an episode to imitate."""
        done, ids = _answer(episode), correction.action
        if odd := sorted(name for name in done.extra if per_choice(name) and name != "imitation_weights"):
            raise ValueError(
                f"add_corrections: the answers carry {odd}, which a correction lacks; sample without truncation, and "
                "put it before transforms that add such columns"
            )
        edited = torch.tensor(edited_tokens(done.action.tolist(), ids.tolist()))
        row = replace(
            done,
            action=ids,
            behavior_logprobs=torch.zeros(len(ids)),
            action_mask=torch.ones(len(ids), dtype=torch.bool),
            output=correction.output,
            ended="done",
            value=None,
            extra={**done.extra, "imitation_weights": torch.where(edited, self.edited_weight, self.kept_weight)},
        )
        return Episode(episode.prompt, episode.group, sample_index, [Turn(row)], source="demo")


def _answer(episode: Episode) -> Completion:
    if len(episode.turns) != 1:
        raise ValueError(f"RLMEC corrects answers of one row, and {episode.prompt.key!r} has {len(episode.turns)}")
    return episode.turns[0].completion
