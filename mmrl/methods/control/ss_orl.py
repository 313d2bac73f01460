"""SS-ORL: label the actions of trajectories without any by an inverse dynamics model, then learn offline from all.

Semi-Supervised Offline Reinforcement Learning with Action-Free Trajectories, 2022, arXiv:2210.06518, algorithm 1.

- p(a_t given s_{t-k}, ..., s_t, s_{t+1}), a Gaussian with a bounded mean: `InverseDynamics`, `stack_windows`
- fitted to the few trajectories with actions by maximum likelihood, the best on held-out ones: `fit_dynamics`
- its mean is the action of all other trajectories: `InverseDynamicsLabels`, then TD3+BC (`mmrl.methods.control.td3_bc`)
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from mmrl.core.errors import ConfigError, check_at_least, check_interval, check_positive
from mmrl.core.rng import derive_rng, derive_seed
from mmrl.data.offline.relabelling import Relabelling
from mmrl.datasets.base import Dataset, Statistics
from mmrl.datasets.offline_episodes import OfflineEpisode
from mmrl.ops.gaussian import normal_logprob

log = logging.getLogger(__name__)


def stack_windows(
    states: np.ndarray,  # [T, S]
    final: np.ndarray,  # [S] after the last action
    past: int,
) -> np.ndarray:  # [T, (past + 2) * S]
    """Rows (s_{t-past}, ..., s_t, s_{t+1}); before the first state stands the first one."""
    padded = np.concatenate([np.repeat(states[:1], past, axis=0), states, final[None]])
    return np.concatenate([padded[i : i + len(states)] for i in range(past + 2)], axis=1).astype(np.float32)


class InverseDynamics(nn.Module):
    """Gaussian p(a given a window of states) with independent dimensions and a mean between the bounds of actions.

    Args:
        windows: float32 [N, W], to whose mean and deviation windows are scaled.
        actions: float32 [N, A], whose least and greatest values bound the mean.
        hidden: widths of the hidden layers.
        dropout: probability.
    """

    low: Tensor
    high: Tensor

    def __init__(self, windows: Tensor, actions: Tensor, hidden: Sequence[int] = (256, 256), dropout: float = 0.1):
        super().__init__()
        for name, value in (("mean", windows.mean(0)), ("std", windows.std(0).clamp(min=1e-6))):
            self.register_buffer(name, value)
        for name, value in (("low", actions.amin(0)), ("high", actions.amax(0))):
            self.register_buffer(name, value)
        widths = [windows.shape[1], *hidden]
        layers: list[nn.Module] = []
        for a, b in pairwise(widths):
            layers += [nn.Linear(a, b), nn.ReLU(), nn.Dropout(dropout)]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(widths[-1], 2 * actions.shape[1])

    def forward(self, windows: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation of actions, [N, A] each."""
        mean, log_std = self.head(self.body((windows - self.mean) / self.std)).chunk(2, dim=1)
        return torch.lerp(self.low, self.high, (mean.tanh() + 1) / 2), log_std.clamp(-5, 2)

    def loss(self, windows: Tensor, actions: Tensor) -> Tensor:
        """Negative log-likelihood of actions [N, A], a mean over rows and a sum over dimensions, nats."""
        mean, log_std = self(windows)
        return -normal_logprob(actions, mean, log_std.exp()).sum(1).mean()


