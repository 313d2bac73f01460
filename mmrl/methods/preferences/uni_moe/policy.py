"""Uni-MoE 2.0: a text policy of a mixture of experts with dynamic routing, and the loads of its experts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from mmrl.methods.preferences.uni_moe.layer import select_top_p, weigh_experts
from mmrl.methods.preferences.uni_moe.model import UniMoeConfig
from mmrl.policies.text.packing.packed_inputs import PackedInputs
from mmrl.policies.text.policy import TextPolicy
from mmrl.policies.text.routing.routed_pass import RoutedPass
from mmrl.policies.text.routing.routing import Routing


class TopPRouting(Routing):
    """Loads of experts that compete by dynamic routing, for the term `LoadBalancing`.

    P_e is the mean weight of an expert among the selected experts of its token, f_e the share of tokens that select it.

    Args:
        model: of `UniMoeForCausalLM`, with or without adapters.
        ids: a few ids that stand for text.
        top_p: P of its routers.
    """

    def __init__(self, model: Any, ids: list[int], top_p: float):
        super().__init__(model, ids, replay=False, loads=False)
        self.loads, self.top_p = True, top_p

    def sum_loads(self, routed: RoutedPass | None, inputs: PackedInputs) -> list[Tensor]:
        """Sum weights and selections of routed and null experts over the tokens of every row, means over the layers.

        Returns:
            As `mmrl.policies.text.routing.loads.sum_loads`.
        """
        if routed is None or inputs.row_parts is None:
            return []
        tokens, layers = inputs.row_parts, routed.list_logits()  # [tokens, C] of each layer
        selected = [select_top_p(logits.detach().softmax(-1), self.top_p) for logits in layers]
        weights = [weigh_experts(logits, each) for logits, each in zip(layers, selected)]
        with torch.no_grad():
            counts = torch.stack([tokens.sum(each.float()) for each in selected]).mean(0)
            lengths = tokens.sum(torch.ones_like(weights[0][:, :1]))[:, 0]
        return [tokens.rows, torch.stack([tokens.sum(each) for each in weights]).mean(0), counts, lengths]


class UniMoePolicy(TextPolicy):
    """Text policy of `UniMoeForCausalLM`.

    A token has the same experts in sampling and in learning, because routing has no noise. Source: Uni-MoE-2.0-Omni,
    2025, arXiv:2511.12609.

    Args:
        path: folder of a checkpoint that this policy saved.
        config: instead of a path, the arguments of `UniMoeConfig` for random weights and the character tokenizer.
        output_router_logits: return what the term `LoadBalancing` reads, of routed and null experts.
        options: further arguments of `TextPolicy`, such as `lora` or `freeze_router`.
    """

    capturable = None  # how many tokens an expert has changes from step to step

    def __init__(
        self,
        path: str | None = None,
        config: dict[str, Any] | None = None,
        output_router_logits: bool = False,
        **options: Any,
    ):
        super().__init__(path, config, **options)
        built = self.model.config
        if not isinstance(built, UniMoeConfig):
            raise ValueError(
                f"policy.{'config' if path is None else 'path'}: {built.model_type} is no mixture of experts with "
                f"dynamic routing; give policy.config.model_type={UniMoeConfig.model_type}, or take policy=text"
            )
        if output_router_logits:
            self.routing = TopPRouting(self.model, self.text_ids(), built.routing_top_p)

    @classmethod
    def refuse_settings(cls, init_args: Mapping[str, Any]) -> None:
        if init_args.get("router_replay"):
            raise ValueError(
                "policy.router_replay=true records a fixed number of experts of each token, and dynamic routing "
                "selects as many as a token needs; leave it out"
            )
