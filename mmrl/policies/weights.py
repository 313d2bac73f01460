"""Read weights from files and check that they are complete, finite and fit the network."""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from mmrl.files.foreign import check_files, check_regular
from mmrl.files.strict_json import kind, quote
from mmrl.files.weight_names import current_names

_LONGEST_HEADER = 10**8  # bytes of the header of a safetensors file, as in the format's description
_SHOWN = 3  # maximum names in a message


def read_weights(path: Path, remedy: str) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file.

    Args:
        path: of the file.
        remedy: what to do about a broken one, the end of the message.
    """
    check_regular(path, remedy)
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError, RuntimeError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{path}: not a readable safetensors file ({reason[:200]}); {remedy}") from error


def check_folder(folder: str | Path) -> None:
    """Refuse a checkpoint's folder with incomplete safetensors files or pickled weights.

    Only the headers are read. Other names are ignored, and so are folders without config.json, which hold anything.
    """
    folder = Path(folder)
    if not (folder / "config.json").exists():
        return
    remedy = "save the policy there again, or copy the folder again"
    check_files(folder, remedy)
    files = sorted(folder.glob("*.safetensors"))
    # pickled weights may run code when they are read
    pickled = sorted(file.name for kind in ("*.bin", "*.pt", "*.pth", "*.ckpt") for file in folder.glob(kind))
    if not files and pickled:
        raise ValueError(
            f"policy.path={folder}: its weights are pickled ({pickled[0]}), and a pickle can run any program when it "
            "is read; convert them to model.safetensors with save_pretrained of a program that you trust"
        )
    # length of the header in 8 bytes, the header in JSON, then the weights to the end of the file
    for file in files:
        check_regular(file, remedy)
        with open(file, "rb") as opened:
            size, start = file.stat().st_size, opened.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else size
            text = opened.read(length) if 8 + length <= size and length <= _LONGEST_HEADER else b""
        try:
            header = json.loads(text)
            ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
            raise ValueError(
                f"{file}: not a safetensors file of {size} bytes, its header is broken; {remedy}"
            ) from error
        if wrong := [end for end in ends if type(end) is not int]:
            raise ValueError(f"{file}: its header says that a weight ends at {quote(wrong[0])}; {remedy}")
        if 8 + length + max(ends, default=0) != size:
            raise ValueError(
                f"{file}: {size} bytes, its header says {8 + length + max(ends, default=0)}: the file was cut; {remedy}"
            )


def check_finite(tensors: Iterable[tuple[str, Tensor]], place: str) -> None:
    """Refuse weights that are not finite; the error names the first tensor."""
    for name, tensor in tensors:
        if tensor.is_meta or not tensor.is_floating_point():
            continue
        broken = int((~torch.isfinite(tensor)).sum())
        if broken:
            raise ValueError(
                f"{place}: weight {name!r} has {broken} of {tensor.numel()} numbers that are not finite; take an "
                "earlier checkpoint"
            )


def checkpoint_weights(saved: Any, place: str, prefix: str = "policy.") -> dict[str, Tensor]:
    """Return the policy's weights of a checkpoint of `mmrl fit`, without prefix; refuse a checkpoint without them.

    Args:
        saved: content of the file.
        place: of the file, for messages.
        prefix: of the names of the policy's weights.
    """
    remedy = "give a .ckpt file of a run's checkpoints folder"
    if not isinstance(saved, Mapping):
        raise ValueError(f"{place} holds {kind(saved)}, not a checkpoint of mmrl fit; {remedy}")
    state = saved.get("state_dict")
    if not isinstance(state, Mapping):
        content = "no weights (state_dict)" if "state_dict" not in saved else f"{kind(state)} as its state_dict"
        raise ValueError(f"{place} holds {content}, so it is no checkpoint of mmrl fit; {remedy}")
    wrong = [name for name, value in state.items() if not (isinstance(name, str) and isinstance(value, Tensor))]
    if wrong:
        raise ValueError(f"{place}: {wrong[0]!r} of its state_dict is {kind(state[wrong[0]])}, not a tensor; {remedy}")
    weights = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
    if not weights:
        raise ValueError(f"{place}: none of its {len(state)} weights is of a policy; {remedy}")
    return weights


def check_fits(
    own: Mapping[str, Tensor],
    given: Mapping[str, Tensor],
    place: str,
    may_lack: Collection[str] = (),
    may_exceed: Collection[str] = (),
) -> None:
    """Refuse weights that do not fit this network: other names, other shapes, values that are not finite.

    Args:
        own: state_dict of the network.
        given: of the file.
        place: of the file, for messages.
        may_lack: beginnings of names that the file may lack.
        may_exceed: beginnings of names that the file may have in excess.
    """
    missing = [name for name in own if name not in given and not name.startswith(tuple(may_lack))]
    extra = [name for name in given if name not in own and not name.startswith(tuple(may_exceed))]
    shapes = [
        f"{name} {list(given[name].shape)} (here {list(own[name].shape)})"
        for name in given
        if name in own and given[name].shape != own[name].shape
    ]
    problems = (("missing", missing), ("not of this policy", extra), ("of another shape", shapes))
    lines = [f"{len(names)} {what}: {_few(names)}" for what, names in problems if names]
    if lines:
        raise ValueError(
            f"the weights of {place} do not fit the policy: {'; '.join(lines)}; take the policy settings that "
            "they were trained with"
        )
    check_finite(((name, tensor) for name, tensor in given.items() if name in own), place)


def fill(module: nn.Module, given: Mapping[str, Tensor], place: str, optional: Collection[str] = ()) -> None:
    """Load weights into the module after `check_fits`; optional weights of another shape or name are left out.

    Weights under names of an earlier version are renamed. A module on the meta device stays without weights.
    """
    if any(parameter.is_meta for parameter in module.parameters()):
        return
    state, given = module.state_dict(), current_names(module, given)
    check_fits(state, given, place, optional, optional)
    module.load_state_dict({name: tensor for name, tensor in given.items() if name in state}, strict=False)


def _few(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
