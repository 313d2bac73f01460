"""LGE's guide and explorer: which admissible actions are relevant to the task, and a Q-network that chooses.

LGE, 2024, section 3, arXiv:2403.03141.

- relevance of an action a to a task g: cos(f(g), f(a)) of a text encoder f (`RelevanceGuide`)
- the guide's contrastive loss, -log softmax_a(cos / tau) of an action of a demonstrated path against the other
  admissible ones: the log-probs of `GuidedExplorer` with `trains=guide`
- the explorer draws from softmax(Q) over the k most relevant actions in a share of its decisions, and over all in the
  others: `keep_relevant`
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from mmrl.core.batch import Batch
from mmrl.core.errors import check_at_least, check_fraction, check_positive
from mmrl.core.rng import Noise
from mmrl.core.types import PolicyOutput, Sampling
from mmrl.ops.choice import MASKED_LOGIT
from mmrl.ops.logprob import logprob_entropy
from mmrl.policies.text.actions.word_scorer import WordEncoder, WordScorer, find_places

ABSENT = -2.0
"""Relevance beyond the admissible actions of a decision: less than every cosine."""


def keep_relevant(
    q: Tensor,  # [N, K]
    relevance: Tensor,  # [N, K], `ABSENT` beyond the actions of a decision
    guided: Tensor,  # [N] bool
    k: int,
) -> Tensor:  # [N, K]
    """Q with `MASKED_LOGIT` at all but the k most relevant actions of guided decisions; of equal ones the first."""
    if k >= q.shape[1]:
        return q
    order = relevance.argsort(dim=1, descending=True, stable=True)
    relevant = torch.zeros_like(relevance, dtype=torch.bool).scatter(1, order[:, :k], True)
    return torch.where(relevant | ~guided[:, None], q, MASKED_LOGIT)


class RelevanceGuide(nn.Module):
    """Cosines between the encodings of a task and of the admissible actions, by one text encoder.

    Args:
        buckets: of the hashes of words.
        embedding: width of a word's embedding.
        hidden: width of an encoding.
    """

    def __init__(self, buckets: int, embedding: int, hidden: int):
        super().__init__()
        self.encoder = WordEncoder(buckets, embedding, hidden)

    def forward(self, observation: Mapping[str, Any]) -> Tensor:
        """Relevance [N, K] of the actions of N collated decisions, `ABSENT` beyond them."""
        tasks = normalize(self.encoder(observation["task_words"].values, observation["task_words"].lengths), dim=1)
        actions = self.encoder(observation["admissible_words"].values, observation["admissible_sizes"].values)
        decision, place, shape = find_places(observation)
        cosines = (tasks[decision] * normalize(actions, dim=1)).sum(1)
        return cosines.new_full(shape, ABSENT).index_put((decision, place), cosines)


class GuidedExplorer(WordScorer):
    """DRRN whose actions are drawn, in a share of the decisions, from the k that a guide holds for relevant.

    `sampling.decode=argmax` takes the largest Q among the actions that are left.

    Args:
        guided: probability that a decision is restricted; 0 is DRRN.
        guides_evaluation: whether decisions of `decode=argmax` are restricted too, as in the released code.
        k: how many actions are left; at least as many as there are is DRRN too.
        trains: the guide, on demonstrations, or the Q-network, with a guide that stays as it is.
        tau: temperature of the guide's contrastive loss.
        shuffled: exchange the relevances of the actions of a decision, for comparison.
        options: further arguments of `WordScorer`.
    """

    def __init__(
        self,
        guided: float = 0.9,
        k: int = 50,
        trains: Literal["guide", "q"] = "q",
        tau: float = 0.05,
        shuffled: bool = False,
        guides_evaluation: bool = True,
        path: str | None = None,
        **options: Any,
    ):
        check_fraction("policy", guided=guided)
        check_at_least(1, "policy", k=k)
        check_positive("policy", tau=tau)
        if trains not in ("guide", "q"):
            raise ValueError(f"policy.trains must be guide or q, got {trains!r}")
        super().__init__(path=path, **options)
        self.guided, self.k, self.trains, self.tau, self.shuffled = guided, k, trains, tau, shuffled
        self.guides_evaluation = guides_evaluation
        for part in self.children():
            part.requires_grad_((part is self.guide) == (trains == "guide"))

    def add_parts(self, settings: SimpleNamespace) -> None:
        self.guide = RelevanceGuide(settings.buckets, settings.embedding, settings.hidden)

    def restrict(self, logits: Tensor, observation: Mapping[str, Any], sampling: Sampling, noise: Noise) -> Tensor:
        if self.trains == "guide":
            return self.guide(observation) / self.tau
        guided = noise.uniform().to(logits.device) < self.guided
        if not guided.any() or (sampling.decode == "argmax" and not self.guides_evaluation):
            return logits
        relevance = self.guide(observation)
        if self.shuffled:
            relevance = exchange(relevance, observation["admissible_sizes"].lengths.to(relevance.device))
        return keep_relevant(logits, relevance, guided, self.k)

    def forward(self, batch: Batch) -> PolicyOutput:
        if self.trains == "q":
            return super().forward(batch)
        cosines = self.guide(batch.observation())
        logits = torch.where(cosines > ABSENT, cosines / self.tau, MASKED_LOGIT)
        logprobs, entropy = logprob_entropy(logits[:, None], batch["action"])
        return PolicyOutput(logprobs, entropy, extra={"q": cosines.gather(1, batch["action"])[..., None]})


def exchange(
    relevance: Tensor,  # [N, K]
    counts: Tensor,  # [N]
) -> Tensor:  # [N, K]
    """The relevances of each decision in an order that depends on the number of its actions alone."""
    out = relevance.clone()
    for count in counts.unique().tolist():
        order = torch.randperm(count, generator=torch.Generator().manual_seed(count)).to(out.device)
        rows = (counts == count).nonzero()[:, 0]
        out[rows, :count] = relevance[rows][:, order]
    return out
