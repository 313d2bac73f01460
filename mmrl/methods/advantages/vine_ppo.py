"""VinePPO: Monte Carlo values of the states in which reasoning steps begin, and the advantages of the steps.

VinePPO: Refining Credit Assignment in RL Training of LLMs, 2024, arXiv:2410.01679.

- V(s_k), the mean reward of fresh continuations (section 4, equation 6): `StepValues`
- gamma V(next step) - V(step) (equation 7): `segment_advantage`, `SegmentAdvantage`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mmrl.annotators.base import Annotator
from mmrl.core.batch import Batch
from mmrl.core.errors import check_at_least, check_interval
from mmrl.core.rng import derive_seed
from mmrl.core.types import Completion, Context, Episode, Prompt, Request, Turn
from mmrl.rollouts.base import Rollout
from mmrl.rollouts.text.single_turn import SingleTurn
from mmrl.transforms.steps import fit_texts


class StepValues(Rollout):
    """Single-turn completions with the values of the states in which their steps begin, by Monte Carlo.

    V(s_k) is the mean reward of `continuations` fresh completions of the prompt and the first k steps, by the policy
    that sampled the completion. They have its length limit and are not trained on. States that several completions
    share are evaluated once. A continuation that fails is left out.

    Source: Kazemnejad et al., "VinePPO", 2024, arXiv:2410.01679, section 4 and equation 6.

    Args:
        continuations: K, per state.
        split: a step ends with the token that completes this text; the prompt alone is the first state.
        max_steps: of a completion; tokens after the last step belong to it.
    """

    def __init__(self, continuations: int = 9, split: str = "\n", max_steps: int = 20):
        check_at_least(1, "rollout", continuations=continuations, max_steps=max_steps)
        if not split:
            raise ValueError("rollout.split is empty: name the text with which a step ends")
        self.continuations, self.split, self.max_steps = continuations, split, max_steps

    @classmethod
    def writes(cls) -> frozenset[str]:
        return frozenset({"values", "segment"})

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        episodes = SingleTurn().collect(prompts, ctx)
        rows = [(episode, self._segments(episode.turns[0].completion, ctx)) for episode in episodes]
        values = self._values(rows, ctx)
        for episode, segment in rows:
            done = episode.turns[0].completion
            worth = torch.tensor([values.get(key, 0.0) for key in self._states(episode, segment)])
            extra = {**done.extra, "segment": segment}
            episode.turns = [Turn(replace(done, value=worth[segment], extra=extra))]
            episode.info["counts"] = {"steps/tried": int(segment[-1]) + 1}
        return episodes

    def _segments(self, done: Completion, ctx: Context) -> Tensor:
        """[T] the step of each token, from 0."""
        steps, out, text = 0, [], ""
        for token in fit_texts(ctx.policy.token_texts(done.action.tolist()), str(done.output)):
            out.append(steps)
            text += token
            if self.split in text and steps + 1 < self.max_steps:
                steps, text = steps + 1, ""
        return torch.tensor(out)

    def _states(self, episode: Episode, segment: Tensor) -> list[tuple[int, tuple[int, ...]]]:
        """Each step's beginning: the group, and the ids before it."""
        ids = episode.turns[0].completion.action.tolist()
        starts = [int((segment < k).sum()) for k in range(int(segment[-1]) + 1)]
        return [(episode.group, tuple(ids[:start])) for start in starts]

    def _values(self, rows: Sequence[tuple[Episode, Tensor]], ctx: Context) -> dict[tuple[int, tuple[int, ...]], float]:
        """The mean reward from each state."""
        # distinct states (group, ids of the steps before); several completions may share one
        prompts = {episode.group: episode for episode, _ in rows}
        states = list(dict.fromkeys(key for row in rows if row[0].ended != "error" for key in self._states(*row)))
        # `continuations` requests per state, seeded by the state, so that values do not depend on the other states
        requests = []
        for group, ids in states:
            raw = prompts[group].prompt.observation
            prefix = torch.tensor(ids, dtype=torch.long) if ids else None
            for k in range(self.continuations):
                seed = derive_seed(ctx.seed, ctx.purpose, ctx.iteration, group, "continue", k, *ids)
                requests.append(Request(raw, seed, prefix, group))
        episodes: list[Episode] = []
        owners = [number for number in range(len(states)) for _ in range(self.continuations)]
        ctx.progress("steps", 0, len(requests))
        for number, done in zip(owners, ctx.engine.sample(requests, ctx.sampling) if requests else []):
            group, ids = states[number]
            done = whole(done, ids, ctx)
            episodes.append(Episode(prompts[group].prompt, number, 0, [Turn(done)], ended=done.ended))
        ctx.collector.score(episodes)
        # rewards by state; continuations that failed in the engine are left out
        rewards: dict[int, list[float]] = {}
        for episode in episodes:
            if episode.ended != "error":
                rewards.setdefault(episode.group, []).append(episode.reward)
        return {states[number]: sum(values) / len(values) for number, values in rewards.items()}


