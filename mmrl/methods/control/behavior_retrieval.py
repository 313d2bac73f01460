"""Behavior Retrieval: imitate a few demonstrations and what is like them in a recording of other behaviour.

Du et al., Behavior Retrieval: Few-Shot Imitation Learning by Querying Unlabeled Datasets, 2023, arXiv:2304.08742.

- an embedding z of states and actions: the mean of a variational autoencoder of the recording (`PairAutoencoder`)
- S_i = max_j -||z_i - z_j|| over the rows j of the demonstrations, brought to [0, 1] over the recording (`score_rows`);
  rows with S_i >= delta are kept
- imitation of demonstrations and kept rows, with as many rows of both (`RetrievedReplayData`)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mmrl.core.errors import ConfigError, check_at_least, check_fraction, check_interval, check_positive
from mmrl.core.rng import derive_seed
from mmrl.data.offline.played_log import EpisodeDataset
from mmrl.data.offline.replay_data import OfflineReplayData
from mmrl.datasets.base import Dataset
from mmrl.datasets.formats import open_dataset
from mmrl.datasets.offline_episodes import OfflineEpisode

_BLOCK = 4096  # rows whose distances to all demonstrated rows are computed together


class PairAutoencoder(nn.Module):
    """Variational autoencoder of rows of a state and an action, each number brought to mean 0 and deviation 1.

    Args:
        rows: float32 [N, D], to which it is scaled.
        dims: length of the embedding.
        hidden: width of its two hidden layers.
        kl: weight of the divergence from a standard normal embedding.
    """

    def __init__(self, rows: Tensor, dims: int = 8, hidden: int = 128, kl: float = 1e-3):
        super().__init__()
        self.dims, self.kl = dims, kl
        self.register_buffer("mean", rows.mean(dim=0))
        self.register_buffer("std", rows.std(dim=0).clamp(min=1e-6))
        size = rows.shape[1]
        self.encoder = _network(size, hidden, 2 * dims)
        self.decoder = _network(dims, hidden, size)

    def embed(self, rows: Tensor) -> Tensor:
        """The means [N, dims] of the embeddings of rows [N, D]."""
        return self.encoder((rows - self.mean) / self.std)[:, : self.dims]

    def loss(self, rows: Tensor, noise: Tensor) -> Tensor:
        """Squared error of the reconstruction plus kl * KL(q(z|row) || N(0, 1)), a mean over the rows.

        Args:
            rows: [N, D].
            noise: standard normal [N, dims].
        """
        scaled = (rows - self.mean) / self.std
        mean, log_variance = self.encoder(scaled).chunk(2, dim=1)
        log_variance = log_variance.clamp(-10, 10)
        error = (self.decoder(mean + noise * (log_variance / 2).exp()) - scaled).square().sum(dim=1)
        divergence = (mean.square() + log_variance.exp() - 1 - log_variance).sum(dim=1) / 2
        return (error + self.kl * divergence).mean()


def _network(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    layers = (nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, outputs))
    return nn.Sequential(*layers)


def fit_autoencoder(rows: Tensor, steps: int, lr: float, seed: int, batch_size: int = 256) -> PairAutoencoder:
    """Fit an autoencoder to rows [N, D] on the CPU; all draws depend on `seed` alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = PairAutoencoder(rows)
        optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        for _ in range(steps):
            batch = rows[torch.randint(len(rows), (batch_size,))]
            loss = model.loss(batch, torch.randn(batch_size, model.dims))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model.eval()


def score_rows(recorded: Tensor, demonstrated: Tensor) -> Tensor:
    """How like the demonstrations each recorded row is: S [N] in [0, 1], 1 for the nearest and 0 for the farthest.

    Args:
        recorded: embeddings [N, Z].
        demonstrated: embeddings [M, Z] of the demonstrations' rows.

    Returns:
        (s - min s) / (max s - min s) with s_i = max_j -||z_i - z_j||; 1 for all where all are equally far.
    """
    scores = torch.cat([-torch.cdist(block, demonstrated).amin(dim=1) for block in recorded.split(_BLOCK)])
    return normalise_scores(scores)


def normalise_scores(scores: Tensor) -> Tensor:
    """Bring scores [N] to [0, 1] by the least and the greatest; equal ones become 1, so that all are kept."""
    low, high = scores.min(), scores.max()
    return torch.ones_like(scores) if high == low else (scores - low) / (high - low)


