"""Build policies without weights: on the meta device, and then as tensors that have a device but no content."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from mmrl.capture.stepping import disable_nvml_search
from mmrl.policies.base import Policy
from mmrl.policies.quantization import QuantizedLinear
from mmrl.policies.text.policy import TextPolicy
from mmrl.policies.text.tiny import character_tokenizer


def build_on_meta(kind: type[Policy], arguments: Mapping[str, Any]) -> Policy:
    """Build a policy on the meta device; of a checkpoint, its configuration and tokenizer alone are read.

    A text policy whose folder has no tokenizer gets the character tokenizer, and `tokenizer_missing` is set.
    """
    with torch.device("meta"):
        try:
            return kind(**arguments)
        except ValueError:
            if not issubclass(kind, TextPolicy) or arguments.get("path") is None:
                raise
            stand_in = type(kind.__name__, (kind,), {"load_processor": lambda self, path: character_tokenizer()})
            try:
                policy = stand_in(**arguments)
            except ValueError:
                policy = None
            if policy is None:
                raise
    policy.tokenizer_missing = True  # type: ignore[assignment]
    return policy


def fake_weights(module: nn.Module) -> None:
    """Replace the tensors of a module on the meta device, in place, by CPU tensors without content.

    Operations on them compute shapes and dtypes with the kernels' rules of a CPU. Quantised layers become ordinary
    ones, which they are in every pass.
    """
    disable_nvml_search()  # which would be made at every operation
    _replace_quantized(module)
    mode, copies = FakeTensorMode(allow_non_fake_inputs=True), dict[int, Tensor]()
    for part in module.modules():
        for tensors in (part._parameters, part._buffers):
            for name, tensor in tensors.items():
                if tensor is None:
                    continue
                if id(tensor) not in copies:
                    copies[id(tensor)] = _fake(tensor, mode)
                tensors[name] = copies[id(tensor)]  # type: ignore[assignment]


def _fake(tensor: Tensor, mode: FakeTensorMode) -> Tensor:
    with mode:
        empty = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
    return nn.Parameter(empty, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else empty


def _replace_quantized(module: nn.Module) -> None:
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, QuantizedLinear):
                with torch.device("meta"):
                    bias = child.bias is not None
                    linear = nn.Linear(child.in_features, child.out_features, bias, dtype=child.dtype)
                setattr(parent, name, linear.requires_grad_(False))