def fit_dynamics(
    train: tuple[Tensor, Tensor],
    held_out: tuple[Tensor, Tensor],
    steps: int,
    lr: float,
    seed: int,
    checks: int = 10,
    batch_size: int = 256,
    hidden: Sequence[int] = (256, 256),
    dropout: float = 0.1,
) -> tuple[InverseDynamics, float]:
    """Fit a model on the CPU; returns it as it was when best on held-out rows, and its loss there.

    Args:
        train: windows [N, W] and actions [N, A].
        held_out: the same of other trajectories.
        steps: updates.
        lr: learning rate of Adam.
        seed: all draws depend on it alone.
        checks: how often the loss on held-out rows is measured.
        batch_size: rows of an update.
        hidden: widths of the hidden layers.
        dropout: probability.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = InverseDynamics(*train, hidden, dropout)
        optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        best, least = copy.deepcopy(model.state_dict()), float("inf")
        every = max(1, steps // checks)
        for step in range(1, steps + 1):
            rows = torch.randint(len(train[0]), (batch_size,))
            loss = model.loss(train[0][rows], train[1][rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % every == 0 or step == steps:
                model.eval()
                with torch.no_grad():
                    error = float(model.loss(*held_out))
                model.train()
                if error < least:
                    best, least = copy.deepcopy(model.state_dict()), error
    model.load_state_dict(best)
    return model.eval(), least


def choose_labelled(returns: Sequence[float], fraction: float, below: float, rng: np.random.Generator) -> list[int]:
    """Draw a fraction of all trajectories among the share `below` with the lowest returns: their numbers, ascending."""
    order = np.argsort(np.asarray(returns), kind="stable")
    pool = order[: max(1, round(below * len(order)))]
    count = max(1, round(fraction * len(order)))
    return sorted(rng.choice(pool, size=min(count, len(pool)), replace=False).tolist())


class InverseDynamicsLabels(Relabelling):
    """Actions of a recording of which only some trajectories keep theirs: the others get those of inverse dynamics.

    Rewards are the recorded ones. Where all trajectories are labelled, nothing is fitted and the recording stays as it
    is.

    Args:
        labelled: fraction of the trajectories that keep their actions, in (0, 1].
        below: they are drawn among this share of the trajectories, those of the lowest returns.
        unlabelled: whether the others are used, with labels; False learns from the labelled ones alone.
        past: transitions before the present one that the model reads.
        observation: name of the vector that it reads.
        held_out: fraction of the labelled trajectories on which the best model is chosen.
        steps: updates of the model.
        lr: its learning rate.
        batch_size: rows of an update.
        hidden: widths of its hidden layers.
        dropout: probability.

    Raises:
        ConfigError: fewer than two trajectories are labelled, or one has not the observation.
    """

    def __init__(
        self,
        labelled: float = 0.1,
        below: float = 0.5,
        unlabelled: bool = True,
        past: int = 1,
        observation: str = "state",
        held_out: float = 0.1,
        steps: int = 2000,
        lr: float = 1e-3,
        batch_size: int = 256,
        hidden: Sequence[int] = (256, 256),
        dropout: float = 0.1,
    ):
        place = "data.relabelling"
        check_interval(place, "(0, 1]", labelled=labelled, below=below)
        check_interval(place, "[0, 1)", dropout=dropout)
        check_interval(place, "(0, 1)", held_out=held_out)
        check_at_least(0, place, past=past)
        check_at_least(1, place, steps=steps, batch_size=batch_size)
        check_positive(place, lr=lr)
        self.labelled, self.below, self.unlabelled, self.past = labelled, below, unlabelled, past
        self.observation, self.held_out, self.steps, self.lr = observation, held_out, steps, lr
        self.batch_size, self.hidden, self.dropout = batch_size, tuple(hidden), dropout

    def relabel(
        self, dataset: Dataset, seed: int, folder: Path, device: torch.device
    ) -> tuple[Dataset, dict[str, float]]:
        episodes = [dataset.read(number) for number in range(len(dataset))]
        if self.labelled == 1 and self.below == 1:
            return dataset, {"relabelling/labelled": float(len(episodes))}
        returns = [0.0 if each.rewards is None else float(each.rewards.sum()) for each in episodes]
        numbers = choose_labelled(returns, self.labelled, self.below, derive_rng("ss_orl", seed))
        metrics = {"labelled": float(len(numbers)), "labelled_return": float(np.mean([returns[i] for i in numbers]))}
        if not self.unlabelled:
            chosen = LabelledDataset(dataset, {}, numbers)
            return chosen, {f"relabelling/{name}": value for name, value in metrics.items()}
        model, metrics["nll"] = self._fit([episodes[i] for i in numbers], dataset, seed)
        others = sorted(set(range(len(episodes))) - set(numbers))
        labels = {}
        with torch.no_grad():
            for i in others:
                labels[i] = model(torch.from_numpy(self._windows(episodes[i])))[0].numpy()
        # what was recorded is read to measure the labels, and not to make them
        errors = [np.square(labels[i] - _get_actions(episodes[i])).mean() for i in others]
        metrics["action_error"] = float(np.mean(errors)) if errors else 0.0
        log.info("%d of %d trajectories keep their actions, the others are labelled", len(numbers), len(episodes))
        labelled = LabelledDataset(dataset, labels, range(len(episodes)))
        return labelled, {f"relabelling/{name}": value for name, value in metrics.items()}

    def _fit(self, episodes: Sequence[OfflineEpisode], dataset: Dataset, seed: int) -> tuple[InverseDynamics, float]:
        if len(episodes) < 2:
            raise ConfigError(
                f"data.relabelling.labelled={self.labelled}: {len(episodes)} of {len(dataset)} trajectories of "
                f"{dataset.path} keeps its actions, and one more is held out; raise it"
            )
        count = min(len(episodes) - 1, max(1, round(self.held_out * len(episodes))))
        rows = [(torch.from_numpy(self._windows(e)), torch.from_numpy(_get_actions(e))) for e in episodes]
        first, second = (
            tuple(torch.cat(part) for part in zip(*some, strict=True)) for some in (rows[count:], rows[:count])
        )
        draws = derive_seed("ss_orl", "model", seed) >> 33
        options = {"batch_size": self.batch_size, "hidden": self.hidden, "dropout": self.dropout}
        return fit_dynamics(first, second, self.steps, self.lr, draws, **options)  # type: ignore[arg-type]

    def _windows(self, episode: OfflineEpisode) -> np.ndarray:
        """[T, W]; where nothing was recorded after the last action, its window ends with the last state."""
        states = episode.observations.get(self.observation)
        if states is None or np.ndim(states) != 2:
            raise ConfigError(
                f"data.relabelling.observation={self.observation!r}: {episode.where} has no such vector; it has "
                f"{', '.join(sorted(episode.observations))}"
            )
        rows = np.asarray(states, np.float32)
        final = rows[-1] if episode.final is None else np.asarray(episode.final[self.observation], np.float32)
        return stack_windows(rows, final, self.past)


def _get_actions(episode: OfflineEpisode) -> np.ndarray:
    """Actions [T, A] that were executed."""
    return np.asarray(episode.actions if episode.executed is None else episode.executed, np.float32)


class LabelledDataset(Dataset):
    """Episodes of a recording, some of them with other actions.

    Args:
        dataset: the recording.
        actions: float32 [T, A] by the number of the episode.
        numbers: of the episodes that are there.
    """

    def __init__(self, dataset: Dataset, actions: Mapping[int, np.ndarray], numbers: Sequence[int]):
        self.dataset, self.actions, self.numbers = dataset, actions, list(numbers)
        self.path, self.format, self.fps = dataset.path, dataset.format, dataset.fps
        self.features, self.contract = dataset.features, dataset.contract

    def __len__(self) -> int:
        return len(self.numbers)

    def read(self, number: int) -> OfflineEpisode:
        place = self.numbers[number]
        episode = self.dataset.read(place)
        if place not in self.actions:
            return episode
        return replace(episode, actions=self.actions[place].astype(np.float32), executed=None)

    def lengths(self) -> list[int]:
        lengths = self.dataset.lengths()
        return [lengths[number] for number in self.numbers]

    def statistics(self) -> dict[str, Statistics]:
        return self.dataset.statistics()

    def close(self) -> None:
        self.dataset.close()
