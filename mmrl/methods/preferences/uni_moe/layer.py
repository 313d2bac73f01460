"""Uni-MoE 2.0: a layer of routed, null and shared experts; a token has as many of them as its router needs.

Uni-MoE-2.0-Omni: Scaling Language-Centric Omnimodal Large Model with Advanced MoE, Training and Data, 2025,
arXiv:2511.12609.

- a router gives a score to every expert: routed and null experts, which compete, and shared ones
- routed and null experts in descending order of probability, until their sum is at least P: `select_top_p`
- weights of the selected and the shared experts, which sum to one: `weigh_experts`
- a null expert outputs 0, so that a token which needs little computation has less: `ExpertLayer`
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.activations import ACT2FN
from transformers.models.qwen2_moe.modeling_qwen2_moe import Qwen2MoeMLP


def select_top_p(probs: Tensor, top_p: float) -> Tensor:
    """Select the most probable experts until the sum of their probabilities is at least P.

    An expert is selected while those before it sum to less than P, so that each token has one at least.
    Source: Uni-MoE-2.0, 2025, arXiv:2511.12609, dynamic-capacity routing.

    Args:
        probs: [tokens, experts] that sum to one.
        top_p: P, in (0, 1]; 1 selects all experts.

    Returns:
        [tokens, experts] whether a token has the expert.
    """
    if top_p >= 1:  # sums of many probabilities may reach 1 by rounding before the last one
        return torch.ones_like(probs, dtype=torch.bool)
    ordered, order = probs.sort(dim=-1, descending=True, stable=True)
    before = F.pad(ordered.cumsum(-1)[..., :-1], (1, 0))  # probability of the experts in front of each one
    return torch.zeros_like(probs, dtype=torch.bool).scatter(-1, order, before < top_p)


def weigh_experts(logits: Tensor, selected: Tensor) -> Tensor:
    """Weigh the selected experts: softmax over them alone, 0 for the others.

    Args:
        logits: [tokens, experts] of the router.
        selected: [tokens, experts] bool.

    Returns:
        [tokens, experts] weights that sum to one over the selected experts.
    """
    return logits.masked_fill(~selected, -torch.inf).softmax(-1)


class TopPRouter(nn.Module):
    """Router of routed, null and shared experts.

    Args:
        config: of `UniMoeConfig`.
    """

    def __init__(self, config: Any):
        super().__init__()
        self.competing = config.num_experts + config.num_null_experts
        self.top_p = config.routing_top_p
        self.weight = nn.Parameter(torch.empty(self.competing + config.num_shared_experts, config.hidden_size))

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Route tokens.

        Args:
            states: [tokens, D].

        Returns:
            Logits of the experts that compete, routed ones and then null ones [tokens, C], and weights of all experts,
            the shared ones last [tokens, C + S].
        """
        logits = F.linear(states, self.weight).float()
        competing = logits[:, : self.competing]
        always = torch.ones_like(logits[:, self.competing :], dtype=torch.bool)
        selected = torch.cat([select_top_p(competing.softmax(-1), self.top_p), always], -1)
        return competing, weigh_experts(logits, selected)


class RoutedExperts(nn.Module):
    """The routed experts of a layer, gated perceptrons in two tensors; those without a token are not computed.

    Args:
        config: of `UniMoeConfig`.
    """

    def __init__(self, config: Any):
        super().__init__()
        self.gate_up_proj = nn.Parameter(
            torch.empty(config.num_experts, 2 * config.moe_intermediate_size, config.hidden_size)
        )
        self.down_proj = nn.Parameter(torch.empty(config.num_experts, config.hidden_size, config.moe_intermediate_size))
        self.activation = ACT2FN[config.hidden_act]

    def forward(self, states: Tensor, weights: Tensor) -> Tensor:
        """Sum the weighted outputs of the experts whose weight is not 0.

        Args:
            states: [tokens, D].
            weights: [tokens, experts].

        Returns:
            [tokens, D].
        """
        total = torch.zeros_like(states)
        for expert, (gate_up, down) in enumerate(zip(self.gate_up_proj, self.down_proj)):
            rows = weights[:, expert].nonzero()[:, 0]  # the tokens of this expert
            gate, up = F.linear(states[rows], gate_up).chunk(2, -1)
            output = F.linear(self.activation(gate) * up, down) * weights[rows, expert, None].to(states.dtype)
            total = total.index_add(0, rows, output)
        return total


class ExpertLayer(nn.Module):
    """Feed-forward layer of routed, null and shared experts: y = sum_e w_e E_e(x) over selected and shared experts e.

    The output of a null expert is 0, so that its weight is computation that the token goes without.

    Args:
        config: of `UniMoeConfig`.
    """

    def __init__(self, config: Any):
        super().__init__()
        self.routed = config.num_experts
        self.gate, self.experts = TopPRouter(config), RoutedExperts(config)
        self.shared = nn.ModuleList(
            Qwen2MoeMLP(config, config.shared_intermediate_size) for _ in range(config.num_shared_experts)
        )

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Compute the outputs [B, L, D] of hidden states [B, L, D]."""
        states = hidden_states.flatten(0, -2)  # [tokens, D]
        _, weights = self.gate(states)
        total = self.experts(states, weights[:, : self.routed])
        for expert, weight in zip(self.shared, weights[:, self.gate.competing :].unbind(1)):
            total = total + expert(states) * weight[:, None].to(states.dtype)
        return total.view_as(hidden_states)
