"""CLUTR: a teacher that is paid the regret between two students chooses points of the latent space of a level VAE.

CLUTR: Curriculum Learning via Unsupervised Task Representation Learning, 2022, arXiv:2210.10243.

- the weight of the KL divergence over training: `kl_weight`
- the loss of the VAE: `vae_loss`
- the recurrent VAE of level descriptions: `LevelVAE`
- its training on random levels: `fit_level_vae`
- the curriculum: `CLUTR`
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmrl.core.errors import check_at_least, check_positive
from mmrl.core.rng import derive_rng, derive_seed
from mmrl.core.types import Context
from mmrl.curricula.regret import PAIRED

log = logging.getLogger(__name__)

BOUND = 4.0
"""Latent means lie in [-4, 4]: a tanh, times four."""


def kl_weight(step: int, middle: float = 3500, width: float = 1000) -> float:
    """Weight (tanh((i - middle) / width) + 1) / 2 of the KL divergence at step i.

    Source: CLUTR's released code, scripts of the VAE.
    """
    return (math.tanh((step - middle) / width) + 1) / 2


def vae_loss(
    logits: Tensor, tokens: Tensor, mean: Tensor, logvar: Tensor, reconstruction: float, weight: float
) -> Tensor:
    """w_rec CE + weight KL(N(mean, exp(logvar)) || N(0, 1)), scalar: the mean over levels.

    CE is the mean over the L tokens of a level, KL the sum over the d latent dimensions, nats.
    Source: CLUTR, 2022, arXiv:2210.10243, section 4.1.

    Args:
        logits: of every token, [N, L, cells].
        tokens: the level, [N, L] int64.
        mean: of the latent, [N, d].
        logvar: logarithm of its variance, [N, d].
        reconstruction: w_rec.
        weight: of the KL divergence (`kl_weight`).
    """
    entropy = F.cross_entropy(logits.flatten(0, 1), tokens.flatten())
    divergence = 0.5 * (mean**2 + logvar.exp() - 1 - logvar).sum(dim=1).mean()
    return reconstruction * entropy + weight * divergence


class LevelVAE(nn.Module):
    """Recurrent VAE: a level, a sequence of L cells, to a point of the latent space and back.

    A bidirectional LSTM reads embedded cells; its last states give mean and log-variance. An LSTM that reads the latent
    at each of the L steps gives the logits of the cells.

    Args:
        cells: values of a token.
        length: L.
        latent: d, dimensions of the latent space.
        embedding: width of an embedded cell.
        hidden: width of the LSTMs.
    """

    def __init__(self, cells: int, length: int, latent: int, embedding: int, hidden: int):
        super().__init__()
        self.length = length
        self.embedding = nn.Embedding(cells, embedding)
        self.encoder = nn.LSTM(embedding, hidden, batch_first=True, bidirectional=True)
        self.statistics = nn.Linear(2 * hidden, 2 * latent)
        self.decoder = nn.LSTM(latent, hidden, batch_first=True)
        self.logits = nn.Linear(hidden, cells)

    def encode(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance [N, d] of the latents of levels [N, L]; means lie in [-4, 4]."""
        _, (states, _) = self.encoder(self.embedding(tokens))
        mean, logvar = self.statistics(torch.cat([states[0], states[1]], dim=-1)).chunk(2, dim=-1)
        return BOUND * torch.tanh(mean), logvar

    def decode(self, latent: Tensor) -> Tensor:
        """Logits [N, L, cells] of the levels at points of the latent space, [N, d]."""
        states, _ = self.decoder(latent[:, None].expand(-1, self.length, -1))
        return self.logits(states)


def draw_levels(count: int, length: int, ordered: int, cells: int, rng: np.random.Generator) -> np.ndarray:
    """Draw uniform levels [count, length]: cells in ascending order, then `ordered` further ones as they come."""
    tokens = rng.integers(cells, size=(count, length))
    tokens[:, : length - ordered].sort(axis=1)
    return tokens


def fit_level_vae(
    vae: LevelVAE,
    ordered: int,
    steps: int,
    batch_size: int,
    lr: float,
    reconstruction: float,
    schedule: Mapping[str, float],
    seed: int,
) -> float:
    """Train a VAE on fresh random levels; returns the share of cells that it restores from the mean, of 1,024 levels.

    Args:
        vae: with weights to train in place.
        ordered: last tokens of a level that are not sorted.
        steps: of Adam, each on `batch_size` levels.
        batch_size: levels of a step.
        lr: learning rate.
        reconstruction: w_rec of the loss.
        schedule: `middle` and `width` of the weight of the KL divergence.
        seed: of levels and noise.
    """
    cells = vae.embedding.num_embeddings
    rng, noise = derive_rng("level vae", seed), torch.Generator().manual_seed(derive_seed("level vae", seed) % 2**63)
    optimizer = torch.optim.Adam(vae.parameters(), lr=lr)
    for step in range(steps):
        tokens = torch.from_numpy(draw_levels(batch_size, vae.length, ordered, cells, rng))
        mean, logvar = vae.encode(tokens)
        latent = mean + (0.5 * logvar).exp() * torch.randn(mean.shape, generator=noise)
        loss = vae_loss(vae.decode(latent), tokens, mean, logvar, reconstruction, kl_weight(step, **schedule))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        tokens = torch.from_numpy(draw_levels(1024, vae.length, ordered, cells, rng))
        return float((vae.decode(vae.encode(tokens)[0]).argmax(dim=-1) == tokens).float().mean())


