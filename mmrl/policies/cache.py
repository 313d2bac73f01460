"""The key-value cache of a decode loop: filled once per prompt, then handed to every attempt at it."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

ATTENTION = {"full_attention", "sliding_attention", "chunked_attention"}
"""Layer types whose state is keys and values of all earlier tokens; the model's own masks do the windows."""


class RoomyLayer(DynamicLayer):
    """Keys and values [N, heads, L, D] in a buffer that has room for the tokens to come.

    The plain dynamic layer copies all that it holds at every token; this one writes the new token in its place and
    returns a view. The buffer is made when the prompt's rows are selected for the first time (`batch_select_indices`),
    so that the prompt itself is held once.
    """

    def __init__(self, room: int):
        super().__init__()
        self.room = room
        self._buffers: tuple[Tensor, Tensor] | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if self._buffers is None:
            return super().update(key_states, value_states, *args, **kwargs)
        held, new = self.keys.shape[-2], key_states.shape[-2]
        keys, values = self._buffers
        if held + new > keys.shape[-2]:
            raise RuntimeError(f"the cache has room for {keys.shape[-2]} tokens, and {held + new} are written")
        keys[:, :, held : held + new], values[:, :, held : held + new] = key_states, value_states
        self.keys, self.values = keys[:, :, : held + new], values[:, :, : held + new]
        return self.keys, self.values

    def batch_select_indices(self, indices: Tensor) -> None:
        """Rows `indices`, in that order and as often as they are named."""
        held = self.keys.shape[-2]
        if self._buffers is None:
            self._capacity = held + self.room
        made = []
        for part in (self.keys, self.values):
            buffer = part.new_empty(len(indices), part.shape[1], self._capacity, part.shape[3])
            buffer[:, :, :held] = part[indices]
            made.append(buffer)
        self._buffers = made[0], made[1]
        self.keys, self.values = made[0][:, :, :held], made[1][:, :, :held]


class RoomyCache(DynamicCache):
    """A cache of roomy layers; layers are added as the model reaches them."""

    def __init__(self, room: int):
        super().__init__()
        self.layer_class_to_replicate = lambda: RoomyLayer(room)


def empty_cache(config: Any, room: int) -> DynamicCache:
    """A cache for prompts and `room` further tokens. Architectures with other states than keys and values get theirs.

    Args:
        config: of the transformers model.
    """
    types = set(getattr(config.get_text_config(decoder=True), "layer_types", None) or ATTENTION)
    return RoomyCache(room) if types <= ATTENTION else DynamicCache(config=config)
