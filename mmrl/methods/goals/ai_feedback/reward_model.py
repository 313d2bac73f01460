"""AI feedback: the reward model of captions, its loss, its scale, and the reward that an agent is paid.

Motif, 2023, arXiv:2310.00166, section 3; released code, facebookresearch/motif, scripts/train_reward.py and the learner
of its rl_baseline.

- P(first > second) = sigmoid(r(first) - r(second)), with target 0.5 for equal ones: `preference_loss`
- r' = (r - mean) / std over the captions of the pairs: `CaptionReward.score`
- r' [r' > threshold] / N^beta, N times that the episode met the caption: `shape_reward`
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from mmrl.core.rng import derive_rng, derive_seed
from mmrl.methods.goals.ai_feedback.pairs import LabelledPair
from mmrl.ops.preference import bradley_terry_loss


def preference_loss(
    first: Tensor,  # [P] rewards of the first captions
    second: Tensor,  # [P]
    target: Tensor,  # [P] 1: the first is better, 0: the second, 0.5: equal
) -> Tensor:  # [P] nats
    """Cross-entropy of a label under Bradley-Terry, P(first > second) = sigmoid(r(first) - r(second))."""
    return bradley_terry_loss(first - second, 1 - target)


def shape_reward(
    reward: np.ndarray,  # [n] normalised
    count: np.ndarray,  # [n] times that the episode met the caption, this one included
    threshold: float,
    exponent: float = 3.0,
) -> np.ndarray:  # [n]
    """r [r > threshold] / N^exponent."""
    return np.where(reward > threshold, reward, 0.0) / np.asarray(count, np.float64) ** exponent


class CaptionReward(nn.Module):
    """Reward of captions: a perceptron on the sum of embeddings of words and pairs of neighbouring words, by hash.

    Args:
        buckets: of the hashes.
        width: of the embeddings and of the hidden layer.
        seed: of the weights.
    """

    mean: Tensor
    std: Tensor
    threshold: Tensor

    def __init__(self, buckets: int = 2048, width: int = 32, seed: int = 0):
        super().__init__()
        self.buckets = buckets
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed("caption_reward", seed) % 2**63)
            self.embedding = nn.EmbeddingBag(buckets, width, mode="sum")
            nn.init.normal_(self.embedding.weight, std=0.1)
            self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
        for name, value in (("mean", 0.0), ("std", 1.0), ("threshold", 0.0)):
            self.register_buffer(name, torch.tensor(value, dtype=torch.float64))
        self._scores: dict[str, float] = {}

    def forward(self, captions: Sequence[str]) -> Tensor:
        """Rewards [N] before normalisation."""
        ids = [self._hash(caption) for caption in captions]
        starts = np.cumsum([0, *(len(each) for each in ids[:-1])])
        flat = torch.tensor([i for each in ids for i in each])
        return self.head(self.embedding(flat, torch.from_numpy(starts)))[:, 0]

    def _hash(self, caption: str) -> list[int]:
        words = ["", *re.findall(r"\w+", caption.lower())]
        terms = words + [f"{a} {b}" for a, b in pairwise(words)]
        return [zlib.crc32(term.encode()) % self.buckets for term in terms]

    @torch.no_grad()
    def score(self, captions: Sequence[str]) -> np.ndarray:
        """Normalised rewards float64 [N], computed once a caption and alone, so that no batch changes the last bits."""
        for caption in captions:
            if caption not in self._scores:
                self._scores[caption] = float((self([caption]).double() - self.mean) / self.std)
        return np.array([self._scores[caption] for caption in captions])

    @torch.no_grad()
    def normalise(self, captions: Sequence[str], quantile: float) -> None:
        """Take mean and standard deviation, and the threshold after both, from captions as often as they are given."""
        values = self(captions).double()
        self.mean, self.std = values.mean(), values.std(correction=0).clamp(min=1e-8)
        self.threshold = torch.quantile((values - self.mean) / self.std, quantile)
        self.clear_scores()

    def clear_scores(self) -> None:
        """Forget computed rewards, after a change of weights or scale."""
        self._scores.clear()


@torch.inference_mode(False)
@torch.enable_grad()
def fit_reward(
    model: CaptionReward, pairs: Sequence[LabelledPair], passes: int, batch_size: int, lr: float, seed: int
) -> None:
    """Fit a reward model to the pairs that have a label, in place, with Adam.

    Args:
        model: of captions.
        pairs: those whose annotator was unsure are left out.
        passes: over the pairs.
        batch_size: pairs of a step.
        lr: learning rate.
        seed: of the order.
    """
    labelled = [pair for pair in pairs if pair.label is not None]
    target = torch.tensor([float(pair.label) for pair in labelled])  # type: ignore[arg-type]
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    rng = derive_rng("caption_reward", "order", seed)
    for _ in range(passes):
        for rows in torch.from_numpy(rng.permutation(len(labelled))).split(batch_size):
            sides = [labelled[i].first for i in rows], [labelled[i].second for i in rows]
            rewards = model([*sides[0], *sides[1]])  # both sides in one pass
            loss = preference_loss(*rewards.chunk(2), target[rows]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    model.clear_scores()


def measure_labels(model: CaptionReward, pairs: Sequence[LabelledPair], held_out: Sequence[LabelledPair]) -> dict:
    """Shares of the labels, and how often labels and model agree with the true order of pairs that have one.

    Returns:
        `pairs`, their number; `equal` and `unsure`, shares; `label_accuracy` of the labels 1 and 0 on pairs with an
        order; `accuracy` of the model on held-out pairs with an order, and `agreement` with their labels 1 and 0.
    """
    every = [*pairs, *held_out]
    out = {
        "pairs": float(len(every)),
        "equal": float(np.mean([pair.label == 0.5 for pair in every])),
        "unsure": float(np.mean([pair.label is None for pair in every])),
    }
    ordered = [pair for pair in every if pair.true in (0, 1) and pair.label in (0, 1)]
    if ordered:
        out["label_accuracy"] = float(np.mean([pair.label == pair.true for pair in ordered]))
    for name, field in (("accuracy", "true"), ("agreement", "label")):
        rows = [pair for pair in held_out if getattr(pair, field) in (0, 1)]
        if rows:
            margin = model.score([pair.first for pair in rows]) - model.score([pair.second for pair in rows])
            out[name] = float(np.mean((margin > 0) == [getattr(pair, field) == 1 for pair in rows]))
    return out