def cut_episode(episode: OfflineEpisode, kept: np.ndarray) -> list[OfflineEpisode]:
    """The runs of consecutive kept rows of an episode, each an episode that is cut off.

    Args:
        episode: with T rows.
        kept: bool [T].
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[False], kept, [False]]).astype(np.int8)))
    return [_slice(episode, int(first), int(end)) for first, end in edges.reshape(-1, 2)]


def _slice(episode: OfflineEpisode, first: int, end: int) -> OfflineEpisode:
    following = min(end, len(episode) - 1)  # imitation reads no next observation
    return OfflineEpisode(
        actions=episode.actions[first:end],
        observations={name: rows[first:end] for name, rows in episode.observations.items()},
        rewards=np.zeros(end - first, np.float32),
        executed=None if episode.executed is None else episode.executed[first:end],
        final={name: np.asarray(rows[following]) for name, rows in episode.observations.items()},
        where=f"{episode.where}, rows {first} to {end - 1}",
    )


class RetrievedReplayData(OfflineReplayData):
    """Imitate demonstrations and the rows of a recording that are like them.

    Args:
        path: recording of any behaviour; None plays `log`.
        demonstrations: file or folder of the demonstrations; None takes successful episodes of the end of `log`.
        num_demonstrations: that are taken, from the first one on.
        held_back: episodes at the end of `log` among which demonstrations are looked for; none of them is retrieved.
        delta: least score of a retrieved row; 0 retrieves the whole recording, None nothing.
        observation: name of the vector that is embedded beside the action.
        steps: updates of the autoencoder.
        lr: its learning rate.
        kwargs: as of `OfflineReplayData`.

    Raises:
        ConfigError: there is no demonstration, or an episode lacks the observation.
    """

    def __init__(
        self,
        path: str | None = None,
        demonstrations: str | None = None,
        num_demonstrations: int = 5,
        held_back: int = 100,
        delta: float | None = 0.7,
        observation: str = "state",
        steps: int = 2000,
        lr: float = 1e-3,
        **kwargs: Any,
    ):
        super().__init__(path=path, **kwargs)
        check_at_least(1, "data", num_demonstrations=num_demonstrations, steps=steps)
        check_at_least(0, "data", held_back=held_back)
        check_fraction("data", delta=0.0 if delta is None else delta)
        check_positive("data", lr=lr)
        if (path is None) != (demonstrations is None) or not self._recorded:
            raise ConfigError(
                f"data.path={path} and data.demonstrations={demonstrations}: name the recording and the "
                "demonstrations, or neither, and a simulator whose script plays data.log"
            )
        self.demonstrations, self.num_demonstrations, self.held_back = demonstrations, num_demonstrations, held_back
        self.delta, self.observation, self.steps, self.lr = delta, observation, steps, lr

    def _open_recording(self) -> Dataset:
        dataset = super()._open_recording()
        episodes = [dataset[number] for number in range(len(dataset))]
        if self.demonstrations is not None:
            demonstrations = open_dataset(self.demonstrations)
            shown = [demonstrations[number] for number in range(min(len(demonstrations), self.num_demonstrations))]
            demonstrations.close()
        else:
            check_interval("data", f"[1, {len(episodes) - 1}]", held_back=self.held_back)
            ends = episodes[-self.held_back :]
            episodes = episodes[: -self.held_back]
            shown = [episode for episode in ends if episode.success][: self.num_demonstrations]
        if not shown:
            raise ConfigError("data.held_back: none of these episodes succeeds; raise it, or name data.demonstrations")
        retrieved = self._retrieve(episodes, shown)
        count, shown_count = sum(map(len, retrieved)), sum(map(len, shown))
        repeats = max(1, round(count / shown_count))  # as many rows of both
        whole = [part for episode in shown for part in cut_episode(episode, np.ones(len(episode), bool))]
        self._recording_metrics = {
            "retrieval/share": count / sum(map(len, episodes)),
            "retrieval/rows": float(count),
            "retrieval/demonstrated_rows": float(shown_count * repeats),
        }
        dataset.close()
        return EpisodeDataset([*whole * repeats, *retrieved], str(dataset.path))

    def _retrieve(self, episodes: Sequence[OfflineEpisode], shown: Sequence[OfflineEpisode]) -> list[OfflineEpisode]:
        """The rows of the recording that are like those of the demonstrations."""
        if self.delta is None:
            return []
        rows = [self._rows(episode) for episode in episodes]
        recorded, demonstrated = torch.cat(rows), torch.cat([self._rows(episode) for episode in shown])
        model = fit_autoencoder(recorded, self.steps, self.lr, derive_seed("behavior retrieval", self.seed) >> 33)
        with torch.no_grad():
            scores = score_rows(model.embed(recorded), model.embed(demonstrated))
        kept_rows = (scores >= self.delta).split([len(each) for each in rows])
        return [part for episode, flags in zip(episodes, kept_rows) for part in cut_episode(episode, flags.numpy())]

    def _rows(self, episode: OfflineEpisode) -> Tensor:
        """States and actions side by side, float32 [T, D]."""
        states = episode.observations.get(self.observation)
        if states is None or np.ndim(states) != 2:
            raise ConfigError(
                f"data.observation={self.observation!r}: {episode.where} has no such vector; it has "
                f"{', '.join(sorted(episode.observations))}"
            )
        actions = episode.actions if episode.executed is None else episode.executed
        return torch.from_numpy(np.concatenate([np.asarray(states), actions], axis=1).astype(np.float32))
