"""Which tensor of a checkpoint goes where in a running vLLM model, asked of the model's own loading code.

vLLM fuses, renames, pads and skips. Its `load_weights` is run on tensors without data, with a recorder in the place of
every parameter's loader: what it would do is known before anything is touched, because a transfer that fails half-way
leaves an unusable model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mmrl.engines.vllm.factors import Weights


@dataclass
class Layout:
    """What loading a set of tensors would do."""

    parts: dict[str, list[str]] = field(default_factory=dict)  # held tensor: the checkpoint tensors that it is made of
    ignored: list[str] = field(default_factory=list)  # checkpoint tensors that the model does not look at
    problems: list[str] = field(default_factory=list)  # why they cannot be loaded, empty when they can


def headers(path: Path) -> dict[str, Tensor]:
    """The tensors that a transfer from this file or folder gives, by name and without data."""
    with Weights(path) as weights:
        return {name: torch.empty(weights.shape(name), dtype=weights.dtype(name), device="meta") for name in weights}


def rename_for_model(model: nn.Module, weights: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """Rename tensors to the names that this model's loading code accepts.

    Versions of transformers and vLLM differ in wrappers: `vision_tower.embeddings` in a checkpoint is
    `vision_tower.vision_model.embeddings` in the model. Where a name leads nowhere in a module that is nothing but a
    wrapper, the wrapped module is put in between.
    """
    for name, tensor in weights:
        yield _through_wrapper(model, name), tensor


def _through_wrapper(model: nn.Module, name: str) -> str:
    mapper: Any = getattr(model, "hf_to_vllm_mapper", None)
    path = (mapper.get_rename_mapper().map_name(name) if mapper is not None else None) or name
    here: Any = model
    parts = path.split(".")
    for i, part in enumerate(parts):
        if (inside := _child(here, part)) is None:
            wrapped = list(here._modules)
            rest = ".".join(parts[i:])
            if len(wrapped) != 1 or here._parameters or not name.endswith(rest):
                return name
            return f"{name.removesuffix(rest)}{wrapped[0]}.{rest}"
        here = inside
        if isinstance(here, Tensor):
            return name
    return name


def _child(module: nn.Module, part: str) -> nn.Module | Tensor | None:
    for kind in (module._modules, module._parameters, module._buffers):
        if (found := kind.get(part)) is not None:
            return found
    return None


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The tensors that the model runs on, by vLLM's names: parameters and saved buffers, tied ones under each name."""
    return {name: t for name, t in model.state_dict(keep_vars=True).items() if isinstance(t, Tensor)}


def layout(model: Any, sources: Mapping[str, Tensor]) -> Layout:
    """What `model.load_weights` would do with tensors of these names and shapes. Changes nothing.

    Args:
        sources: tensors on the device "meta", by the checkpoint's names.
    """
    out = Layout()
    targets = model_tensors(model)
    owners = {id(t): name for name, t in reversed(targets.items())}  # a tied tensor goes by its first name
    names = {t.untyped_storage()._cdata: name for name, t in sources.items()}
    took: dict[str, dict[str, None]] = {owner: {} for owner in owners.values()}
    current = ""

    def iterate_weights() -> Iterator[tuple[str, Tensor]]:
        nonlocal current
        for current, tensor in sources.items():
            yield _through_wrapper(model, current), tensor

    def recorder(owner: str) -> Any:
        def record(*args: Any, **kwargs: Any) -> bool:
            tensors = [a for a in [*args, *kwargs.values()] if isinstance(a, Tensor) and a.device.type == "meta"]
            # a view shares the storage of its source; what was computed from it came last
            found = [names[t.untyped_storage()._cdata] for t in tensors if t.untyped_storage()._cdata in names]
            took[owner][found[0] if found else current] = None
            return True

        return record

    with _loaders(targets, {id(t): recorder(name) for name, t in targets.items() if owners[id(t)] == name}):
        try:
            model.load_weights(iterate_weights())
        except Exception as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            out.problems.append(f"{current}: {lines[0][:300]}")
            return out
    for name, tensor in targets.items():
        parts = list(took[owners[id(tensor)]])
        if parts:
            out.parts[name] = parts
            out.problems += _misfits(model, name, tensor, {part: sources[part] for part in parts})
        elif isinstance(tensor, nn.Parameter):
            out.problems.append(f"{name} of the model is given by no tensor")
    used = {part for parts in took.values() for part in parts}
    out.ignored = [name for name in sources if name not in used]
    return out


class _loaders:
    """Inside, the tensors have other loaders; afterwards what they had."""

    def __init__(self, targets: Mapping[str, Tensor], loaders: Mapping[int, Any]):
        self.loaders = {id(t): (t, getattr(t, "weight_loader", None), loaders[id(t)]) for t in targets.values()}

    def __enter__(self) -> None:
        for tensor, _, loader in self.loaders.values():
            tensor.weight_loader = loader  # type: ignore[attr-defined]

    def __exit__(self, *_: object) -> None:
        for tensor, before, _ in self.loaders.values():
            if before is None:
                del tensor.weight_loader  # type: ignore[attr-defined]
            else:
                tensor.weight_loader = before  # type: ignore[attr-defined]


def _misfits(model: nn.Module, name: str, tensor: Tensor, parts: Mapping[str, Tensor]) -> list[str]:
    """Why these parts do not fill the tensor."""
    rows, shown = _rows(model, name, tensor), ", ".join(f"{part} {list(t.shape)}" for part, t in parts.items())
    if tensor.numel() == 0:
        return [f"{name} of the model is empty: vLLM has packed it away. Start it with load format 'mmrl'"]
    wanted = [rows, *tensor.shape[1:]] if tensor.dim() else []
    count = 1
    for size in wanted:
        count *= size
    count = getattr(tensor, "weight_loader_numel", count)
    same_width = all(t.dim() != tensor.dim() or t.shape[1:] == tensor.shape[1:] for t in parts.values())
    if sum(t.numel() for t in parts.values()) == count and same_width:
        return []
    return [f"{name} of the model is {wanted}, which {shown} cannot fill"]


def _rows(model: nn.Module, name: str, tensor: Tensor) -> int:
    """Rows that a checkpoint fills: vocabularies are padded in vLLM."""
    if not tensor.dim():
        return 1
    owner = model.get_submodule(name.rpartition(".")[0])
    return getattr(owner, "org_vocab_size", tensor.shape[0])
