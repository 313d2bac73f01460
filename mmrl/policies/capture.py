"""A decode step without the Python of the model: its operations, recorded once and replayed on other rows."""

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

from mmrl.policies.cache import RoomyCache
from mmrl.policies.prefix_attention import Prefix
from mmrl.recorded import LEAVING

log = logging.getLogger(__name__)

STEPS = 16  # of the dtype's precision by which replayed logits may differ; the operations are the same ones


class Capture:
    """The recorded decode steps of one model, each with where it was found to say what the model says.

    The operations refer to the weights and not to their values, so a record lasts while training changes them. What
    depends on sizes is recorded as such. Python that looks at values is refused, and Python that looks at sizes may
    have branched: a record is believed at lengths of the cache where it was compared, and compared in every rollout.
    """

    def __init__(self) -> None:
        self.model: Any = None
        self.records: dict[tuple, Any] = {}  # None where the model's own code runs
        self.believed: set[tuple] = set()

    def __deepcopy__(self, memo: dict) -> Capture:
        return Capture()

    def __reduce__(self) -> tuple:
        return Capture, ()

    def step(self, model: nn.Module) -> Step:
        """What runs a transformers model in one rollout."""
        if model is not self.model:
            self.model, self.records, self.believed = model, {}, set()
        return Step(self, model)

    def record(self, key: tuple, tensors: list[Tensor]) -> Callable[..., Tensor] | None:
        """The operations for inputs of this kind, or None where the model does not let itself be recorded."""
        if key not in self.records:
            try:
                self.records[key] = _recorded(_Bare(self.model, key), tensors)
            except Exception as error:  # whatever code of an architecture, or of torch, says about it
                self.refuse(key, str(error).strip().split("\n")[0])
        return self.records[key]

    def refuse(self, key: tuple, reason: str) -> None:
        log.warning("decoding runs the model's own code at each token: %s", reason)
        self.records[key] = None


class Step:
    """Runs the model on the first rows, and goes on without its code where that was found to be the same."""

    def __init__(self, capture: Capture, model: nn.Module):
        self.capture, self.model = capture, model
        self.calls = 0
        self.possible = _recordable(model)
        self.compared = False

    def __call__(self, inputs: Mapping[str, Any], mask: Tensor | None, positions: Tensor, cache: Any) -> Tensor:
        self.calls += 1
        # the first call reads the prompts, and the second shows whether the model finds them in the cache
        if self.calls < 3 or not self.possible or not (isinstance(cache, RoomyCache) and cache.shares):
            return logits_of(self.model, inputs, mask, positions, cache)
        ids, prefix = inputs["input_ids"], cache.layers[0].prefix
        key = prefix is not None, mask is not None
        # a single row broadcasts: it is a case of its own
        regimes = {(*key, "tokens", cache.get_seq_length()), (*key, "single", len(ids) == 1)}
        if self.compared and regimes <= self.capture.believed:
            return self.capture.records[key](*_tensors(ids, mask, positions, cache.grow(1), prefix))
        expected = logits_of(self.model, inputs, mask, positions, cache)
        held = cache.grow(0)
        newest = [part[:, :, -1:].clone() for part in held]  # a record writes there too
        tensors = _tensors(ids, mask, positions, held, prefix)
        record = self.capture.record(key, tensors)
        if record is not None:
            found = (record(*tensors) - expected).abs().max()
            if not found <= STEPS * torch.finfo(expected.dtype).eps * max(1.0, float(expected.abs().max())):
                self.capture.refuse(key, f"replayed logits differ by {float(found):.2g}")
        if self.capture.records[key] is None:
            self.possible = False
            for part, own in zip(held, newest):
                part[:, :, -1:] = own
            return expected
        self.capture.believed |= regimes
        self.compared = True
        return expected


def _tensors(ids: Tensor, mask: Tensor | None, positions: Tensor, held: list[Tensor], prefix: Prefix | None) -> list:
    """All that a step reads, in the order in which `_Bare` takes it."""
    shared = [] if prefix is None else [prefix.slot, prefix.row]
    return [ids, positions, *([] if mask is None else [mask[:, None, None].bool()]), *shared, *held]


class _Bare(nn.Module):
    """The model with its cache as plain tensors: ids, positions, mask?, places of the prompts?, keys and values."""

    def __init__(self, model: nn.Module, key: tuple):
        super().__init__()
        self.model = model
        self._prefixed, self._masked = key
        self.training = model.training

    def forward(self, ids: Tensor, positions: Tensor, *tensors: Tensor) -> Tensor:
        rest = list(tensors)
        mask = rest.pop(0) if self._masked else None
        places = (rest.pop(0), rest.pop(0)) if self._prefixed else None
        size = 4 if self._prefixed else 2
        cache = DynamicCache()
        cache.layers = [_Held(rest[i : i + size], places) for i in range(0, len(rest), size)]
        return logits_of(self.model, {"input_ids": ids}, mask, positions, cache)


class _Held(DynamicLayer):
    """Keys and values whose last place is still to be written, and the prompts that stand before them."""

    keys: Any
    values: Any

    def __init__(self, held: list[Tensor], places: tuple[Tensor, Tensor] | None):
        super().__init__()
        self.keys, self.values, *prompt = held
        self.prefix = Prefix(prompt[0], prompt[1], places=places) if places else None
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


def _recordable(model: Any) -> bool:
    """Whether records of it were found to pay and last: weights that stay where they are, on a CPU."""
    text = model.config.get_text_config(decoder=True)
    kinds = set(getattr(text, "layer_types", None) or ())
    # a window's mask is made by the model, in another way once there are more tokens than the window
    wide = kinds <= {"full_attention"} if kinds else getattr(text, "sliding_window", None) is None
    plain = all(type(weight) is nn.Parameter and weight.device.type == "cpu" for weight in model.parameters())
    return wide and plain and not model.training and not torch.is_autocast_enabled("cpu")


def _recorded(bare: _Bare, tensors: list[Tensor]) -> Callable[..., Tensor]:
    """Trace it, once that is known to lose nothing; errors say what would be lost."""
    with _Values():
        bare(*tensors)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        made = torch.jit.trace(bare, tuple(tensors), check_trace=False)
    for warning in told:
        if "Python list" in str(warning.message) or "NumPy array" in str(warning.message):
            raise ValueError(f"its code reads values: {str(warning.message).splitlines()[0]}")
    for node in made.inlined_graph.nodes():
        held = node.output().toIValue() if node.kind() == "prim::Constant" else None
        if isinstance(held, Tensor) and held.numel() > 1:
            raise ValueError(f"it would be recorded with numbers of now, a tensor of {tuple(held.shape)}")
    return made


class _Values(TorchDispatchMode):
    """Refuses what hands values of tensors to Python, which may do other things at the next values."""

    def __torch_dispatch__(self, operation: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if LEAVING & set(operation.tags):
            raise ValueError(f"its code depends on values: {operation}")
        return operation(*args, **(kwargs or {}))
