"""ArCHer's iteration: store utterances, fit the critic on the replay buffer, and sample fresh utterances to learn from.

ArCHer, 2024, algorithm 1, arXiv:2402.19446.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mmrl.core.errors import check_at_least, check_fraction, check_interval, check_positive
from mmrl.core.evaluation_mode import evaluation_mode
from mmrl.core.rng import Noise, derive_rng
from mmrl.core.types import Completion, Context, Episode, Prompt, Turn
from mmrl.learners.phases.polyak_update import polyak_update
from mmrl.methods.agents.archer.critic import (
    Transition,
    UtteranceValues,
    critic_loss,
    q_targets,
    utterance_advantages,
)
from mmrl.transforms.base import StatefulTransform


class UtteranceReplay(StatefulTransform):
    """Exchange played episodes for fresh utterances in states of the replay buffer, with the critic's advantages.

    The turns of the episodes go into the buffer; the critic takes `critic_steps` steps on it; then the policy samples
    an utterance in each of `actor_states` stored states, and all its tokens get the utterance's advantage. Every one is
    an episode of one turn. In the first `warmup` iterations advantages are 0, so that the actor stays as it is. The
    rewards of turns are the environment's and the episode's reward is that of its last turn. One process only.

    Args:
        critic_steps: optimiser steps of the critic in an iteration.
        batch_size: transitions of a critic step.
        actor_states: states in which the actor samples and learns in an iteration.
        capacity: stored utterances; the oldest leave first.
        gamma: discount factor per utterance.
        tau: of the target critic, which moves after every critic step.
        lr: of the critic's Adam.
        max_grad_norm: to which the critic's gradient is clipped.
        warmup: iterations in which the critic alone learns.
    """

    def __init__(
        self,
        critic_steps: int = 50,
        batch_size: int = 256,
        actor_states: int = 256,
        capacity: int = 100_000,
        gamma: float = 0.95,
        tau: float = 0.1,
        lr: float = 2e-5,
        max_grad_norm: float = 1.0,
        warmup: int = 20,
    ):
        part = "UtteranceReplay"
        check_at_least(1, part, critic_steps=critic_steps, batch_size=batch_size, actor_states=actor_states)
        check_at_least(1, part, capacity=capacity)
        check_at_least(0, part, warmup=warmup)
        check_fraction(part, gamma=gamma)
        check_interval(part, "(0, 1]", tau=tau)
        check_positive(part, lr=lr, max_grad_norm=max_grad_norm)
        self.critic_steps, self.batch_size, self.actor_states = critic_steps, batch_size, actor_states
        self.capacity, self.gamma, self.tau, self.warmup = capacity, gamma, tau, warmup
        self.lr, self.max_grad_norm = lr, max_grad_norm
        self.buffer: list[Transition] = []
        self.critic: UtteranceValues | None = None  # built from the policy of the first iteration
        self._saved: Mapping[str, Any] = {}  # state of networks that are not built yet

    def writes(self) -> frozenset[str]:
        return frozenset({"advantages"})

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        if ctx.world_size > 1:
            raise ValueError("UtteranceReplay keeps critic and buffer in one process; set trainer.devices=1")
        sampling = ctx.sampling
        if sampling.top_k > 0 or sampling.top_p < 1 or sampling.min_p > 0 or sampling.guide is not None:
            raise ValueError(
                "UtteranceReplay samples from the whole distribution; leave out what truncates data.sampling"
            )
        self.buffer = [*self.buffer, *(each for episode in episodes for each in read_transitions(episode))]
        self.buffer = self.buffer[-self.capacity :]
        if not self.buffer:
            return []
        self._build(ctx)
        rng = derive_rng("archer", ctx.seed, ctx.iteration)
        for _ in range(self.critic_steps):
            self.update(self._draw(rng, self.batch_size), ctx, rng)
        version = max((turn.completion.policy_version for e in episodes for turn in e.turns), default=ctx.iteration)
        first = 1 + max((episode.group for episode in episodes), default=-1)  # a fresh utterance is none of the played
        fresh = self._sample_actor(self._draw(rng, self.actor_states), ctx, rng, version)
        return [replace(episode, group=first + number) for number, episode in enumerate(fresh)]

    def update(self, batch: Sequence[Transition], ctx: Context, rng: np.random.Generator) -> Tensor:
        """Take one step of the critic on these transitions, and move its target; returns the loss."""
        assert self.critic is not None
        device = next(self.critic.parameters()).device
        states = [each.state for each in batch]
        done = torch.tensor([each.following is None for each in batch], device=device)
        reward = torch.tensor([each.reward for each in batch], device=device)
        fresh = [completion.action for completion in sample_utterances(states, ctx, rng)]
        with torch.no_grad():
            following = [each.state if each.following is None else each.following for each in batch]
            next_v = self.target(following, [each[:0] for each in following])[1]
            v_target = self.target(states, fresh)[0]
        with torch.enable_grad():
            q, v = self.critic(states, [each.utterance for each in batch])
            loss = critic_loss(q, v, q_targets(reward, next_v, done, self.gamma), v_target)
            self.optimizer.zero_grad()
            loss.backward()
        torch.nn.utils.clip_grad_norm_(self.critic.parameters(), self.max_grad_norm)
        self.optimizer.step()
        polyak_update(list(self.target.parameters()), list(self.critic.parameters()), self.tau)
        return loss.detach()

    def _sample_actor(
        self, batch: Sequence[Transition], ctx: Context, rng: np.random.Generator, version: int
    ) -> list[Episode]:
        """Sample an utterance in each state: episodes of one turn, whose choices have its advantage."""
        assert self.critic is not None
        done = sample_utterances([each.state for each in batch], ctx, rng, version)
        with torch.no_grad():
            q, v = self.critic([each.state for each in batch], [each.action for each in done])
        advantages = utterance_advantages(q, v).cpu() * (ctx.iteration >= self.warmup)
        episodes = []
        for number, (transition, completion) in enumerate(zip(batch, done)):
            completion.extra["advantages"] = advantages[number].expand(len(completion.action)).clone()  # type: ignore[index]
            episodes.append(Episode(Prompt(transition.key), number, 0, [Turn(completion)]))
        return episodes

    def _draw(self, rng: np.random.Generator, count: int) -> list[Transition]:
        """Draw transitions uniformly without replacement, all where there are fewer."""
        places = rng.choice(len(self.buffer), min(count, len(self.buffer)), replace=False)
        return [self.buffer[place] for place in places]

    def _build(self, ctx: Context) -> None:
        """Build critic, target and optimiser from the policy once, and load what was saved."""
        if self.critic is not None:
            return
        policy: Any = ctx.policy
        with torch.random.fork_rng():
            torch.manual_seed(ctx.seed)
            self.critic = UtteranceValues(policy.model, policy.hidden_size).to(policy.device).eval()
        self.target = copy.deepcopy(self.critic).requires_grad_(False)
        # the output embeddings have no gradient, since values are read below them
        self.optimizer = torch.optim.Adam(self.critic.parameters(), lr=self.lr)
        if self._saved:
            self.critic.load_state_dict(self._saved["critic"])
            self.target.load_state_dict(self._saved["target"])
            self.optimizer.load_state_dict(self._saved["optimizer"])
            self._saved = {}

    def state_dict(self) -> dict[str, Any]:
        networks = dict(self._saved)
        if self.critic is not None:
            parts = {"critic": self.critic, "target": self.target, "optimizer": self.optimizer}
            networks = {name: part.state_dict() for name, part in parts.items()}
        return {"networks": networks, "buffer": [vars(each) for each in self.buffer]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.critic, self._saved = None, state["networks"]
        self.buffer = [Transition(**each) for each in state["buffer"]]


def read_transitions(episode: Episode) -> list[Transition]:
    """Transitions of an episode; the episode's reward is added to its last turn."""
    turns = list(episode.turns)
    for turn in turns:
        if other := sorted(set(turn.completion.observation) - {"input_ids"}):
            raise ValueError(f"UtteranceReplay stores states of text alone, and an observation has {other} too")
    states = [turn.completion.observation["input_ids"].cpu() for turn in turns]
    return [
        Transition(
            episode.prompt.key,
            states[t],
            turn.completion.action.cpu(),
            float(turn.reward) + (float(episode.reward) if t + 1 == len(turns) else 0.0),
            states[t + 1] if t + 1 < len(turns) else None,
        )
        for t, turn in enumerate(turns)
    ]


def sample_utterances(
    states: Sequence[Tensor], ctx: Context, rng: np.random.Generator, version: int = 0
) -> list[Completion]:
    """Sample an utterance of the present policy in each state, as the rows of a completion."""
    policy = ctx.policy
    inputs = {
        name: column.to(policy.device) for name, column in policy.collate([{"input_ids": s} for s in states]).items()
    }
    noise = Noise(rng.integers(2**63, size=len(states), dtype=np.uint64))
    with evaluation_mode(policy), torch.no_grad():
        action = policy.act_groups(inputs, torch.arange(len(states), device=policy.device), ctx.sampling, noise)
    lengths = action.action_mask.sum(1).tolist()
    return [
        Completion(
            observation={"input_ids": state},
            action=action.action[i, : lengths[i]].cpu(),  # type: ignore[index]
            behavior_logprobs=action.behavior_logprobs[i, : lengths[i]].float().cpu(),
            action_mask=torch.ones(lengths[i], dtype=torch.bool),
            output=action.output[i],
            ended="done" if action.ended is None else action.ended[i],
            extra={"temperature": torch.tensor(ctx.sampling.temperature)},
            policy_version=version,
        )
        for i, state in enumerate(states)
    ]