class CLUTR(PAIRED):
    """CLUTR: PAIRED's teacher, whose actions are points of the latent space of a VAE of levels.

    At the start of a run the VAE is trained on random levels, and stays as it is. A parameter of a level has `cells`
    values; the order of all but the last `ordered` parameters means nothing, so they are sorted. An action in
    [-1, 1]^d is a latent in [-4, 4]^d, whose most likely cells are the level.
    Source: CLUTR: Curriculum Learning via Unsupervised Task Representation Learning, 2022, arXiv:2210.10243, section 4.

    Args:
        cells: values of a parameter, which divide its range into equal parts.
        ordered: last parameters whose order has a meaning.
        latent: d, dimensions of the latent space.
        embedding: width of an embedded cell.
        hidden: width of the LSTMs.
        steps: of the VAE's training.
        batch_size: levels of a step.
        vae_lr: learning rate of the VAE.
        reconstruction: weight of the cross-entropy in its loss.
        kl_middle: step at which the KL divergence has half of its weight.
        kl_width: steps over which the weight rises.
        lr: learning rate of the teacher.
        entropy_coef: coefficient of the teacher's entropy.
        regret: "paired" or "flexible".
        score_name: what is compared; "return": the sum of the rewards of the whole episode.
    """

    deviation = 1 / BOUND  # latents have the prior of the VAE, N(0, 1), at the beginning

    def __init__(
        self,
        cells: int = 25,
        ordered: int = 2,
        latent: int = 16,
        embedding: int = 32,
        hidden: int = 64,
        steps: int = 1500,
        batch_size: int = 64,
        vae_lr: float = 1e-2,
        reconstruction: float = 79.0,
        kl_middle: float = 3500,
        kl_width: float = 1000,
        lr: float = 0.003,
        entropy_coef: float = 0.03,
        regret: Literal["paired", "flexible"] = "flexible",
        score_name: str = "return",
    ):
        super().__init__(lr, entropy_coef, regret, score_name)
        check_at_least(2, "curriculum", cells=cells)
        check_at_least(1, "curriculum", latent=latent, embedding=embedding, hidden=hidden, batch_size=batch_size)
        check_at_least(0, "curriculum", ordered=ordered, steps=steps)
        check_positive("curriculum", vae_lr=vae_lr, reconstruction=reconstruction, kl_width=kl_width)
        self.cells, self.ordered, self.latent = cells, ordered, latent
        self.widths = {"embedding": embedding, "hidden": hidden}
        self.training = {"steps": steps, "batch_size": batch_size, "lr": vae_lr, "reconstruction": reconstruction}
        self.schedule = {"middle": kl_middle, "width": kl_width}
        self.vae: LevelVAE | None = None
        self.restored = 0.0  # share of the cells of random levels that the VAE restores

    def action_dims(self, dims: int) -> int:
        return self.latent

    def prepare(self, dims: int, ctx: Context) -> None:
        super().prepare(dims, ctx)
        if self.ordered > dims:
            raise ValueError(f"curriculum.ordered={self.ordered}, but levels have {dims} parameters; lower it")
        if self.vae is None:
            with torch.random.fork_rng(devices=[]), torch.enable_grad():
                torch.manual_seed(derive_seed("level vae weights", ctx.seed) % 2**63)
                self.vae = self._build(dims)
                self.restored = fit_level_vae(
                    self.vae, self.ordered, schedule=self.schedule, seed=ctx.seed, **self.training
                )
            log.info("the level VAE restores %.1f %% of the cells of random levels", 100 * self.restored)

    def decode(self, action: np.ndarray) -> np.ndarray:
        assert self.vae is not None  # made by `prepare`
        with torch.no_grad():
            logits = self.vae.decode(torch.from_numpy(BOUND * action).float()[None])
        return (logits[0].argmax(dim=-1).numpy() + 0.5) / self.cells

    def _build(self, dims: int) -> LevelVAE:
        return LevelVAE(self.cells, dims, self.latent, **self.widths)

    def state_dict(self) -> dict[str, Any]:
        state = {**super().state_dict(), "restored": self.restored, "vae": None}
        if self.vae is not None:
            state |= {"vae": dict(self.vae.state_dict()), "parameters": self.vae.length}
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.restored = state["restored"]
        if state["vae"] is not None:
            self.vae = self._build(state["parameters"])
            self.vae.load_state_dict(state["vae"])
