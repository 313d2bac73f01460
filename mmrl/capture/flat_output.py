"""Flatten a policy's output to named tensors, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from mmrl.core.batch import strip_prefix
from mmrl.core.types import PolicyOutput


def flatten_output(out: PolicyOutput) -> dict[str, Tensor]:
    """Name every tensor of an output: "extra.<name>" for `extra`, "<pass>/<name>" for further forward passes."""
    values = {} if out.values is None else {"values": out.values}
    extra = {f"extra.{name}": part for name, part in out.extra.items()}
    others = {
        f"{other}/{name}": part for other, output in out.others.items() for name, part in flatten_output(output).items()
    }
    return {"logprobs": out.logprobs, "entropy": out.entropy, **values, **extra, **others}


def unflatten_output(parts: Mapping[str, Tensor]) -> PolicyOutput:
    """Build the output from its named tensors: the inverse of `flatten_output`."""
    main_parts = {name: part for name, part in parts.items() if "/" not in name}
    extra = {name.removeprefix("extra."): part for name, part in main_parts.items() if name.startswith("extra.")}
    passes = dict.fromkeys(name.partition("/")[0] for name in parts if "/" in name)
    others = {name: unflatten_output(strip_prefix(name, parts)) for name in passes}
    return PolicyOutput(main_parts["logprobs"], main_parts["entropy"], main_parts.get("values"), extra, others)


def join_outputs(outs: Sequence[PolicyOutput]) -> PolicyOutput:
    """Concatenate the rows of several outputs with equal numbers of choices."""
    values = [out.values for out in outs if out.values is not None]
    return PolicyOutput(
        torch.cat([out.logprobs for out in outs]),
        torch.cat([out.entropy for out in outs]),
        torch.cat(values) if values else None,
        {name: torch.cat([out.extra[name] for out in outs]) for name in outs[0].extra},
        {name: join_outputs([out.others[name] for out in outs]) for name in outs[0].others},
    )