def whole(done: Completion, before: Sequence[int], ctx: Context) -> Completion:
    """Concatenate a prefix and its continuation, truncated to the length limit of a completion."""
    budget = ctx.sampling.max_tokens - len(before)
    ids = [*before, *done.action[:budget].tolist()]
    is_cut = len(done.action) > budget
    ended = "length" if is_cut and done.ended == "done" else done.ended
    return replace(done, action=torch.tensor(ids), output=ctx.policy.decode(ids), ended=ended)


def segment_advantage(
    values: Tensor,  # [N, T], of the state in which the choice's segment begins: the same for all its choices
    segment: Tensor,  # [N, T] ids >= 0 that do not fall along a row
    reward: Tensor,  # [N] given at the end of the row
    mask: Tensor,  # [N, T] bool
    gamma: float = 1.0,
) -> Tensor:  # [N, T]
    """Advantage of each segment: gamma * V(next segment) - V(segment); reward - V for the last segment.

    The same for all choices of a segment; 0 outside the mask. With gamma 1 the advantages of a row's segments sum to
    reward - V(first). Source: VinePPO, 2024, arXiv:2410.01679, equation 7.
    """
    inside = torch.where(mask, values, 0)
    # (rows, choices) highest segment id so far and before each choice, across masked positions
    reached = torch.where(mask, segment, -1).cummax(1).values
    before = torch.cat([reached.new_full((len(reached), 1), -1), reached[:, :-1]], 1)
    rank = (mask & (segment != before)).cumsum(1)  # 1, 2, ... of the segments that hold a choice
    # (rows, choices + 2) value of each segment by its rank; index 0 takes the masked positions
    worth = inside.new_zeros(len(inside), inside.shape[1] + 2).scatter(1, torch.where(mask, rank, 0), inside)
    # (rows, choices) value of the next segment, or the reward after the last one
    last = rank == rank[:, -1:]
    following = torch.where(last, reward[:, None], gamma * worth.gather(1, rank + 1))
    return torch.where(mask, following - inside, 0)


@dataclass(frozen=True)
class SegmentAdvantage(Annotator):
    """VinePPO advantage of the segment of each choice: see `mmrl.methods.advantages.vine_ppo.segment_advantage`.

    Reads the values of the states in which segments begin; `rollout=steps` or an annotator writes them.

    Args:
        gamma: discount factor per segment.
    """

    gamma: float = 1.0

    def __post_init__(self) -> None:
        check_interval("segment_advantage", "(0, 1]", gamma=self.gamma)

    def reads(self) -> frozenset[str]:
        return frozenset({"values", "segment", "reward", "action_mask"})

    def writes(self) -> frozenset[str]:
        return frozenset({"advantages"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        columns = batch["values"], batch["segment"], batch["reward"].float(), batch["action_mask"]
        return batch.with_columns(advantages=segment_advantage(*columns, gamma=self.gamma))
