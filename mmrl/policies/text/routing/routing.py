"""Routing of a text policy: frozen routers, and recorded experts in scoring."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import nn

from mmrl.policies.text.packing.packed_inputs import PackedInputs
from mmrl.policies.text.routing.routed_pass import RoutedPass, install_hooks, route
from mmrl.policies.text.routing.routers import PROBE, Router, find_routers, measure_routers


class Routing:
    """What a policy does with the routers of its model.

    Args:
        model: of transformers, with or without adapters.
        ids: a few ids that stand for text, for a pass that measures the routers.

    Raises:
        ValueError: the model has no routers, or they do not allow it.
    """

    def __init__(self, model: Any, ids: list[int]):
        option = "policy.router_replay"
        self.routers = require_routers(model, option)
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        kind = base.config.model_type
        if next(model.parameters()).device.type != "meta":  # else they are measured in the first pass
            try:
                measure_routers(model, self.routers, (ids * PROBE)[:PROBE])
            except ValueError as error:
                raise ValueError(f"{option}=true cannot be used with {kind}: {error}; leave it out") from error
        install_hooks(self.routers)

    def record(self) -> AbstractContextManager[RoutedPass]:
        """Record the experts that the model chooses inside the context."""
        return route(RoutedPass(self.routers))

    def score(self, inputs: PackedInputs) -> AbstractContextManager[RoutedPass | None]:
        """Run the pass over packed inputs with their recorded experts inside the context."""
        experts = inputs.experts
        if experts is None:
            return nullcontext()
        return route(RoutedPass(self.routers, experts))


def require_routers(model: nn.Module, option: str) -> list[Router]:
    """Return the routers of a model.

    Raises:
        ValueError: it has none.
    """
    routers = find_routers(model)
    if not routers:
        raise ValueError(
            f"{option}=true is for mixtures of experts whose routers transformers names (output_router_logits), such "
            "as mixtral, qwen3_moe or gpt_oss; leave it out"
        )
    return routers


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


def prepare_routers(policy: Any, freeze: bool, replay: bool) -> Routing | None:
    """Freeze the routers of a policy's model, and return how it replays recorded experts; None where it does not."""
    if freeze:
        freeze_routers(policy.model)
    return Routing(policy.model, policy.text_ids()) if replay else None
