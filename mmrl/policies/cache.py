"""The key-value cache of a decode loop: a prompt is read once and held once for all attempts at it."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from mmrl.policies.prefix_attention import NAME, Prefix

ATTENTION = {"full_attention", "sliding_attention", "chunked_attention"}
"""Layer types whose state is keys and values of all earlier tokens; the model's own masks do the windows."""
SHARED_FROM = 64  # tokens of a prompt from which on holding it once is faster than copying it to its attempts


class RoomyLayer(DynamicLayer):
    """Keys and values [N, heads, L, D], new ones written into room that was kept for them.

    The plain dynamic layer copies all that it holds at every token. Before `select` it is one: the prompts' rows.
    After it, the prompts are either copied in front of their attempts' room, or stay where they are as the `Prefix` of
    the keys that `update` returns; an attention that does not know about it would see the attempt's own tokens only.
    """

    keys: Any  # tensors [N, heads, L, D], from the first tokens on
    values: Any

    def __init__(self, room: int):
        super().__init__()
        self.room = room
        self.prefix: Prefix | None = None
        self._buffers: Any = None  # keys and values with the room behind them, once there is any

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
        """Hold `new` more tokens, which are yet to be written."""
        held = self.keys.shape[-2] + new
        keys, values = self._buffers
        if held > keys.shape[-2]:
            raise RuntimeError(f"the cache has room for {keys.shape[-2]} tokens, and {held} are written")
        self.keys, self.values = keys[:, :, :held], values[:, :, :held]

    def get_seq_length(self) -> int:
        return super().get_seq_length() + (0 if self.prefix is None else self.prefix.length)

    def share(self, owner: Tensor) -> None:
        """Go on with attempts [R] at the prompts `owner`, which stay where they are."""
        self.prefix = Prefix(self.keys, self.values, owner)
        self._keep(self.keys[:0, :, :0], self.values[:0, :, :0], len(owner))

    def unshare(self) -> None:
        """Copy the prompts to their attempts after all, and forget the attempts' own tokens."""
        prefix = self.prefix
        assert prefix is not None
        self.prefix, self._buffers = None, None
        self.keys, self.values = prefix.keys, prefix.values
        self.batch_select_indices(prefix.owner)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Rows `indices`, in that order and as often as they are named."""
        if self.prefix is not None:
            self.prefix = self.prefix.select(indices)
        keys, values, held = self.keys[indices], self.values[indices], self.keys.shape[-2]
        if self._buffers is None or len(indices) > len(self.keys):
            self._keep(keys, values, len(indices))
            return
        # fewer rows stay in the room that there is: new memory costs more than what is copied
        self._buffers = self._buffers[0][: len(indices)], self._buffers[1][: len(indices)]
        self.keys, self.values = self._buffers[0][:, :, :held], self._buffers[1][:, :, :held]
        self.keys.copy_(keys)
        self.values.copy_(values)

    def _keep(self, keys: Tensor, values: Tensor, rows: int) -> None:
        """Make room behind what is held."""
        held = keys.shape[-2]
        capacity = held + self.room if self._buffers is None else self._buffers[0].shape[-2]
        made = [part.new_empty(rows, part.shape[1], capacity, part.shape[3]) for part in (keys, values)]
        if held:
            made[0][:, :, :held], made[1][:, :, :held] = keys, values
        self._buffers = made[0], made[1]
        self.keys, self.values = made[0][:, :, :held], made[1][:, :, :held]


class PromptCache(DynamicCache):
    """What a model remembers of some prompts, to be handed out to the attempts at them."""

    def hand_out(self, owner: Tensor) -> None:
        """Go on with attempts [R] at the prompts `owner`."""
        self.batch_select_indices(owner)

    def misread(self) -> bool:
        """Whether some layer's attention did not look at the prompts in the last step."""
        return False

    def unshare(self) -> None:
        """Copy the prompts to their attempts after all, and forget the attempts' own tokens."""


class RoomyCache(PromptCache):
    """A cache of roomy layers, added as the model reaches them.

    Args:
        room: tokens that an attempt may have.
        shares: whether the model's attention looks for prompts that are held once.
    """

    layers: list[RoomyLayer]  # type: ignore[assignment]

    def __init__(self, room: int, shares: bool = False):
        super().__init__()
        self.layer_class_to_replicate = lambda: RoomyLayer(room)  # type: ignore[assignment]
        self.shares = shares

    def hand_out(self, owner: Tensor) -> None:
        prompts = self.layers[0].keys.shape[0]
        if self.shares and self.get_seq_length() >= SHARED_FROM and len(owner) > prompts:
            for layer in self.layers:
                layer.share(owner)
        else:
            super().hand_out(owner)

    def grow(self, new: int) -> list[Tensor]:
        """Hold `new` more tokens, yet to be written: every layer's keys, values and, if held once, prompts."""
        held = []
        for layer in self.layers:
            layer.grow(new)
            held += [layer.keys, layer.values]
            held += [] if layer.prefix is None else [layer.prefix.keys, layer.prefix.values]
        return held

    def misread(self) -> bool:
        return any(layer.prefix is not None and not layer.prefix.read for layer in self.layers)

    def unshare(self) -> None:
        for layer in self.layers:
            if layer.prefix is not None:
                layer.unshare()


def empty_cache(config: Any, room: int) -> PromptCache:
    """A cache for prompts and `room` further tokens. Architectures with other states than keys and values get theirs.

    Args:
        config: of the transformers model.
    """
    text = config.get_text_config(decoder=True)
    types = set(getattr(text, "layer_types", None) or ATTENTION)
    return RoomyCache(room, text._attn_implementation == NAME) if types <= ATTENTION else PromptCache(config=config)
