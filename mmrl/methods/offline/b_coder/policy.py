"""B-Coder's policy: a language model whose logits are advantages, with a base value and a residual value.

B-Coder: Value-Based Deep Reinforcement Learning for Program Synthesis, 2023, section 4, arXiv:2310.03173. With
logits l:

    Q(s, a) = alpha (l(s, a) - max_b l(s, b)) + V(s),  so that softmax(Q / alpha) is the language model

V is fitted first, while the language model is frozen (stage phi). Then V(s) = V_phi(s) + V_r(s) with V_phi frozen and
V_r = h(s) - h_0(s), where h_0 is a frozen copy of the head h, so that V_r is 0 at the start (stage theta).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from mmrl.core.batch import Batch
from mmrl.core.errors import check_at_least
from mmrl.core.types import PolicyOutput
from mmrl.ops.masked import last_inside
from mmrl.policies.text.frozen.policy import NETWORKS, build_perceptron
from mmrl.policies.text.policy import TextPolicy
from mmrl.policies.text.statistics import Statistic
from mmrl.policies.weights import fill, read_weights


class RelativeLogits(Statistic):
    """Logits minus the largest one, l(s, b) - max_c l(s, c), of all tokens b at each choice: [N, T, V], at most 0.

    They take N * T * V fp32 numbers for each micro-batch: raise trainer.accumulate_grad_batches when memory runs out.
    """

    def __call__(self, logits: Tensor, temperature: Tensor) -> Tensor:
        return (logits - logits.amax(-1, keepdim=True)).float()


class DuelingValues(nn.Module):
    """Heads of the values on states [..., D]: the base value, and a residual that is 0 before training.

    Args:
        width: D.
        hidden: width of each hidden layer.
    """

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.base = build_perceptron(width, hidden, 1)
        self.residual = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.residual_start = copy.deepcopy(self.residual).requires_grad_(False)

    def predict_base(self, states: Tensor) -> Tensor:
        """Base value [...] before it is squashed."""
        return self.base(states).squeeze(-1)

    def predict_residual(self, states: Tensor) -> Tensor:
        """Residual value [...] h - h_0 before it is squashed."""
        return (self.residual(states) - self.residual_start(states)).squeeze(-1)


class DuelingPolicy(TextPolicy):
    """Text policy read as a dueling Q-network; it samples as the language model does.

    Beside log-probs `forward` returns `relative_logits` [N, T, V] and, before they are squashed, `base_values` [N, T]
    and `residual_values` [N, T] of the state before each choice. In stage theta the base value is that of the frozen
    checkpoint, which the annotator `CheckpointChoices` writes.

    Args:
        path: of a checkpoint, or of a folder that `save_pretrained` wrote, with its heads.
        config: instead of a path, an architecture with random weights and the character tokenizer.
        hidden: width of the hidden layer of each head.
        trains: values, the base value alone (stage phi), or policy, the language model and the residual value (theta).
        options: further arguments of `TextPolicy`, such as `dtype`.
    """

    optional = ("value_head", "networks")

    def __init__(
        self,
        path: str | None = None,
        config: dict[str, Any] | None = None,
        hidden: int = 128,
        trains: Literal["values", "policy"] = "policy",
        **options: Any,
    ):
        check_at_least(1, "policy", hidden=hidden)
        if trains not in ("values", "policy"):
            raise ValueError(f"policy.trains must be values or policy, got {trains!r}")
        super().__init__(path, config, value_head=False, hidden_layers=[1.0], **options)
        self.statistics["relative_logits"] = RelativeLogits()
        self.networks, self.trains = DuelingValues(self.hidden_size, hidden), trains
        if path is not None and (saved := Path(path) / NETWORKS).is_file():
            fill(self.networks, read_weights(saved, "save the policy there again"), str(saved))
        if trains == "values":
            self.model.requires_grad_(False)
            self.networks.residual.requires_grad_(False)
        else:
            self.networks.base.requires_grad_(False)

    @classmethod
    def predicts(cls, init_args: Mapping[str, Any]) -> frozenset[str]:
        return super().predicts(init_args) | {"relative_logits", "base_values", "residual_values"}

    def forward(self, batch: Batch) -> PolicyOutput:
        out = super().forward(batch)
        states = out.extra.pop("hidden_states")[:, :, -1].to(self.networks.residual[0].weight.dtype)  # [N, T, D]
        # [N, T] bool: choices up to the last one that is scored; what is after them is 0
        inside = torch.arange(states.shape[1], device=states.device) < last_inside(batch.score_mask)[:, None]
        for name, values in (
            ("base_values", self.networks.predict_base(states)),
            ("residual_values", self.networks.predict_residual(states)),
        ):
            out.extra[name] = torch.where(inside, values.float(), 0.0)
        return out

    def save_pretrained(self, folder: str | Path) -> None:
        """As TextPolicy, with the heads beside it."""
        super().save_pretrained(folder)
        save_file(self.networks.state_dict(), Path(folder) / NETWORKS)
