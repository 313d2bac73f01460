"""P3O: pairwise policy gradient on the reward differences between completions of one prompt.

P3O: Pairwise Proximal Policy Optimization: Harnessing Relative Feedback for LLM Alignment, 2023, arXiv:2310.00212.

- the two clipped forms: `PairwiseSurrogate`
- a reward whose level differs from prompt to prompt, as a reward model's does: `PromptOffset`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.errors import check_interval
from mmrl.core.rng import derive_rng
from mmrl.core.types import Episode, PolicyOutput
from mmrl.objectives.objective import Term
from mmrl.ops.policy_gradient import MAX_LOG_RATIO, clipped_surrogate, row_log_ratio
from mmrl.rewards.compose import WeightedSum


@dataclass(frozen=True)
class PairwiseSurrogate(Term):
    """P3O loss: clipped surrogate of all pairs of a group with the difference of their rewards, per row [N].

    With D = r_i - r_j and q = pi / pi_old of whole rows, "separate" is mean_j of PPO's clipped loss of q_i with
    advantage D; "joint" is half of that of q_i / q_j. Both are means over the n - 1 others, and on fresh samples both
    have the gradient of RLOO. A constant added to all rewards of a prompt changes nothing. A row is a whole completion;
    use a weighting that counts rows alike, such as `SequenceMean`. Source: Pairwise Proximal Policy Optimization, 2023,
    section 4, arXiv:2310.00212.

    Args:
        clip: the ratio is clipped to [1 - clip, 1 + clip].
        clipping: of the two ratios ("separate", V1) or of their quotient ("joint", V2).
        old: column of the log-probs that the ratio is taken against.
    """

    clip: float = 0.2
    clipping: Literal["separate", "joint"] = "separate"
    old: str = "behavior_logprobs"

    whole_groups = True

    def __post_init__(self) -> None:
        check_interval("pairwise_surrogate", "(0, 1]", clip=self.clip)

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "group", "episode_reward", self.old})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        # (rows,) log-ratio summed over the choices of a row; rows without a choice do not count
        mask, group = batch["action_mask"], batch["group"]
        log_ratio, counted = row_log_ratio(out.logprobs, batch[self.old], mask), mask.any(1)
        # (rows, rows) bool, the pairs of different rows of one group
        pairs = (group[:, None] == group) & counted[:, None] & counted
        pairs = pairs & ~torch.eye(len(group), dtype=torch.bool, device=group.device)
        # (rows, rows) r_i - r_j, which cancels the level of a prompt's rewards
        reward = batch["episode_reward"].to(log_ratio.dtype)
        gap = torch.where(pairs, reward[:, None] - reward, 0)
        # (rows, rows) ratio of row i alone, or of row i to row j, bounded before exp against overflow
        log_q = log_ratio[:, None].expand_as(gap) if self.clipping == "separate" else log_ratio[:, None] - log_ratio
        q = torch.where(pairs, log_q, 0).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
        # (rows,) mean over the other rows of the group
        loss = clipped_surrogate(q, gap, self.clip, self.clip).sum(1) / pairs.sum(1).clamp(min=1)
        return loss if self.clipping == "separate" else loss / 2


@dataclass(frozen=True)
class PromptOffset(WeightedSum):
    """Reward of an episode: sum_k weights_k * scores_k plus a random constant per prompt.

    Args:
        weights: by name of the score.
        std: standard deviation of the constants, which are normally distributed over prompts.
        seed: of the draws.
    """

    std: float = 1.0
    seed: int = 0

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        offset = self.std * float(derive_rng("prompt_offset", self.seed, group[0].prompt.key).normal())
        return [reward + offset for reward in super().__call__(group)]
