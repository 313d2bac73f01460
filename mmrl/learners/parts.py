"""A policy's output as named tensors, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from mmrl.named import under
from mmrl.types import PolicyOutput


def parts_of(out: PolicyOutput) -> dict[str, Tensor]:
    """Every tensor by name: what is in `extra` as "extra.<name>", what other passes gave as "<pass>/<name>"."""
    values = {} if out.values is None else {"values": out.values}
    extra = {f"extra.{name}": part for name, part in out.extra.items()}
    others = {f"{other}/{name}": part for other, made in out.others.items() for name, part in parts_of(made).items()}
    return {"logprobs": out.logprobs, "entropy": out.entropy, **values, **extra, **others}


def output_of(parts: Mapping[str, Tensor]) -> PolicyOutput:
    """The output that has these parts."""
    own = {name: part for name, part in parts.items() if "/" not in name}
    extra = {name.removeprefix("extra."): part for name, part in own.items() if name.startswith("extra.")}
    passes = dict.fromkeys(name.partition("/")[0] for name in parts if "/" in name)
    others = {name: output_of(under(name, parts)) for name in passes}
    return PolicyOutput(own["logprobs"], own["entropy"], own.get("values"), extra, others)


def join_outputs(outs: Sequence[PolicyOutput]) -> PolicyOutput:
    """The rows of several passes with equal numbers of choices, one after the other."""
    values = [out.values for out in outs if out.values is not None]
    return PolicyOutput(
        torch.cat([out.logprobs for out in outs]),
        torch.cat([out.entropy for out in outs]),
        torch.cat(values) if values else None,
        {name: torch.cat([out.extra[name] for out in outs]) for name in outs[0].extra},
        {name: join_outputs([out.others[name] for out in outs]) for name in outs[0].others},
    )
