"""Process rewards per token: score the steps of each completion and reward the token that ends each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from mmrl.core.types import Completion, Context, Episode, Turn
from mmrl.rewards.steps import StepScorer, StepTransform, split_steps
from mmrl.transforms.base import EpisodeTransform


@dataclass(frozen=True)
class StepRewards(EpisodeTransform):
    """Write `token_rewards` and `segment`: the reward of a step at its last token, and the step of each token.

    The reward is scale * transform(scores of the steps). `mmrl.annotators.step_advantage.StepAdvantage` makes
    advantages of it, and so does `GAE(token_rewards="token_rewards")`. It is for answers of one row.

    Args:
        scorer: of steps.
        scale: factor of the step rewards.
        transform: clip and delta of the scores.
        separator: a step ends with the token that completes it.
    """

    scorer: StepScorer
    scale: float = 1.0
    transform: StepTransform = field(default_factory=StepTransform)
    separator: str = "\n"

    def __post_init__(self) -> None:
        if not self.separator:
            raise ValueError("step_rewards.separator is empty; name the text with which a step ends")

    def writes(self) -> frozenset[str]:
        return frozenset({"token_rewards", "segment"})

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        steps = [split_steps(_answer(episode).output, self.separator) for episode in episodes]
        for episode, texts, scores in zip(episodes, steps, self.scorer.bind(ctx).score_steps(episodes, steps)):
            done = _answer(episode)
            segment = locate_steps(fit_texts(ctx.policy.token_texts(done.action.tolist()), episode.output), texts)
            rewards = torch.zeros(len(segment))
            for k, reward in enumerate(self.transform(scores)):
                inside = (segment == k).nonzero()
                if len(inside):  # a step without a token was cut off by an empty text
                    rewards[int(inside[-1])] = self.scale * reward
            episode.turns = [Turn(replace(done, extra={**done.extra, "segment": segment, "token_rewards": rewards}))]
        return episodes


def fit_texts(tokens: Sequence[str], output: str) -> list[str]:
    """Return the part of each token in a completion's text, which special tokens are not in.

    A tokenizer may also leave out a blank before the first token.

    Args:
        tokens: text of each token behind another one, as `Policy.token_texts` gives it.
        output: text of the completion.
    """
    parts, place = [], 0
    for token in tokens:
        token = token if place or output.startswith(token) else token.lstrip()
        parts.append(token if output.startswith(token, place) else "")
        place += len(parts[-1])
    return parts


def locate_steps(tokens: Sequence[str], steps: Sequence[str]) -> Tensor:
    """Return the step of each token [T]: the one in which the token's last character lies.

    Tokens without text, such as the end of the sequence, belong to the last step.

    Args:
        tokens: text of each token.
        steps: texts of the steps, whose joined text is that of the tokens.
    """
    ends = torch.tensor([len(step) for step in steps]).cumsum(0)
    reached = torch.tensor([len(token) for token in tokens]).cumsum(0)
    return torch.searchsorted(ends, reached.clamp(1, max(int(ends[-1]), 1))).clamp(max=len(steps) - 1)


def _answer(episode: Episode) -> Completion:
    if len(episode.turns) != 1 or not isinstance(episode.output, str):
        raise ValueError(
            f"step_rewards: {episode.prompt.key!r} was answered in {len(episode.turns)} rows, the last one "
            f"{type(episode.output).__name__}; steps are those of one text"
        )
    return episode.turns[0].completion
