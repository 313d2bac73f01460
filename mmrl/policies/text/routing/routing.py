"""Routing of a text policy: frozen routers, recorded experts in scoring, and loads of experts."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from mmrl.core.evaluation_mode import evaluation_mode
from mmrl.policies.text.packing.packed_inputs import PackedInputs
from mmrl.policies.text.routing.loads import RowParts, sum_loads
from mmrl.policies.text.routing.routed_pass import RoutedPass, install_hooks, route
from mmrl.policies.text.routing.routers import PROBE, Router, find_routers, measure_routers


class Routing:
    """What a policy does with the routers of its model.

    Args:
        model: of transformers, with or without adapters.
        ids: a few ids that stand for text, for a pass that measures the routers.
        replay: record the experts of sampled tokens, and score with recorded experts.
        loads: sum in scoring what routers give to each expert, for the load-balancing loss.

    Raises:
        ValueError: the model has no routers, or they do not allow it.
    """

    def __init__(self, model: Any, ids: list[int], replay: bool, loads: bool):
        self.replay, self.loads, self.top_k = replay, loads, 0
        option = "policy.router_replay" if replay else "policy.output_router_logits"
        self.routers = require_routers(model, option)
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        kind, probe = base.config.model_type, (ids * PROBE)[:PROBE]
        measurable = next(model.parameters()).device.type != "meta"  # else they are measured in the first pass
        if replay and measurable:
            try:
                measure_routers(model, self.routers, probe)
            except ValueError as error:
                raise ValueError(f"{option}=true cannot be used with {kind}: {error}; leave it out") from error
        install_hooks(self.routers)
        if loads:
            refuse_other_loss(type(base), kind)
            text = base.config.get_text_config(decoder=True)
            self.top_k = getattr(base, "num_experts_per_tok", None) or text.num_experts_per_tok
            if measurable:
                self._compare_loss(base, kind, probe)

    def record(self) -> AbstractContextManager[RoutedPass]:
        """Record the experts that the model chooses inside the context."""
        return route(RoutedPass(self.routers))

    def score(self, inputs: PackedInputs) -> AbstractContextManager[RoutedPass | None]:
        """Run the pass over packed inputs with their recorded experts inside the context."""
        experts = inputs.experts
        if experts is None and inputs.row_parts is None:
            return nullcontext()
        return route(RoutedPass(self.routers, experts, experts is not None))

    def sum_loads(self, routed: RoutedPass | None, inputs: PackedInputs) -> list[Tensor]:
        """Sum the loads of experts of a pass by `sum_loads`; nothing where they are not asked for."""
        if routed is None or inputs.row_parts is None:
            return []
        return sum_loads(routed.list_logits(), self.top_k, inputs.row_parts)

    def _compare_loss(self, base: Any, kind: str, probe: list[int]) -> None:
        """Compare the loss of a few tokens with that of the model itself."""
        ids = torch.tensor([probe], device=next(base.parameters()).device)
        tokens = RowParts(torch.ones_like(ids[0]), ids.new_zeros(1), ids.new_tensor([[0, 0, 1]]))
        try:
            with torch.no_grad(), evaluation_mode(base):
                expected = base(input_ids=ids, use_cache=False, output_router_logits=True).aux_loss
                with route(RoutedPass(self.routers, selects=False)) as routed:
                    base(input_ids=ids, use_cache=False)
            _, probs, counts, lengths = sum_loads(routed.list_logits(), self.top_k, tokens)
            loss = probs.shape[1] * (counts * probs).sum() / lengths.sum() ** 2
            difference = abs(float(loss - expected))
        except (AttributeError, TypeError, ValueError, KeyError, RuntimeError, IndexError) as error:
            reason = f"it fails with {type(error).__name__}: {str(error)[:120]}"
        else:
            if difference < 1e-3:
                return
            reason = f"its loss differs from that of its routers by {difference:.2g}"
        raise ValueError(f"policy.output_router_logits=true cannot be used with {kind}: {reason}; leave it out")


def refuse_other_loss(model_class: type, kind: str) -> None:
    """Refuse a model for which transformers computes no load-balancing loss.

    Raises:
        ValueError: with the remedy.
    """
    if not hasattr(sys.modules[model_class.__module__], "load_balancing_loss_func"):
        raise ValueError(
            f"policy.output_router_logits=true: transformers computes no load-balancing loss for {kind}; its routers "
            "are balanced otherwise, such as by a bias, or not at all. Leave it out, and the term load_balancing"
        )


def require_routers(model: nn.Module, option: str) -> list[Router]:
    """Return the routers of a model.

    Raises:
        ValueError: it has none.
    """
    routers = find_routers(model)
    if not routers:
        raise ValueError(format_dense(option))
    return routers


def format_dense(option: str) -> str:
    """Format the refusal of a model without routers."""
    return (
        f"{option}=true is for mixtures of experts whose routers transformers names (output_router_logits), such "
        "as mixtral, qwen3_moe or gpt_oss; leave it out"
    )


def freeze_routers(model: nn.Module) -> None:
    """Exclude the weights of routers, and adapters inside them, from training.

    Raises:
        ValueError: there are none, or they are one module with the experts.
    """
    for router in require_routers(model, "policy.freeze_router"):
        parameters = list(router.module.parameters())
        if any(parameter.dim() > 2 for parameter in parameters) or any(
            "expert" in name for name, _ in router.module.named_modules()
        ):
            raise ValueError(
                f"policy.freeze_router=true: {router.name} holds its experts too; exclude them from training otherwise"
            )
        for parameter in parameters:
            parameter.requires_grad_(False)


def prepare_routers(policy: Any, freeze: bool, replay: bool, loads: bool) -> Routing | None:
    """Freeze the routers of a policy's model, and return what else is done with them; None for nothing."""
    if freeze:
        freeze_routers(policy.model)
    return Routing(policy.model, policy.text_ids(), replay, loads) if replay or loads else None
