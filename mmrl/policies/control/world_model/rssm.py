"""Recurrent state-space model: a deterministic belief and a Gaussian latent state, with prior and posterior."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from mmrl.core.errors import check_at_least, check_positive


@dataclass(frozen=True)
class LatentSequence:
    """States of N sequences of T observations.

    Args:
        belief: [N, T, D] deterministic part, what the past says.
        state: [N, T, S] drawn from the posterior.
        posterior: mean and standard deviation [N, T, S], given the observation too.
        prior: mean and standard deviation [N, T, S], given the past alone.
    """

    belief: Tensor
    state: Tensor
    posterior: tuple[Tensor, Tensor]
    prior: tuple[Tensor, Tensor]

    @property
    def features(self) -> Tensor:
        """Belief and state side by side [N, T, D + S], which every head reads."""
        return torch.cat([self.belief, self.state], dim=-1)


class RSSM(nn.Module):
    """Recurrent state-space model with a GRU belief and independent Gaussian states.

    h_t = GRU(f(s_{t-1}, a_{t-1}), h_{t-1}); prior s_t ~ N(m(h_t), sd(h_t)^2); posterior s_t ~ N(m(h_t, e_t), ...) with
    the embedding e_t of the observation. Standard deviations are softplus(x) + min_std.
    Source: Learning Latent Dynamics for Planning from Pixels, 2019, section 3, arXiv:1811.04551.

    Args:
        embedding: E, width of an observation's embedding.
        actions: A, dimensions of the action in [-1, 1].
        belief_size: D.
        state_size: S.
        hidden_size: width of the layers between, with exponential linear units.
        min_std: smallest standard deviation.
    """

    def __init__(
        self,
        embedding: int,
        actions: int,
        belief_size: int = 200,
        state_size: int = 30,
        hidden_size: int = 200,
        min_std: float = 0.1,
    ):
        super().__init__()
        check_at_least(1, "policy", belief_size=belief_size, state_size=state_size, hidden_size=hidden_size)
        check_positive("policy", min_std=min_std)
        self.belief_size, self.state_size, self.min_std = belief_size, state_size, min_std
        self.transition_in = nn.Sequential(nn.Linear(state_size + actions, hidden_size), nn.ELU())
        self.cell = nn.GRUCell(hidden_size, belief_size)
        self.prior_net = nn.Sequential(
            nn.Linear(belief_size, hidden_size), nn.ELU(), nn.Linear(hidden_size, 2 * state_size)
        )
        # the posterior's first layer on belief and embedding, which a sequence computes at once for its embeddings
        self.belief_in = nn.Linear(belief_size, hidden_size)
        self.embedding_in = nn.Linear(embedding, hidden_size, bias=False)
        self.posterior_out = nn.Sequential(nn.ELU(), nn.Linear(hidden_size, 2 * state_size))

    def _gaussian(self, out: Tensor) -> tuple[Tensor, Tensor]:
        mean, raw = out.float().chunk(2, dim=-1)
        return mean, softplus(raw) + self.min_std

    def prior(self, belief: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation [..., S] of the state, given beliefs [..., D]."""
        return self._gaussian(self.prior_net(belief))

    def transition(self, belief: Tensor, state: Tensor, action: Tensor) -> Tensor:
        """Belief [N, D] after an action [N, A] in a state."""
        return self.cell(self.transition_in(torch.cat([state, action], dim=-1)), belief)

    def imagine(self, belief: Tensor, state: Tensor, action: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Belief [N, D] and state [N, S] after an action, without an observation, from normal noise [N, S]."""
        belief = self.transition(belief, state, action)
        mean, std = self.prior(belief)
        return belief, torch.addcmul(mean, std, noise)

    def observe(
        self,
        embedding: Tensor,
        previous_action: Tensor,
        noise: Tensor,
        observed: Tensor | None = None,
        start: tuple[Tensor, Tensor] | None = None,
    ) -> LatentSequence:
        """States of N sequences, from their observations.

        Args:
            embedding: [N, T, E] of the observations.
            previous_action: [N, T, A] the action before each of them; 0 before the first one of an episode.
            noise: [N, T, S] standard normal.
            observed: [N, T] bool; elsewhere the posterior is the prior. None where all are observed.
            start: belief [N, D] and state [N, S] before the first action; 0 by default, as at an episode's start.
        """
        rows, steps = embedding.shape[:2]
        zeros = embedding.new_zeros
        belief, state = start or (zeros(rows, self.belief_size), zeros(rows, self.state_size))
        inputs = self.embedding_in(embedding)
        missing = None if observed is None or bool(observed.all()) else ~observed[..., None]
        beliefs, states, means, stds = [], [], [], []
        for step in range(steps):
            belief = self.transition(belief, state, previous_action[:, step])
            mean, std = self._gaussian(self.posterior_out(self.belief_in(belief) + inputs[:, step]))
            if missing is not None:
                prior_mean, prior_std = self.prior(belief)
                mean = torch.where(missing[:, step], prior_mean, mean)
                std = torch.where(missing[:, step], prior_std, std)
            state = torch.addcmul(mean, std, noise[:, step])
            for parts, part in ((beliefs, belief), (states, state), (means, mean), (stds, std)):
                parts.append(part)
        belief, state, mean, std = (torch.stack(parts, dim=1) for parts in (beliefs, states, means, stds))
        return LatentSequence(belief, state, (mean, std), self.prior(belief))
