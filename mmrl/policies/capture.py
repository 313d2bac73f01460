"""DecodeStep: capture the operations of a decode step once and replay them without the model's Python code."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from mmrl.policies.text.cache import PreallocatedCache
from mmrl.policies.text.packing.prefix_attention import Prefix
from mmrl.recorded import VALUE_DEPENDENT

log = logging.getLogger(__name__)

STEPS = 16  # of the dtype's precision by which replayed logits may differ; the operations are the same ones


class Capture:
    """The captured decode steps of one model, with the cache lengths at which each was verified against the model.

    The operations refer to the weights and not to their values, so a graph lasts while training changes them. Sizes are
    captured as variables. Python code that reads values is refused, and code that reads sizes may have branched: a
    graph is used at lengths of the cache where it was compared, and compared again in every rollout.
    """

    def __init__(self) -> None:
        self.model: Any = None
        self.graphs: dict[tuple, Any] = {}  # None where the model's own code runs
        self.verified: set[tuple] = set()

    def __deepcopy__(self, memo: dict) -> Capture:
        return Capture()

    def __reduce__(self) -> tuple:
        return Capture, ()

    def step(self, model: nn.Module) -> DecodeStep:
        """The decode step of a transformers model for one rollout."""
        if model is not self.model:
            self.model, self.graphs, self.verified = model, {}, set()
        return DecodeStep(self, model)

    def graph(self, key: tuple, tensors: list[Tensor]) -> Callable[..., Tensor] | None:
        """The captured operations for inputs of this kind, or None where the model cannot be captured."""
        if key not in self.graphs:
            try:
                self.graphs[key] = _trace(_TensorCacheModel(self.model, key), tensors)
            except Exception as error:  # whatever code of an architecture, or of torch, says about it
                self.refuse(key, str(error).strip().split("\n")[0])
        return self.graphs[key]

    def refuse(self, key: tuple, reason: str) -> None:
        log.warning("decoding runs the model's own code at each token: %s", reason)
        self.graphs[key] = None


class DecodeStep:
    """Runs the model on the first tokens, and its captured graph from where both were found equal."""

    def __init__(self, capture: Capture, model: nn.Module):
        self.capture, self.model = capture, model
        self.calls = 0
        self.possible = _can_capture(model)
        self.compared = False

    def __call__(self, inputs: Mapping[str, Any], mask: Tensor | None, positions: Tensor, cache: Any) -> Tensor:
        self.calls += 1
        # the first call reads the prompts, and the second shows whether the model finds them in the cache
        if self.calls < 3 or not self.possible or not (isinstance(cache, PreallocatedCache) and cache.share_prefixes):
            return logits_of(self.model, inputs, mask, positions, cache)
        ids, prefix = inputs["input_ids"], cache.layers[0].prefix
        key = prefix is not None, mask is not None
        # a single row broadcasts: it is a case of its own
        regimes = {(*key, "tokens", cache.get_seq_length()), (*key, "single", len(ids) == 1)}
        if self.compared and regimes <= self.capture.verified:
            return self.capture.graphs[key](*_tensors(ids, mask, positions, cache.grow(1), prefix))
        expected = logits_of(self.model, inputs, mask, positions, cache)
        held = cache.grow(0)
        newest = [part[:, :, -1:].clone() for part in held]  # a graph writes there too
        tensors = _tensors(ids, mask, positions, held, prefix)
        graph = self.capture.graph(key, tensors)
        if graph is not None:
            found = (graph(*tensors) - expected).abs().max()
            if not found <= STEPS * torch.finfo(expected.dtype).eps * max(1.0, float(expected.abs().max())):
                self.capture.refuse(key, f"replayed logits differ by {float(found):.2g}")
        if self.capture.graphs[key] is None:
            self.possible = False
            for part, own in zip(held, newest):
                part[:, :, -1:] = own
            return expected
        self.capture.verified |= regimes
        self.compared = True
        return expected


def _tensors(ids: Tensor, mask: Tensor | None, positions: Tensor, held: list[Tensor], prefix: Prefix | None) -> list:
    """All inputs of a captured step, in the order of `_TensorCacheModel.forward`."""
    shared = [] if prefix is None else [prefix.slot, prefix.row]
    return [ids, positions, *([] if mask is None else [mask[:, None, None].bool()]), *shared, *held]


class _TensorCacheModel(nn.Module):
    """The model with its cache as plain tensors: ids, positions, mask?, slots of the prompts?, keys and values."""

    def __init__(self, model: nn.Module, key: tuple):
        super().__init__()
        self.model = model
        self._prefixed, self._masked = key
        self.training = model.training

    def forward(self, ids: Tensor, positions: Tensor, *tensors: Tensor) -> Tensor:
        rest = list(tensors)
        mask = rest.pop(0) if self._masked else None
        slots = (rest.pop(0), rest.pop(0)) if self._prefixed else None
        size = 4 if self._prefixed else 2
        cache = DynamicCache()
        cache.layers = [_TensorCacheLayer(rest[i : i + size], slots) for i in range(0, len(rest), size)]
        return logits_of(self.model, {"input_ids": ids}, mask, positions, cache)


class _TensorCacheLayer(DynamicLayer):
    """Keys and values whose last position is still to be written, and the prompts before them."""

    keys: Any
    values: Any

    def __init__(self, held: list[Tensor], slots: tuple[Tensor, Tensor] | None):
        super().__init__()
        self.keys, self.values, *prompt = held
        self.prefix = Prefix(prompt[0], prompt[1], slots=slots) if slots else None
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        self.keys[:, :, -1:], self.values[:, :, -1:] = key_states, value_states
        if self.prefix is not None:
            self.keys.prefix = self.prefix
        return self.keys, self.values

    def get_seq_length(self) -> int:
        return self.keys.shape[-2] - 1 + (0 if self.prefix is None else self.prefix.length)


def logits_of(
    model: nn.Module, inputs: Mapping[str, Any], mask: Tensor | None, positions: Tensor, cache: Any
) -> Tensor:
    """Logits [N, V] of the next token of a transformers model."""
    out = model(
        **inputs,
        attention_mask=mask,
        position_ids=positions,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    return out.logits[:, -1]


def _can_capture(model: Any) -> bool:
    """Whether capture pays and lasts for this model: full attention, and plain weights that stay on a CPU."""
    text = model.config.get_text_config(decoder=True)
    kinds = set(getattr(text, "layer_types", None) or ())
    # a window's mask is made by the model, in another way once there are more tokens than the window
    wide = kinds <= {"full_attention"} if kinds else getattr(text, "sliding_window", None) is None
    plain = all(type(weight) is nn.Parameter and weight.device.type == "cpu" for weight in model.parameters())
    return wide and plain and not model.training and not torch.is_autocast_enabled("cpu")


def _trace(bare: _TensorCacheModel, tensors: list[Tensor]) -> Callable[..., Tensor]:
    """Trace the model after checking that a trace loses nothing; errors say what would be lost."""
    with _Values():
        bare(*tensors)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        traced = torch.jit.trace(bare, tuple(tensors), check_trace=False)
    for warning in caught:
        if "Python list" in str(warning.message) or "NumPy array" in str(warning.message):
            raise ValueError(f"its code reads values: {str(warning.message).splitlines()[0]}")
    for node in traced.inlined_graph.nodes():
        held = node.output().toIValue() if node.kind() == "prim::Constant" else None
        if isinstance(held, Tensor) and held.numel() > 1:
            raise ValueError(f"it would be recorded with numbers of now, a tensor of {tuple(held.shape)}")
    return traced


class _Values(TorchDispatchMode):
    """Refuses what hands values of tensors to Python, which may do other things at the next values."""

    def __torch_dispatch__(self, operation: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if VALUE_DEPENDENT & set(operation.tags):
            raise ValueError(f"its code depends on values: {operation}")
        return operation(*args, **(kwargs or {}))
