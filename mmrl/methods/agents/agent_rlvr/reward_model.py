"""Agent-RLVR: a reward model of attempts, which chooses among several at test time."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mmrl.core.types import Completion, Context, Episode, Prompt, Request, Sampling, Turn
from mmrl.engines.base import Engine
from mmrl.methods.agents.agent_rlvr.guidance import RetryWithGuidance
from mmrl.methods.agents.agent_rlvr.pairs import TestedPairs
from mmrl.rewards.models.scorer import ScorerReward
from mmrl.rollouts.base import Rollout
from mmrl.rollouts.offline.demonstrations import demonstration
from mmrl.transforms.best_worst import label_preference


def write_transcript(episode: Episode, policy: Any) -> str:
    """Write all that an episode's rows hold after their contexts: calls, results and the last answer."""
    return "".join(policy.decode(turn.completion.action.tolist()) for turn in episode.turns)


@dataclass(frozen=True)
class FrozenAgent:
    """The engine of a rollout whose requests a frozen model answers."""

    engine: Engine
    model: str

    def sample(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        return self.engine.sample([replace(request, model=self.model) for request in requests], sampling)


class AttemptPairs(Rollout):
    """Pairs of transcripts of a frozen agent, for a reward model: one that passes the tests and one that does not.

    The agent attempts each problem `attempts` times, with guidance where none of them passes, and `TestedPairs` selects
    the pair, whose transcripts the reward model reads behind the prompt. A problem without a pair has no row.
    Source: Agent-RLVR, 2025, arXiv:2506.11425.

    Args:
        rollout: how the agent acts.
        agent: name of the model in `model.frozen_models`.
        attempts: without guidance.
        retries: with guidance, of `RetryWithGuidance`; 0 gives none.
        instruction: of `RetryWithGuidance`.
        score_name: as in both.
    """

    samples = False

    def __init__(
        self,
        rollout: Rollout,
        agent: str = "agent",
        attempts: int = 4,
        retries: int = 4,
        instruction: str = "\nGuidance:\n",
        score_name: str = "exact",
    ):
        self.rollout, self.agent, self.attempts = rollout, agent, attempts
        self.retry = RetryWithGuidance(rollout, retries, score_name, instruction) if retries else None
        self.pairs = TestedPairs(score_name)

    @classmethod
    def writes(cls) -> frozenset[str]:
        return frozenset({"preference"})

    def sampled_models(self) -> frozenset[str]:
        return frozenset({self.agent})

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        agent: Any = ctx.models[self.agent]
        engine: Any = FrozenAgent(ctx.engine, self.agent)
        acting = replace(ctx, policy=agent, engine=engine, group_size=self.attempts, requested_indices=None)
        played = [episode for episode in self.rollout.collect(prompts, acting) if episode.ended != "error"]
        ctx.collector.score(played)
        labelled = self.pairs(self.retry(played, acting) if self.retry else played, acting)
        # without any pair one row that is not trained on
        signs = [int(episode.turns[0].completion.extra["preference"]) for episode in labelled]
        return [
            self._row(episode, write_transcript(episode, agent), sign, ctx) for episode, sign in zip(labelled, signs)
        ]

    def _row(self, episode: Episode, text: str, sign: int, ctx: Context) -> Episode:
        done = demonstration({**episode.prompt.observation, "answer": text}, text, ctx)
        row = Episode(episode.prompt, episode.group, 0 if sign > 0 else 1, [Turn(done)], source="demo")
        return label_preference(row, sign)


class TranscriptScore(ScorerReward):
    """Reward of an episode: the weighted sum of its scores, with `reward_model`, the score of its transcript.

    Args:
        model: as of `ScorerReward`.
        weights: as of `ScorerReward`.
        batch_size: as of `ScorerReward`.
    """

    def __init__(self, model: str = "reward_model", weights: dict[str, float] | None = None, batch_size: int = 64):
        super().__init__(model, "scored", weights, batch_size)
        self.agent: Any = None

    def bind(self, ctx: Context) -> TranscriptScore:
        bound: Any = copy.copy(super().bind(ctx))
        bound.agent = ctx.policy
        return bound

    def _read(self, episode: Episode) -> dict[str, Any]:
        messages, tools = list(episode.prompt.messages), list(episode.prompt.tools) or None
        return {"messages": messages, "answer": write_transcript(episode, self.agent), "tools": tools}
