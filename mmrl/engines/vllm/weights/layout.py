"""Map checkpoint tensors to the tensors of a running vLLM model, by the model's own loading code.

vLLM fuses, renames, pads and skips tensors. Its `load_weights` is run on tensors without data, with a recorder in place
of every parameter's loader. So mismatches are found before a transfer, because one that fails half-way leaves an
unusable model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mmrl.engines.vllm.weights.factors import Weights

IN_MEMORY = "tensors"  # in place of the path of a file


@dataclass
class WeightLayout:
    """Result of loading a set of tensors, found without loading them."""

    parts: dict[str, list[str]] = field(default_factory=dict)  # model tensor -> checkpoint tensors that it is made of
    ignored: list[str] = field(default_factory=list)  # checkpoint tensors that the model ignores
    problems: list[str] = field(default_factory=list)  # reasons why they cannot be loaded


def headers(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file or folder by name, without data."""
    with Weights(path) as weights:
        return headers_of(weights)


def headers_of(weights: Weights) -> dict[str, Tensor]:
    """Return open tensors by name, without data."""
    return {name: torch.empty(weights.shape(name), dtype=weights.dtype(name), device="meta") for name in weights}


def rename_for_model(model: nn.Module, weights: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """Rename tensors to the names that this model's loading code accepts.

    Versions of transformers and vLLM differ in wrapper modules: `vision_tower.embeddings` in a checkpoint is
    `vision_tower.vision_model.embeddings` in the model. If a name is not found in a pure wrapper, the name of the
    wrapped module is inserted.
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
            if parts[i - 1] == "experts":
                return name  # vLLM's experts have a loader of their own, which knows the checkpoint's names
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
        if (child := kind.get(part)) is not None:
            return child
    return None


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return the model's parameters and saved buffers by vLLM's names, tied ones under each name."""
    return {name: t for name, t in model.state_dict(keep_vars=True).items() if isinstance(t, Tensor)}


def layout(model: Any, sources: Mapping[str, Tensor]) -> WeightLayout:
    """Find what `model.load_weights` would do with tensors of these names and shapes, without changing the model.

    Args:
        sources: tensors on the device "meta", by the checkpoint's names.
    """
    out = WeightLayout()
    targets = model_tensors(model)
    owners = {id(t): name for name, t in reversed(targets.items())}  # tied tensors are recorded under the first name
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
            # a view shares the storage of its source; a computed tensor comes from the last source
            matches = [names[t.untyped_storage()._cdata] for t in tensors if t.untyped_storage()._cdata in names]
            took[owner][matches[0] if matches else current] = None
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
    """Replace the loaders of tensors inside the context, and restore them after it."""

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
    """List the reasons why these parts do not fill the tensor."""
    rows, text = _rows(model, name, tensor), ", ".join(f"{part} {list(t.shape)}" for part, t in parts.items())
    if tensor.numel() == 0:
        return [f"{name} of the model is empty: vLLM has packed it away. Start it with load format 'mmrl'"]
    shape = [rows, *tensor.shape[1:]] if tensor.dim() else []
    count = 1
    for size in shape:
        count *= size
    count = getattr(tensor, "weight_loader_numel", count)
    same_width = all(t.dim() != tensor.dim() or t.shape[1:] == tensor.shape[1:] for t in parts.values())
    if sum(t.numel() for t in parts.values()) == count and same_width:
        return []
    return [f"{name} of the model is {shape}, which {text} cannot fill"]


def _rows(model: nn.Module, name: str, tensor: Tensor) -> int:
    """Return the number of rows that a checkpoint fills; vLLM pads vocabularies."""
    if not tensor.dim():
        return 1
    owner = model.get_submodule(name.rpartition(".")[0])
    return getattr(owner, "org_vocab_size", tensor.shape[0])
