"""Offline RL-VLM-F: label pairs of frames, fit a reward model to them, and reward every transition of a recording.

Real-World Offline Reinforcement Learning from Vision Language Model Feedback, 2024, arXiv:2411.05273; the queries and
the loss are those of RL-VLM-F, 2024, arXiv:2402.03681.

- pairs of frames of an unlabelled recording, and a comparison of each by the goal in words: `comparers.py`
- P(a > b) = sigmoid(r(a) - r(b)), cross-entropy, unclear pairs left out: `reward_model.py`
- r_t = mean of the ensemble at o_{t+1}, brought to a fixed range over the recording: `PreferenceRelabelling`
- IQL on the transitions with these rewards: conf/phases/iql.yaml
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from mmrl.core.errors import check_at_least, check_fraction, check_interval, check_positive
from mmrl.core.rng import derive_rng
from mmrl.data.offline.relabelling import Relabelling, RewardedDataset
from mmrl.datasets.base import Dataset
from mmrl.distributed import parallel
from mmrl.methods.control.offline_rl_vlm_f.comparers import FrameComparer
from mmrl.methods.control.offline_rl_vlm_f.pairs import (
    UNCLEAR,
    draw_pairs,
    find_goal,
    frames_after,
    read_labels,
    read_pairs,
    write_labels,
)
from mmrl.methods.control.offline_rl_vlm_f.reward_model import RewardEnsemble, fit_rewards
from mmrl.rewards.judges.base import NoAnswer

LABELS = "preferences.jsonl"
"""File with the labels in the folder of the run; a run that is resumed reads it and asks no further question."""


class PreferenceRelabelling(Relabelling):
    """Rewards of a recording by a model of its frames, which is fitted to comparisons of pairs of them.

    Args:
        comparer: labels the pairs.
        goal: in words; None takes the recorded instruction.
        observation: name of the observation that is compared and rewarded, an image or a vector.
        num_pairs: that are labelled.
        held_out: fraction of the labelled pairs that the model is measured on and not fitted to.
        members: networks of the ensemble.
        features: width of their last layer.
        passes: over the labelled pairs.
        batch_size: pairs of a step.
        lr: learning rate.
        shift: pixels by which pictures are randomly shifted while the model is fitted; 0 does not.
        low: smallest reward over the recording.
        high: greatest reward over the recording.
        labels: file of labels, as a run leaves them in `preferences.jsonl`; None asks the comparer.
        max_failed: fraction of the pairs that may be without an answer.
    """

    def __init__(
        self,
        comparer: FrameComparer,
        goal: str | None = None,
        observation: str = "image",
        num_pairs: int = 1000,
        held_out: float = 0.2,
        members: int = 3,
        features: int = 64,
        passes: int = 40,
        batch_size: int = 64,
        lr: float = 3e-4,
        shift: int = 1,
        low: float = 0.0,
        high: float = 1.0,
        labels: str | None = None,
        max_failed: float = 0.5,
    ):
        place = "data.relabelling"
        check_at_least(2, place, num_pairs=num_pairs)
        check_at_least(1, place, members=members, features=features, passes=passes, batch_size=batch_size)
        check_at_least(0, place, shift=shift)
        check_positive(place, lr=lr)
        check_interval(place, "[0, 1)", held_out=held_out)
        check_fraction(place, max_failed=max_failed)
        if not low < high:
            raise ValueError(f"{place}.low must be below high, got {low} and {high}")
        self.comparer, self.goal, self.observation, self.num_pairs = comparer, goal, observation, num_pairs
        self.held_out, self.members, self.features, self.shift = held_out, members, features, shift
        self.passes, self.batch_size, self.lr = passes, batch_size, lr
        self.low, self.high, self.max_failed = low, high, max_failed
        self.labels = None if labels is None else Path(labels)

    def relabel(
        self, dataset: Dataset, seed: int, folder: Path, device: torch.device
    ) -> tuple[Dataset, dict[str, float]]:
        goal, lengths = find_goal(dataset, self.goal), dataset.lengths()
        places, labels = self._label(dataset, goal, lengths, seed, folder)
        pairs = read_pairs(dataset, places, self.observation, goal)
        clear = np.flatnonzero(np.asarray(labels) != UNCLEAR)
        if len(clear) < 2:
            raise ValueError(
                f"{dataset.path}: {len(clear)} of {len(labels)} labels are clear, too few for a reward model; raise "
                "data.relabelling.num_pairs, or say the goal in other words"
            )
        first, second = (np.stack([getattr(pairs[i], side) for i in clear]) for side in ("first", "second"))
        target = np.asarray(labels)[clear]
        fitted = max(1, round(len(clear) * (1 - self.held_out)))
        ensemble = RewardEnsemble(self.members, first.shape[1:], self.features, seed).to(device)
        fitted_to = (first[:fitted], second[:fitted], target[:fitted])
        fit_rewards(ensemble, *fitted_to, self.passes, self.batch_size, self.lr, self.shift, seed)
        metrics = {"pairs": float(fitted), "unclear": 1 - len(clear) / len(labels)}
        if fitted < len(clear):
            right = (ensemble.score(second[fitted:]) > ensemble.score(first[fitted:])) == (target[fitted:] == 1)
            metrics["accuracy"] = float(right.mean())
        scores = [ensemble.score(frames_after(dataset[i], self.observation)) for i in range(len(dataset))]
        metrics |= measure_agreement(dataset, scores)
        return RewardedDataset(dataset, rescale(scores, self.low, self.high)), {
            f"relabelling/{name}": value for name, value in metrics.items()
        }

    def _label(
        self, dataset: Dataset, goal: str, lengths: Sequence[int], seed: int, folder: Path
    ) -> tuple[np.ndarray, list[int]]:
        """Pairs [P, 2, 2] and their labels: from a file, from an earlier start of this run, or from the comparer."""
        if self.labels is not None:
            return read_labels(self.labels, lengths)
        places = draw_pairs(lengths, self.num_pairs, derive_rng("frame_pairs", seed))
        file = folder / LABELS
        first_process = parallel.rank_and_size()[0] == 0
        answers = [self._ask(dataset, places, goal, seed, file)] if first_process else []
        answered, labels = parallel.gather(answers)[0]
        return places[answered], labels

    def _ask(
        self, dataset: Dataset, places: np.ndarray, goal: str, seed: int, file: Path
    ) -> tuple[list[int], list[int]]:
        """Rows of the pairs that have an answer, and their labels."""
        if file.is_file():
            stored, labels = read_labels(file, dataset.lengths())
            rows = {tuple(place): row for row, place in enumerate(places.reshape(len(places), 4).tolist())}
            known = [rows.get(tuple(place)) for place in stored.reshape(len(stored), 4).tolist()]
            if None not in known:
                return known, labels  # type: ignore[return-value]
        pairs = read_pairs(dataset, places, self.observation, goal)
        answers = self.comparer.compare(pairs, derive_rng("frame_pairs", "labels", seed))
        failed = [answer for answer in answers if isinstance(answer, NoAnswer)]
        if len(failed) > self.max_failed * len(answers):
            raise ValueError(
                f"data.relabelling: {len(failed)} of {len(answers)} pairs have no label, more than max_failed="
                f"{self.max_failed:g} allows; the last: {failed[-1].reason}"
            )
        answered = [i for i, answer in enumerate(answers) if not isinstance(answer, NoAnswer)]
        labels = [int(answers[i]) for i in answered]  # type: ignore[arg-type]
        write_labels(file, places[answered], labels, goal)
        return answered, labels


def rescale(scores: Sequence[np.ndarray], low: float, high: float) -> list[np.ndarray]:
    """Bring the rewards of all episodes, [T] each, to [low, high] by their smallest and greatest one."""
    least, most = min(each.min() for each in scores), max(each.max() for each in scores)
    scale = (high - low) / max(float(most - least), 1e-8)
    return [(low + (each - least) * scale).astype(np.float32) for each in scores]


def measure_agreement(dataset: Dataset, scores: Sequence[np.ndarray]) -> dict[str, float]:
    """Rank correlation of learned and recorded rewards over all transitions; nothing where none were recorded."""
    recorded = [dataset.read(number).rewards for number in range(len(dataset))]
    if any(each is None for each in recorded):
        return {}
    ranks = [np.argsort(np.argsort(np.concatenate(each))) for each in (scores, recorded)]  # type: ignore[arg-type]
    return {"rank_correlation": float(np.corrcoef(*ranks)[0, 1])} if len(ranks[0]) > 1 else {}
