"""Check the rotary positions of a model: with frequencies that are not finite its attention reads nothing."""

from __future__ import annotations

from typing import Any

import torch

KEYS = ("rope_theta", "rope_parameters")


def check_rotary(model: Any) -> Any:
    """Refuse a model whose rotary frequencies are negative or not finite, or more than its heads have; returns it.

    transformers computes them from any numbers, and torch's attention over scores that are NaN is finite.

    Raises:
        ValueError: with the names of the configuration that the frequencies are computed from.
    """
    for name, module in model.named_modules():
        for key, frequencies in module.named_buffers(recurse=False):
            if not key.endswith("inv_freq") or frequencies.is_meta:
                continue
            if not bool((frequencies.isfinite() & (frequencies >= 0)).all()):
                values = {key: value for key in KEYS if (value := vars(model.config).get(key)) is not None}
                raise ValueError(
                    f"policy.config: the rotary frequencies {key} of {name} are {_format(frequencies)}, which must be "
                    f"finite and not negative; they come from {values}, so change rope_theta and factor"
                )
            # a configuration whose layers differ refuses to be asked for an attribute of all
            size = vars(getattr(module, "config", model.config)).get("head_dim")
            if isinstance(size, int) and size % 2 and 2 * frequencies.numel() == size + 1:
                raise ValueError(
                    f"policy.config: head_dim={size} is odd, and rotary positions turn pairs of numbers; change it"
                )
    return model


def _format(frequencies: torch.Tensor) -> str:
    return f"[{', '.join(f'{value:g}' for value in frequencies.flatten()[:4].tolist())}, ...]"
