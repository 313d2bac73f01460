"""Extract base weights and low-rank factors of a model with adapters, by checkpoint names."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from transformers.core_model_loading import revert_weight_conversion

from mmrl.policies.quantization import QuantizedLinear, dequantize_linears

BASE, FACTOR = ".base_layer.", ".lora_"


@dataclass(frozen=True)
class Adapters:
    """Frozen base weights, and (A [r, in], B [out, r], scale) of each adapted tensor."""

    base: dict[str, Tensor]
    pairs: dict[str, tuple[Tensor, Tensor, float]]


def adapters_of(model: Any) -> Adapters:
    """Return base and factors of a `peft` model. Raises ValueError if other weights are trainable."""
    if not hasattr(model, "get_base_model"):
        raise ValueError("engine.adapters=true sends low-rank adapters, and the policy has none: give it policy.lora")
    if any(isinstance(module, QuantizedLinear) for module in model.modules()):
        model = dequantize_linears(copy.deepcopy(model))
    plain = model.get_base_model()
    # base weights without the factors, under the names of the checkpoint
    state = {name.replace(BASE, "."): t for name, t in plain.state_dict().items() if FACTOR not in name}
    for name in plain._keys_to_ignore_on_save or ():
        state.pop(name, None)
    base = revert_weight_conversion(plain, state)
    # tied weights are one tensor with several names: names by address
    owners: dict[int, list[str]] = {}
    for name, tensor in base.items():
        owners.setdefault(tensor.data_ptr(), []).append(name)
    # (A [r, in], B [out, r], scaling) by the name of the base weight
    pairs, factors = {}, set()
    for path, module in plain.named_modules():
        names = list(getattr(module, "lora_A", ()))
        if not names:
            continue
        if len(names) > 1 or not isinstance(module.get_base_layer(), nn.Linear) or module.lora_variant:
            raise ValueError(
                f"engine.adapters=true cannot send the adapter of {path}: it is not one pair of factors of a linear "
                "layer (or it is of a variant such as DoRA); engine.adapters=false folds it in before it is sent"
            )
        a, b = module.lora_A[names[0]].weight, module.lora_B[names[0]].weight
        for owner in owners.get(module.get_base_layer().weight.data_ptr(), ()):
            pairs[owner] = (a, b, float(module.scaling[names[0]]))
        factors |= {id(a), id(b)}
    # other trainable weights cannot be sent as factors
    others = [name for name, p in model.named_parameters() if p.requires_grad and id(p) not in factors]
    if others or not pairs:
        raise ValueError(
            f"engine.adapters=true sends factors of linear layers alone, but {(others or ['nothing'])[0]} learns; "
            "engine.adapters=false sends all weights"
        )
    return Adapters(base, pairs)


def without_adapters(model: Any) -> Any:
    """Return a transformers model without adapters, on a copy of the base's weights, in full precision."""
    return dequantize_linears(copy.deepcopy(model)).unload() if hasattr(model, "unload") else model
