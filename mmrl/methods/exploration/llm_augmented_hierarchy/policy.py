"""Policy of LLM Augmented Hierarchical Agents: a prior over skills biases its choices while it is trained.

LLM Augmented Hierarchical Agents, 2023, arXiv:2311.05596.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mmrl.policies.control.heads import Categorical
from mmrl.policies.control.policy import ControlPolicy
from mmrl.rollouts.options import ELAPSED

PRIOR, WEIGHT = "prior", "prior_weight"


class SkillPolicy(ControlPolicy):
    """`ControlPolicy` over skills whose behaviour a prior biases: pi_b(k | s) is proportional to pi(k | s) p(k | s)^w.

    Observations may have "prior", log p of the K skills, with "prior_weight", w; without them, in evaluation, pi is
    what acts. Stored choices are scored by pi_b too: the importance ratio is that of the behaviour before and after an
    update, whose gradient is with respect to pi alone.
    """

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        if self.kind != "categorical":
            raise ValueError(
                f"policy.kind={self.kind}: a prior over skills needs numbered actions (kind=categorical); take "
                "sim=craft_skills"
            )

    def encode_batch(self, raw: Mapping[str, Any]) -> dict[str, Tensor]:
        encoded = super().encode_batch(raw)
        for name in (PRIOR, WEIGHT, ELAPSED):
            if name in raw:
                encoded[name] = torch.from_numpy(np.array(raw[name], dtype=np.float32))
        return encoded

    def _choices(self, observation: Mapping[str, Tensor], features: Tensor, temperature: Tensor) -> Categorical:
        choices = super()._choices(observation, features, temperature)
        if PRIOR not in observation:
            return choices
        return replace(choices, logits=choices.logits + observation[WEIGHT][:, None] * observation[PRIOR])
