"""EPO: process rewards of the turns that a judge calls decisive, and discounted returns over turns.

- the turns that a frozen judge lists get the reward of the episode: `DecisiveTurns`
- returns R_t = sum_k gamma^(k - t) r_k of the turns, minus a baseline: `TurnReturns`
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch

from mmrl.annotators.base import Annotator
from mmrl.core.batch import Batch
from mmrl.core.errors import check_fraction
from mmrl.core.rng import derive_seed
from mmrl.core.types import Context, Episode, Request, Sampling
from mmrl.ops.returns import discounted_returns
from mmrl.transforms.base import EpisodeTransform


@dataclass(frozen=True)
class DecisiveTurns(EpisodeTransform):
    """Process rewards: the turns that a frozen judge lists get the reward of the episode, all others 0.

    The judge reads the prompt, strategy and action of each turn, and the reward, and writes numbers of turns, from 1.
    Without a judge the last turn alone is decisive. Environment rewards of the turns do not count.
    Source: EPO, 2025, arXiv:2502.12486.

    Args:
        judge: its name in `model.frozen_models`; None for none.
        question: what the judge is asked after the turns; {score:g} stands for the reward.
        max_tokens: of its answer.
    """

    judge: str | None = None
    question: str = "\nThe final score is {score:g}. Which turns decided it? Write their numbers.\n"
    max_tokens: int = 64

    def sampled_models(self) -> frozenset[str]:
        return frozenset() if self.judge is None else frozenset({self.judge})

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        listed = [{len(episode.turns)} for episode in episodes] if self.judge is None else self._ask(episodes, ctx)
        return [self._label(episode, numbers) for episode, numbers in zip(episodes, listed)]

    def _ask(self, episodes: Sequence[Episode], ctx: Context) -> list[set[int]]:
        sampling = Sampling(decode="argmax", max_tokens=self.max_tokens)
        answers = ctx.engine.sample([self._request(episode, ctx) for episode in episodes], sampling)
        return [{int(number) for number in re.findall("[0-9]{1,6}", str(done.output))} for done in answers]

    def _request(self, episode: Episode, ctx: Context) -> Request:
        done = [turn.completion for turn in episode.turns]
        pairs = [(ctx.policy.decode(each.action.tolist()), each.output) for each in done]
        lines = [
            f"\nTurn {n}. Strategy: {strategy}. Action: {action}." for n, (strategy, action) in enumerate(pairs, 1)
        ]
        content = "".join(lines) + self.question.format(score=episode.reward)
        messages = (*episode.prompt.messages, {"role": "user", "content": content})
        seed = derive_seed("judge", ctx.seed, ctx.purpose, ctx.iteration, episode.group, episode.sample_index)
        return Request({"messages": messages, "images": episode.prompt.images}, seed, model=self.judge)

    def _label(self, episode: Episode, listed: set[int]) -> Episode:
        turns = [replace(turn, reward=episode.reward * (n in listed)) for n, turn in enumerate(episode.turns, start=1)]
        count = len(listed & set(range(1, len(turns) + 1)))
        episode.info["counts"] = {**episode.info.get("counts", {}), "decisive_turns": float(count)}
        turns[-1:] = [replace(turn, reward=turn.reward - episode.reward) for turn in turns[-1:]]  # collation adds it
        return replace(episode, turns=turns)


@dataclass(frozen=True)
class TurnReturns(Annotator):
    """Advantage of a turn: its discounted return R_t = sum_{k >= t} gamma^(k - t) r_k minus a baseline.

    r_k is the reward of row k of the episode. All choices of a row have the same advantage.
    Source: EPO, 2025, arXiv:2502.12486: REINFORCE over turns.

    Args:
        gamma: discount factor per turn.
        baseline: the mean return of all rows with a choice, of all processes; None for none.
    """

    gamma: float = 0.99
    baseline: Literal["mean"] | None = "mean"

    def __post_init__(self) -> None:
        check_fraction("turn_returns", gamma=self.gamma)

    def reads(self) -> frozenset[str]:
        return frozenset({"reward", "episode", "step", "action_mask"})

    def writes(self) -> frozenset[str]:
        return frozenset({"advantages"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        ids, episode = batch["episode"].unique(return_inverse=True)
        step, mask = batch["step"], batch["action_mask"]
        table = torch.zeros(len(ids), int(step.max()) + 1, dtype=torch.float64)
        turn_mask = torch.zeros_like(table, dtype=torch.bool)
        table[episode, step], turn_mask[episode, step] = batch["reward"].double(), True
        returns = discounted_returns(table, turn_mask, table.new_zeros(len(ids)), self.gamma)[episode, step]
        if self.baseline is not None:
            everyone = ctx.collector.gather(returns[mask.any(1)].tolist())
            returns = returns - math.fsum(everyone) / max(len(everyone), 1)
        return batch.with_columns(advantages=torch.where(mask, returns[:, None].float(), 0.0))
