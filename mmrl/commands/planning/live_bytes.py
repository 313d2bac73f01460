"""Count the bytes of tensors that are alive while code runs, on tensors without content too."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

LARGE = 2**20
"""Bytes from which on a tensor is not computed where its shape alone is wanted."""


class LiveBytes(TorchDispatchMode):
    """Context that counts the storages which operations inside it allocate, until they are freed.

    Memory that an operation allocates and frees within itself is not seen. `peak` counts everything, `peak_of_rest`
    leaves out what was set aside before: gradients that an earlier micro-batch would have allocated.

    Args:
        module: whose tensors do not count.
        length: of sequences; `masks` counts the live masks [..., 1, length, length], which all heads share.
        mode: gives large results of operations on tensors with content none, such as masks that a model makes from
            positions; None computes all.
    """

    def __init__(self, module: nn.Module, length: int = 0, mode: FakeTensorMode | None = None):
        super().__init__()
        self.live = self.peak = self.peak_of_rest = self.masks = 0
        self._mask_shape, self._mode = (1, length, length), mode
        self._aside = 0
        self._seen: dict[int, Any] = {_key(tensor): None for tensor in (*module.parameters(), *module.buffers())}

    def __torch_dispatch__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = self._infer(func, args, kwargs or {})
        if out is None:
            out = func(*args, **(kwargs or {}))
        for leaf in (out,) if isinstance(out, Tensor) else tree_leaves(out):
            if isinstance(leaf, Tensor) and leaf.layout is torch.strided:
                self._count(leaf.untyped_storage(), leaf.shape[-3:] == self._mask_shape)
        return out

    def _infer(self, func: Any, args: Any, kwargs: Any) -> Tensor | None:
        """Return the result of an operation on tensors with content, without content, if it is a large tensor."""
        if self._mode is None or func._schema.is_mutable:
            return None
        if any(isinstance(leaf, FakeTensor) for leaf in tree_leaves((args, kwargs))):
            return None  # it has no content already
        try:
            with self._mode:
                out = func(*args, **kwargs)
        except Exception:  # its shape depends on values
            return None
        return out if isinstance(out, Tensor) and out.nbytes >= LARGE else None

    def reset_peak(self) -> None:
        """Begin new peaks at the bytes that are alive."""
        self.peak, self.peak_of_rest = self.live, self.live - self._aside

    @contextmanager
    def gradients_aside(self, module: nn.Module) -> Iterator[None]:
        """Set each gradient of a module aside as soon as it is complete, inside the context."""

        def set_aside(parameter: Tensor) -> None:
            assert parameter.grad is not None
            self._aside += parameter.grad.nbytes

        hooks = [p.register_post_accumulate_grad_hook(set_aside) for p in module.parameters() if p.requires_grad]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _count(self, storage: torch.UntypedStorage, is_mask: bool) -> None:
        key = storage._cdata
        if key in self._seen:
            return
        size = storage.nbytes()
        of_mask = size if is_mask else 0
        self.live += size
        self.masks += of_mask
        self.peak = max(self.peak, self.live)
        self.peak_of_rest = max(self.peak_of_rest, self.live - self._aside)

        def free(_: Any) -> None:
            if self._seen.pop(key, None) is not None:
                self.live -= size
                self.masks -= of_mask

        self._seen[key] = weakref.ref(storage, free)


def _key(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata
