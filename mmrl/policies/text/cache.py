"""Key-value cache of decoding with prefix sharing: a prompt is computed and stored once for its completions."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.nn import functional as F
from transformers import DynamicCache
from transformers.cache_utils import Cache, DynamicLayer

from mmrl.policies.text.packing.prefix_attention import NAME, Prefix

ATTENTION = {"full_attention", "sliding_attention", "chunked_attention"}
"""Layer types whose state is keys and values of all earlier tokens; the model's own masks do the windows."""
SHARED_FROM = 64  # prompt length from which on shared storage is faster than copies for its completions


@contextmanager
def share_from(tokens: int) -> Iterator[None]:
    """Share the storage of prompts from this length on inside the context, so that short ones measure it."""
    global SHARED_FROM
    before, SHARED_FROM = SHARED_FROM, tokens
    try:
        yield
    finally:
        SHARED_FROM = before


class PreallocatedLayer(DynamicLayer):
    """Keys and values [N, heads, L, D] in buffers that are allocated for all new tokens at once.

    A dynamic layer of transformers copies its content at every token. Before `select`, rows are prompts. After it, the
    prompts are either copied in front of their completions' tokens, or kept as the `Prefix` of the keys that `update`
    returns; an attention function that ignores it reads only the completion's own tokens.
    """

    keys: Any  # tensors [N, heads, L, D] once tokens have been written
    values: Any

    def __init__(self, max_new_tokens: int):
        super().__init__()
        self.max_new_tokens = max_new_tokens
        self.prefix: Prefix | None = None
        self._buffers: Any = None  # keys and values with free space after them, once allocated

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if self._buffers is None:
            return super().update(key_states, value_states, *args, **kwargs)
        new = key_states.shape[-2]
        self.grow(new)
        self.keys[:, :, -new:], self.values[:, :, -new:] = key_states, value_states
        if self.prefix is not None:
            self.keys.prefix = self.prefix
        return self.keys, self.values

    def grow(self, new: int) -> None:
        """Extend by `new` tokens, which are written later."""
        length = self.keys.shape[-2] + new
        keys, values = self._buffers
        if length > keys.shape[-2]:
            raise RuntimeError(f"the cache holds {keys.shape[-2]} tokens at most, and {length} are written")
        self.keys, self.values = keys[:, :, :length], values[:, :, :length]

    def get_seq_length(self) -> int:
        return super().get_seq_length() + (0 if self.prefix is None else self.prefix.length)

    def share(self, owner: Tensor) -> None:
        """Continue with completions [R] of the prompts `owner`; each prompt is stored once."""
        self.prefix = Prefix(self.keys, self.values, owner)
        self._allocate(self.keys[:0, :, :0], self.values[:0, :, :0], len(owner))

    def unshare(self) -> None:
        """Stop sharing: copy the prompts to their completions, and drop the completions' own tokens."""
        prefix = self.prefix
        assert prefix is not None
        self.prefix, self._buffers = None, None
        self.keys, self.values = prefix.keys, prefix.values
        self.batch_select_indices(prefix.owner)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Select rows by `indices`, in that order, with repeats."""
        if self.prefix is not None:
            self.prefix = self.prefix.select(indices)
        keys, values, length = self.keys[indices], self.values[indices], self.keys.shape[-2]
        if self._buffers is None or len(indices) > len(self.keys):
            self._allocate(keys, values, len(indices))
            return
        # fewer rows reuse the buffers, since allocation costs more than the copy
        self._buffers = self._buffers[0][: len(indices)], self._buffers[1][: len(indices)]
        self.keys, self.values = self._buffers[0][:, :, :length], self._buffers[1][:, :, :length]
        self.keys.copy_(keys)
        self.values.copy_(values)

    def _allocate(self, keys: Tensor, values: Tensor, rows: int) -> None:
        """Allocate buffers with free space after the present tokens."""
        length = keys.shape[-2]
        capacity = length + self.max_new_tokens if self._buffers is None else self._buffers[0].shape[-2]
        buffers = [part.new_empty(rows, part.shape[1], capacity, part.shape[3]) for part in (keys, values)]
        if length:
            buffers[0][:, :, :length], buffers[1][:, :, :length] = keys, values
        self._buffers = buffers[0], buffers[1]
        self.keys, self.values = buffers[0][:, :, :length], buffers[1][:, :, :length]


class PromptCache(DynamicCache):
    """Interface of caches of prompts that `expand` assigns to their completions."""

    def expand(self, owner: Tensor) -> None:
        """Continue with completions [R] of the prompts `owner`."""
        self.batch_select_indices(owner)

    def ignores_prefix(self) -> bool:
        """Whether the attention of a layer ignored the prompts in the last step."""
        return False

    def unshare(self) -> None:
        """Stop sharing: copy the prompts to their completions, and drop the completions' own tokens."""

    def reads_mask(self) -> bool:
        """Whether a layer reads the padding of the prompts again at every token, and not only in their summary."""
        return True

    def grow(self, new: int) -> list[Tensor]:
        """Extend keys and values by `new` tokens, which are written later, and return the tensors of the cache."""
        for layer in self.layers:
            if isinstance(layer, DynamicLayer) and layer.keys is not None:
                most = getattr(layer, "sliding_window", None)
                more = new if most is None else max(0, min(new, most - 1 - layer.keys.shape[-2]))
                layer.keys, layer.values = (F.pad(part, (0, 0, 0, more)) for part in (layer.keys, layer.values))
        return self.list_tensors()

    def list_tensors(self) -> list[Tensor]:
        """List the tensors that layers hold: keys and values, states, and prompts that are stored once."""
        return [tensor for layer in self.layers for value in vars(layer).values() for tensor in _list_tensors(value)]


class StateCache(PromptCache):
    """Cache with layers that keep a summary of all earlier tokens; every layer selects rows as for a beam search."""

    def batch_select_indices(self, indices: Tensor) -> None:
        for layer in self.layers:
            layer.reorder_cache(indices)

    def reads_mask(self) -> bool:
        return any(isinstance(layer, DynamicLayer) for layer in self.layers)


class PreallocatedCache(PromptCache):
    """Cache of preallocated layers, added when the model reaches them.

    Args:
        max_new_tokens: of a completion.
        share_prefixes: whether the model's attention reads prompts that are stored once.
    """

    layers: list[PreallocatedLayer]  # type: ignore[assignment]

    def __init__(self, max_new_tokens: int, share_prefixes: bool = False):
        super().__init__()
        self.layer_class_to_replicate = lambda: PreallocatedLayer(max_new_tokens)  # type: ignore[assignment]
        self.share_prefixes = share_prefixes

    def expand(self, owner: Tensor) -> None:
        if not self.layers:
            raise ValueError("the model writes no keys and values into the cache of its prompts")
        prompts = self.layers[0].keys.shape[0]
        if self.share_prefixes and self.get_seq_length() >= SHARED_FROM and len(owner) > prompts:
            for layer in self.layers:
                layer.share(owner)
        else:
            super().expand(owner)

    def grow(self, new: int) -> list[Tensor]:
        """Extend by `new` tokens, which are written later."""
        tensors = []
        for layer in self.layers:
            layer.grow(new)
            tensors += [layer.keys, layer.values]
            tensors += [] if layer.prefix is None else [layer.prefix.keys, layer.prefix.values]
        return tensors

    def ignores_prefix(self) -> bool:
        return any(layer.prefix is not None and not layer.prefix.used for layer in self.layers)

    def unshare(self) -> None:
        for layer in self.layers:
            if layer.prefix is not None:
                layer.unshare()


def _list_tensors(value: Any) -> list[Tensor]:
    """List the tensors of an attribute of a layer."""
    if isinstance(value, Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    parts = (value.keys, value.values) if isinstance(value, Prefix) else parts
    return [tensor for part in parts for tensor in _list_tensors(part)]


def build_cache(model: Any, max_new_tokens: int) -> PromptCache:
    """Build the cache for prompts and `max_new_tokens` further tokens of a transformers model.

    Layers that are not all attention get transformers' own, and a model with a class of its own for it gets that.
    """
    config = model.config
    text = config.get_text_config(decoder=True)
    types = set(getattr(text, "layer_types", None) or ATTENTION)
    if types <= ATTENTION:
        return PreallocatedCache(max_new_tokens, text._attn_implementation == NAME)
    if (kind := find_cache_class(type(_base(model)))) is not None:
        return type(kind.__name__, (PromptCache, kind), {})()  # which selects rows by itself
    return StateCache(config=config)


def cache_argument(model: Any) -> str:
    """Return the name of a transformers model's argument for the cache: "past_key_values" before version 5.24."""
    return "cache" if _takes_cache(type(_base(model))) else "past_key_values"


def _base(model: Any) -> Any:
    """The model below adapters."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


@functools.cache
def find_cache_class(kind: type) -> type | None:
    """Find the class of cache that the module of a model defines for it; None where it takes those of transformers.

    Args:
        kind: class of the model.
    """
    classes = (value for value in vars(sys.modules[kind.__module__]).values() if isinstance(value, type))
    return next((each for each in classes if issubclass(each, Cache) and each.__module__ == kind.__module__), None)


@functools.cache
def _takes_cache(kind: type) -> bool:
    return "cache" in inspect.signature(kind.forward).parameters  # type: ignore[attr-defined]
