"""CapturedDecoding: replay the operations of a decode step without the model's Python code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from mmrl.capture.graph import CapturedGraph
from mmrl.capture.tracing import Tensors, trace_any_size
from mmrl.policies.text.cache import PreallocatedCache
from mmrl.policies.text.generation import next_logits
from mmrl.policies.text.packing.prefix_attention import Prefix

WARM_UP = 2  # the first call reads the prompts, the second shows whether the model finds them in the cache


class CapturedDecoding:
    """The captured decode steps of one model.

    Sizes are captured as variables, so one graph serves all lengths of the cache. Code that reads sizes may have
    branched, so it is used at lengths where it gave the model's own logits bit for bit, and compared again in every
    rollout.
    """

    def __init__(self) -> None:
        self.model: Any = None
        self.graph = CapturedGraph("decoding", min_calls=0)

    def __deepcopy__(self, memo: dict) -> CapturedDecoding:
        return CapturedDecoding()

    def __reduce__(self) -> tuple:
        return CapturedDecoding, ()

    def __call__(self, model: nn.Module) -> Callable[..., Tensor]:
        """`next_logits` of a transformers model for one rollout."""
        if model is not self.model:
            self.model, self.graph = model, CapturedGraph("decoding", min_calls=0)
        self.graph.revalidate()
        return _DecodeStep(self.graph, model) if _can_capture(model) else partial(next_logits, model)


class _DecodeStep:
    """The decode step of one rollout."""

    def __init__(self, graph: CapturedGraph, model: nn.Module):
        self.graph, self.model, self.calls = graph, model, 0

    def __call__(self, inputs: Mapping[str, Any], mask: Tensor | None, positions: Tensor, cache: Any) -> Tensor:
        self.calls += 1
        shares = isinstance(cache, PreallocatedCache) and cache.share_prefixes
        if self.calls <= WARM_UP or not shares:
            return next_logits(self.model, inputs, mask, positions, cache)
        ids, prefix = inputs["input_ids"], cache.layers[0].prefix
        length = cache.get_seq_length()
        tensors = _name_tensors(ids, mask, positions, cache.grow(1), prefix)

        def compute(_: Tensors) -> Tensors:
            cache.grow(-1)  # the model extends it by itself
            return {"out": next_logits(self.model, inputs, mask, positions, cache)}

        kind = prefix is not None, mask is not None
        # a single row broadcasts: it is a case of its own
        cases = frozenset({("tokens", length), ("single", len(ids) == 1)})
        trace = partial(_trace, self.model, kind, tensors)
        return self.graph.run(compute, trace, tensors, kind, cases)["out"]


def _trace(model: nn.Module, kind: tuple[bool, bool], tensors: Tensors) -> Callable[[Tensors], Tensors]:
    for part in model.modules():
        if getattr(part, "loss_type", "") is None:
            part.loss_type = "ForCausalLM"  # transformers' default, which it warns of when torch reads all properties
    return trace_any_size(_TensorCacheModel(model, *kind), tensors)


def _name_tensors(
    ids: Tensor, mask: Tensor | None, positions: Tensor, cache_tensors: list[Tensor], prefix: Any
) -> Tensors:
    """All inputs of a captured step, in the order of `_TensorCacheModel.forward`."""
    masks = [] if mask is None else [mask[:, None, None].bool()]
    shared = [] if prefix is None else [prefix.slot, prefix.row]
    return {str(k): part for k, part in enumerate([ids, positions, *masks, *shared, *cache_tensors])}


class _TensorCacheModel(nn.Module):
    """The model with its cache as plain tensors: ids, positions, mask?, slots of the prompts?, keys and values."""

    def __init__(self, model: nn.Module, prefixed: bool, masked: bool):
        super().__init__()
        self.model = model
        self._prefixed, self._masked = prefixed, masked
        self.training = model.training

    def forward(self, ids: Tensor, positions: Tensor, *tensors: Tensor) -> Tensor:
        rest = list(tensors)
        mask = rest.pop(0) if self._masked else None
        slots = (rest.pop(0), rest.pop(0)) if self._prefixed else None
        size = 4 if self._prefixed else 2
        cache = DynamicCache()
        cache.layers = [_TensorCacheLayer(rest[i : i + size], slots) for i in range(0, len(rest), size)]
        return next_logits(self.model, {"input_ids": ids}, mask, positions, cache)


class _TensorCacheLayer(DynamicLayer):
    """Keys and values whose last position is still to be written, and the prompts before them."""

    keys: Any
    values: Any

    def __init__(self, cache_tensors: list[Tensor], slots: tuple[Tensor, Tensor] | None):
        super().__init__()
        self.keys, self.values, *prompt = cache_tensors
        self.prefix = Prefix(prompt[0], prompt[1], slots=slots) if slots else None
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        self.keys[:, :, -1:], self.values[:, :, -1:] = key_states, value_states
        if self.prefix is not None:
            self.keys.prefix = self.prefix
        return self.keys, self.values

    def get_seq_length(self) -> int:
        return self.keys.shape[-2] - 1 + (0 if self.prefix is None else self.prefix.length)


def _can_capture(model: Any) -> bool:
    """Whether capture pays and lasts for this model: full attention, and plain weights that stay on a CPU."""
    text = model.config.get_text_config(decoder=True)
    kinds = set(getattr(text, "layer_types", None) or ())
    # a window's mask is made by the model, in another way once there are more tokens than the window
    wide = kinds <= {"full_attention"} if kinds else getattr(text, "sliding_window", None) is None
    plain = all(type(weight) is nn.Parameter and weight.device.type == "cpu" for weight in model.parameters())
    return wide and plain and not model.training and not torch.is_autocast_enabled("cpu")
