"""RLFR: token rewards from the deviation of hidden states from a flow model of correct answers.

RLFR: Extending Reinforcement Learning for LLMs with Flow Environment, 2025, arXiv:2510.10201.

- velocity towards the next hidden state given the last one: `VelocityNetwork`
- deviation of each token from the flow: `flow_deviation`; the largest ones of an answer: `filter_deviations`
- as rewards per token: `FlowRewards`; returns per choice: `mmrl.annotators.reward_streams.RewardStreams`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from mmrl.annotators.base import Annotator
from mmrl.annotators.logprobs import score_rows
from mmrl.core.batch import Batch
from mmrl.core.columns import COLLATED
from mmrl.core.errors import check_at_least, check_interval
from mmrl.core.rng import Noise, derive_seed
from mmrl.core.types import Context
from mmrl.ops.flow import interpolate
from mmrl.ops.masked import zero_outside


class VelocityNetwork(nn.Module):
    """Velocity of the flow from noise to a hidden state, given the state before it, the time and the layer."""

    def __init__(self, size: int, layers: int, hidden: int):
        super().__init__()
        self.layer, self.read = nn.Embedding(layers, hidden), nn.Linear(2 * size + 1, hidden)
        self.out = nn.Sequential(nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, size))

    def forward(self, noisy: Tensor, before: Tensor, tau: Tensor) -> Tensor:
        """[M, L, D] from noisy and preceding states [M, L, D] and times [M, L, 1]."""
        return self.out(self.read(torch.cat([noisy, before, tau], -1)) + self.layer.weight)


def flow_error(network: VelocityNetwork, pairs: Tensor, noise: Tensor, tau: Tensor) -> Tensor:
    """Mean squared error [M, L] of the velocity x - noise at tau x + (1 - tau) noise, x the second state of each pair.

    Args:
        pairs: [2, M, L, D] states before and after a token.
        noise: [M, L, D].
        tau: [M, L, 1], 0 for noise and 1 for data.
    """
    before, after = pairs
    velocity = network(interpolate(after, noise, 1 - tau), before, tau)
    return (velocity - (after - noise)).square().mean(-1)


def flow_deviation(error: Tensor, tau: float) -> Tensor:
    """Deviation [M] of each token: tau / (1 - tau) times the error [M, L] at time tau, its mean over the layers."""
    return tau / (1 - tau) * error.mean(-1)


def filter_deviations(deviation: Tensor, mask: Tensor, threshold: float, top: int) -> Tensor:
    """Scale the deviations of each row to [0, 1] and keep those above the threshold, the `top` largest at most.

    All 0 in a row whose deviations are equal. Shapes [N, T]. Source: RLFR, 2025, arXiv:2510.10201.
    """
    least = deviation.masked_fill(~mask, torch.inf).amin(1, keepdim=True)
    most = deviation.masked_fill(~mask, -torch.inf).amax(1, keepdim=True)
    scaled = zero_outside((deviation - least) / (most - least).clamp(min=1e-12), mask & (most > least))
    top_k = scaled.topk(min(top, scaled.shape[1]), dim=1)
    largest = torch.zeros_like(scaled).scatter(1, top_k.indices, top_k.values)
    return zero_outside(largest, largest > threshold)


@dataclass
class FlowRewards(Annotator):
    """Write `token_rewards`: `coef` times the filtered deviation of each token from the flow of right answers.

    Answers are scored by the flow of the right answers of earlier iterations, and rewards are 0 as long as there are
    none. Once per iteration, after it has scored, the flow is fitted to the hidden states of the right answers of all
    processes. The last token of a row has no state after it and gets 0. The policy has `hidden_layers`. Source: RLFR,
    2025, arXiv:2510.10201.

    Args:
        coef: reward of the largest deviation of a row.
        threshold: scaled deviations up to this get 0.
        top: tokens of a row that get a reward.
        tau: time at which deviations are measured.
        hidden: width of the velocity network.
        steps: of Adam per iteration.
        lr: of Adam.
        success_threshold: smallest reward of a right answer.
        rows: contexts per forward pass.
    """

    coef: float = -0.01
    threshold: float = 0.6
    top: int = 15
    tau: float = 0.8
    hidden: int = 64
    steps: int = 20
    lr: float = 1e-3
    success_threshold: float = 1.0
    rows: int = 64
    _network: VelocityNetwork | None = field(default=None, init=False, repr=False)
    _fitted: int = field(default=-1, init=False, repr=False)  # iteration of the last fit

    def __post_init__(self) -> None:
        check_interval("flow_rewards", "(0, 1)", tau=self.tau)
        check_at_least(1, "flow_rewards", top=self.top, hidden=self.hidden, steps=self.steps, rows=self.rows)

    def reads(self) -> frozenset[str]:
        return COLLATED

    def needs(self) -> frozenset[str]:
        return frozenset({"hidden_states"})

    def writes(self) -> frozenset[str]:
        return frozenset({"token_rewards"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        # rows sorted by group, episode and step, so that noise and fit do not depend on the order of the batch
        order = torch.arange(batch.rows)
        for name in ("step", "episode", "group"):
            order = order[batch[name][order].argsort(stable=True)]
        sorted_batch = batch.select(order)
        states = score_rows(ctx.policy, sorted_batch, lambda out: out.extra["hidden_states"], self.rows, ctx.device)
        # (2, rows, choices - 1, layers, size) hidden states
        pairs = torch.stack([states[:, :-1], states[:, 1:]])  # before and after each token but the last
        # (rows, choices - 1) bool, tokens with a state after them; `right` those of correct answers
        mask = sorted_batch["action_mask"][:, :-1] & sorted_batch["action_mask"][:, 1:]
        right = mask & (sorted_batch["episode_reward"] >= self.success_threshold)[:, None]
        rewards = torch.zeros(sorted_batch["action_mask"].shape)
        if self._network is not None and mask.any():
            # (rows, choices - 1, layers, size) noise, and (tokens, layers) errors at the time tau
            noise = _draw_noise(sorted_batch["group"], pairs.shape[2:], ctx)
            with torch.no_grad():
                tau = torch.full((*noise.shape[:-1], 1), self.tau)[mask]
                error = flow_error(self._network, pairs[:, mask], noise[mask], tau)
            deviation = torch.zeros(mask.shape).masked_scatter(mask, flow_deviation(error, self.tau))
            rewards[:, :-1] = self.coef * filter_deviations(deviation, mask, self.threshold, self.top)
        if self._fitted != ctx.iteration:
            self._fit(pairs[:, right], sorted_batch["group"][:, None].expand_as(right)[right], ctx)
        return batch.with_columns(token_rewards=rewards[order.argsort()])

    def _fit(self, pairs: Tensor, group: Tensor, ctx: Context) -> None:
        """Fit the network to pairs [2, M, L, D] of all processes, of groups [M]; the first pairs create the network."""
        groups, parts = zip(*ctx.collector.gather([(group, pairs)]))
        self._fitted, everyone = ctx.iteration, torch.cat(parts, dim=1)
        if not everyone.shape[1]:
            return
        everyone = everyone[:, torch.cat(groups).argsort(stable=True)]  # a group is whole in one process
        generator = torch.Generator().manual_seed(derive_seed(ctx.seed, "flow", ctx.iteration) % 2**63)
        if self._network is None:
            with torch.random.fork_rng([]):
                torch.manual_seed(derive_seed(ctx.seed, "flow") % 2**63)
                self._network = VelocityNetwork(everyone.shape[-1], everyone.shape[-2], self.hidden)
        optimizer = torch.optim.Adam(self._network.parameters(), self.lr)
        with torch.enable_grad():
            for _ in range(self.steps):
                noise = torch.randn(everyone[0].shape, generator=generator)
                tau = torch.randn((*noise.shape[:-1], 1), generator=generator).sigmoid()
                optimizer.zero_grad()
                flow_error(self._network, everyone, noise, tau).mean().backward()
                optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        return {"fitted": self._fitted, "network": dict(self._network.state_dict()) if self._network else {}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._fitted, weights = state["fitted"], state["network"]
        if weights:
            layers, hidden = weights["layer.weight"].shape
            self._network = VelocityNetwork(len(weights["out.3.bias"]), layers, hidden)
            self._network.load_state_dict(weights)


def _draw_noise(group: Tensor, shape: Sequence[int], ctx: Context) -> Tensor:
    """Draw noise [N, *shape] for rows that are sorted by their group [N]; it depends on a row's place in the group."""
    _, sizes = group.unique_consecutive(return_counts=True)
    places = torch.cat([torch.arange(size) for size in sizes.tolist()])
    keys = zip(group.tolist(), places.tolist())
    return Noise([derive_seed(ctx.seed, "flow", ctx.iteration, *key) for key in keys]).normal(*shape)
