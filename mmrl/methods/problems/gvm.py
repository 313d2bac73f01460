"""GVM: allocate a fixed number of completions to prompts by acceptance rate and gradient norm.

Optimizing Chain-of-Thought Reasoners via Gradient Variance Minimization in Rejection Sampling and RL, 2025,
arXiv:2505.02391.

- completions of each prompt from acceptance rates and gradient norms: `allocate`
- the norms of the gradient of log pi: `gradient_norms`
- first a few completions, then the allocated ones: `AllocateSamples`
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from mmrl.core.batch import Batch
from mmrl.core.errors import check_at_least
from mmrl.core.groups import get_score, group_episodes
from mmrl.core.types import Context, Episode
from mmrl.data.collate import collate
from mmrl.distributed.whole_weights import refuse_sharded
from mmrl.files.weight_names import name_remedy
from mmrl.ops.masked import masked_sum
from mmrl.policies.base import Policy
from mmrl.transforms.base import EpisodeTransform


def allocate(
    norms: np.ndarray,  # [P] mean gradient norm of accepted completions
    rates: np.ndarray,  # [P] acceptance rates
    total: int,
    alpha: float = 1e-3,
    beta: float = 2.0,
) -> np.ndarray:  # [P] int, which sum to `total`
    """Number of completions in proportion to G / sqrt(p + alpha / p^(beta - 1)); 0 where G or p is 0.

    Rounding errors go to the largest remainders. If all weights are 0, the numbers differ by at most 1. Source: GVM,
    2025, optimal allocation with regularisation, arXiv:2505.02391.
    """
    usable = (norms > 0) & (rates > 0)
    p = np.where(usable, rates, 1.0)
    weights = np.where(usable, norms / np.sqrt(p + alpha / p ** (beta - 1)), 0.0)
    if weights.sum() == 0:
        weights = np.ones(len(norms))
    shares = total * weights / weights.sum()
    counts = np.floor(shares).astype(int)
    order = np.argsort(-(shares - counts), kind="stable")
    counts[order[: total - counts.sum()]] += 1
    return counts


def gradient_norms(policy: Policy, batch: Batch, parameters: str = "") -> list[float]:
    """Norm of the gradient of the summed log-probs of each row's choices.

    Args:
        policy: whose weights they are of.
        batch: rows, on the CPU.
        parameters: beginning of the names of the parameters that are counted; all trained ones by default.
    """
    refuse_sharded(policy, "allocate_samples")
    counted = [p for name, p in policy.named_parameters() if p.requires_grad and name.startswith(parameters)]
    if not counted:
        raise ValueError(
            f"allocate_samples.parameters={parameters!r}: no trained parameter's name begins with it"
            f"{name_remedy(policy, [parameters])}"
        )
    norms = []
    for row in range(batch.rows):
        one = Batch({name: column.to(policy.device) for name, column in batch.select(torch.tensor([row])).items()})
        with torch.enable_grad():
            logprob = masked_sum(policy(one).logprobs, one["action_mask"])
            parts = torch.autograd.grad(logprob, counted, allow_unused=True)
        norms.append(float(torch.stack([part.float().norm() for part in parts if part is not None]).norm()))
    return norms


@dataclass(frozen=True)
class AllocateSamples(EpisodeTransform):
    """Resamples every prompt by its acceptance rate and gradient norm, and drops the first completions.

    The completions that arrive, data.group_size of each prompt, are the first stage: they only measure. In the second
    stage all prompts of all processes together get as many completions as in the first. Groups then differ in size.
    Source: GVM, 2025, algorithm 1, arXiv:2505.02391.

    Args:
        alpha: regularises prompts with small acceptance rates.
        beta: power of the acceptance rate in it.
        score_name: "reward", or the name of a score.
        success_threshold: smallest value of it that is accepted.
        max_measured: accepted completions of a prompt whose gradient is computed; each costs a backward pass.
        parameters: beginning of the names of the parameters whose gradient is computed; all by default.
    """

    alpha: float = 1e-3
    beta: float = 2.0
    score_name: str = "exact"
    success_threshold: float = 1.0
    max_measured: int = 2
    parameters: str = ""

    def __post_init__(self) -> None:
        check_at_least(0, "allocate_samples", alpha=self.alpha)
        check_at_least(1, "allocate_samples", max_measured=self.max_measured)

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        groups = group_episodes(episodes)
        local_groups = [(slot, *self._measure(group, ctx), len(group)) for slot, group in groups.items()]
        everyone = sorted(ctx.collector.gather(local_groups))
        if not everyone:
            return episodes
        slots, rates, norms, sizes = zip(*everyone)
        counts = dict(zip(slots, allocate(np.array(norms), np.array(rates), sum(sizes), self.alpha, self.beta)))
        indices = {}
        for slot, group in groups.items():
            start = max(episode.sample_index for episode in group) + 1
            indices[slot] = range(start, start + int(counts[slot]))
        return [episode for episode in ctx.collector.collect_samples(indices) if episode.ended != "error"]

    def _measure(self, group: list[Episode], ctx: Context) -> tuple[float, float]:
        """Return the acceptance rate of a group and the mean gradient norm of its accepted completions."""
        accepted = [episode for episode in group if get_score(episode, self.score_name) >= self.success_threshold]
        if not accepted:
            return 0.0, 0.0
        batch = collate(accepted[: self.max_measured], ctx.policy)
        return len(accepted) / len(group), float(np.mean(gradient_norms(ctx.policy, batch, self.parameters)))
