"""One forward pass of a mixture of experts: recorded experts go in, chosen experts and router logits come out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from mmrl.policies.text.routing.routers import ExpertSelection, Router, measure_router


class RoutedPass:
    """What the routers of a pass choose.

    Args:
        routers: of the model, in order.
        experts: [tokens, layers, k] ids that they choose, -1 where they choose by themselves; None for all tokens.
        selects: whether the chosen experts are needed; False for the logits alone.
    """

    def __init__(self, routers: Sequence[Router], experts: Tensor | None = None, selects: bool = True):
        self.routers, self.experts, self.selects = routers, experts, selects
        self.numbers = {id(router.module): number for number, router in enumerate(routers)}
        self.logits: dict[int, Tensor] = {}  # [tokens, experts] by the number of the router
        self.chosen: dict[int, Tensor] = {}  # [tokens, k]
        self.open: list[ExpertSelection] = []  # of the router that runs

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Begin the call of a router."""
        number = self.numbers.get(id(module))
        if number is None or not self.selects:
            return
        router = self.routers[number]
        if router.selection is None:
            with _use(None):
                measure_router(router, args, kwargs)
        selection = ExpertSelection(router.selection, None if self.experts is None else self.experts[:, number])
        selection.__enter__()
        self.open.append(selection)

    def leave(self, module: nn.Module, outputs: Any) -> None:
        """End the call of a router; its outputs are None if it was broken off."""
        number = self.numbers.get(id(module))
        if number is None:
            return
        router = self.routers[number]
        if self.open:
            selection = self.open.pop()
            selection.__exit__(None, None, None)
            if outputs is not None:
                indices = selection.calls[router.selection][1]  # type: ignore[index]
                self.chosen[number] = indices.view(-1, indices.shape[-1])
        if outputs is not None:
            self.logits[number] = router.logits(outputs)

    def stack_chosen(self) -> Tensor:
        """Return the chosen experts [tokens, layers, k]."""
        return torch.stack([self.chosen[number] for number in range(len(self.routers))], 1).short()

    def list_logits(self) -> list[Tensor]:
        """Return the logits [tokens, experts] of each router."""
        return [self.logits[number] for number in range(len(self.routers))]

    def without_outputs(self) -> RoutedPass:
        """Return a new pass with the same experts."""
        return RoutedPass(self.routers, self.experts, self.selects)


_active: ContextVar[RoutedPass | None] = ContextVar("routed_pass", default=None)


@contextmanager
def _use(routed: RoutedPass | None) -> Iterator[None]:
    token = _active.set(routed)
    try:
        yield
    finally:
        _active.reset(token)


@contextmanager
def route(routed: RoutedPass) -> Iterator[RoutedPass]:
    """Run the calls of the network inside the context as this pass."""
    with _use(routed):
        yield routed


def install_hooks(routers: Sequence[Router]) -> None:
    """Let routers take part in the pass that runs; copies of the model keep that."""
    for router in routers:
        router.module.register_forward_pre_hook(_enter, with_kwargs=True)
        router.module.register_forward_hook(_leave, always_call=True)


def _enter(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if (routed := _active.get()) is not None:
        routed.enter(module, args, kwargs)


def _leave(module: nn.Module, args: tuple[Any, ...], outputs: Any) -> None:
    if (routed := _active.get()) is not None:
        routed.leave(module, outputs)


def checkpoint_contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Contexts of a checkpointed block: its second forward pass, during the backward pass, chooses the same experts."""
    routed = _active.get()
    return nullcontext(), nullcontext() if routed is None else _use(routed.without_outputs())
