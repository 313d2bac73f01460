"""Routers of a mixture of experts: the modules, and the one selection of experts that each of them makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel

from mmrl.core.evaluation_mode import evaluation_mode

PROBE = 4  # tokens of the pass that measures routers


@dataclass(eq=False)
class Router:
    """One router.

    Args:
        name: of the module in the model.
        module: computes logits [tokens, experts] and selects experts.
        output: the place of the logits among its outputs.
        selection: which of its calls of `torch.topk` selects the experts; None until it is measured.
        experts: number of experts.
        top_k: experts of a token.
    """

    name: str
    module: nn.Module
    output: int
    selection: int | None = None
    experts: int = 0
    top_k: int = 0

    def logits(self, outputs: Any) -> Tensor:
        """Return the logits [tokens, experts] from the outputs of the module."""
        logits = outputs[self.output] if isinstance(outputs, tuple) else outputs
        return logits.reshape(-1, logits.shape[-1])


class ExpertSelection(TorchFunctionMode):
    """Counts the calls of `torch.topk` inside the context, and lets one of them choose recorded experts.

    Args:
        call: number of the call that selects experts; None for none.
        experts: [tokens, k] ids that it chooses; tokens with -1, and all without it, choose by their scores.
    """

    def __init__(self, call: int | None, experts: Tensor | None = None):
        super().__init__()
        self.call, self.experts = call, experts
        self.calls: list[tuple[Tensor, Tensor]] = []  # scores and chosen indices

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func not in (torch.topk, torch.Tensor.topk):
            return result
        scores = args[0] if args else kwargs["input"]
        values, indices = result
        if len(self.calls) == self.call and self.experts is not None:
            experts = self.experts.to(indices).view(indices.shape)
            indices = torch.where(experts >= 0, experts, indices)
            values = scores.gather(-1, indices)
        self.calls.append((scores.detach(), indices))
        return torch.return_types.topk((values, indices))


def find_routers(model: nn.Module) -> list[Router]:
    """Find the routers of a transformers model, in the order of its layers.

    Models name the class of their routers, and the place of the logits among its outputs, for `output_router_logits`.

    Args:
        model: with or without adapters.
    """
    routers: dict[int, Router] = {}
    for part in model.modules():
        recorders = getattr(part, "_can_record_outputs", None) if isinstance(part, PreTrainedModel) else None
        recorder = (recorders or {}).get("router_logits")
        for each in recorder if isinstance(recorder, list) else [recorder] if recorder is not None else []:
            kind = getattr(each, "target_class", each)
            for name, module in part.named_modules():
                if isinstance(module, kind):
                    routers.setdefault(id(module), Router(name, module, getattr(each, "index", 0)))
    return list(routers.values())


@torch.no_grad()
def measure_router(router: Router, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Measure which `torch.topk` of a router selects experts, and whether other experts can take their place.

    Args:
        router: gets its `selection`, `experts` and `top_k`.
        args, kwargs: of a call of the module.

    Raises:
        ValueError: it does not select by `torch.topk`, or recorded experts have no effect, or no weight.
    """

    def run(selection: ExpertSelection) -> Any:
        with selection:
            return router.module.forward(*args, **kwargs)

    with evaluation_mode(router.module):
        outputs = run(plain := ExpertSelection(None))
        logits, tokens = router.logits(outputs), len(router.logits(outputs))
        call = len(plain.calls) - 1
        if call < 0 or plain.calls[call][0].numel() != logits.numel():
            raise ValueError(f"{type(router.module).__name__} selects experts in another way than by one torch.topk")
        scores, indices = plain.calls[call]
        router.experts, router.top_k = logits.shape[-1], indices.shape[-1]
        if router.top_k < router.experts and logits.device.type != "meta":
            worst = scores.topk(router.top_k, largest=False).indices
            _check_effect(router, outputs, run(ExpertSelection(call, worst)), tokens)
    router.selection = call


def _check_effect(router: Router, before: Any, after: Any, tokens: int) -> None:
    """Check that other experts change the outputs of a router, and that they have weights."""
    pairs = [(one, other) for one, other in zip(before, after) if isinstance(one, Tensor)]
    kind = type(router.module).__name__
    if all(torch.equal(one, other) for one, other in pairs if one.shape == other.shape):
        raise ValueError(f"{kind} does not read the experts that its torch.topk selects")
    weights = [other for _, other in pairs if other.is_floating_point() and other.numel() == tokens * router.top_k]
    if any(bool((each == 0).any()) for each in weights):
        raise ValueError(f"{kind} gives experts no weight that it would not have selected itself, such as other groups")


def measure_routers(model: Any, routers: list[Router], ids: list[int]) -> None:
    """Measure all routers in one pass over a few tokens.

    Args:
        model: of transformers.
        routers: of `find_routers`.
        ids: that stand for text.

    Raises:
        ValueError: naming the router that cannot take recorded experts.
    """
    counts = [0] * len(routers)

    def measure(number: int) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            counts[number] += 1
            measure_router(routers[number], args, kwargs)

        return hook

    handles = [
        router.module.register_forward_pre_hook(measure(i), with_kwargs=True) for i, router in enumerate(routers)
    ]
    try:
        with torch.no_grad(), evaluation_mode(model):
            model(input_ids=torch.tensor([ids], device=next(model.parameters()).device), use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    wrong = next((router for router, count in zip(routers, counts) if count != 1), None)
    if wrong is not None:
        raise ValueError(f"the router {wrong.name} runs {counts[routers.index(wrong)]} times in one pass")
    if len({router.top_k for router in routers}) > 1:
        raise ValueError("its layers choose different numbers of experts")
