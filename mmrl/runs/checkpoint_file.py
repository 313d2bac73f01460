"""The checkpoint file: weights and optimizer state in safetensors, the rest as plain data, a SHA-256 of each part.

A `.ckpt` file is a zip archive without compression:

    weights.safetensors    the model's state_dict
    optimizer.safetensors  tensors of the optimizers, named by their place, as in 0.state.3.exp_avg
    state.pt               everything else, read by torch.load(weights_only=True)
    manifest.json          the format's version, epoch and step, and the SHA-256 of every other part

One file, because a folder cannot be replaced by one rename; an archive, because its parts then are files that other
programs read (`unzip last.ckpt weights.safetensors`). Nothing in it is unpickled except by torch's own restricted
reader, which makes tensors, numbers, strings and containers of them.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from mmrl.files.atomic import FULL, replace_file
from mmrl.files.foreign import check_regular
from mmrl.files.pickled import PICKLED
from mmrl.files.strict_json import parse_json
from mmrl.runs.checkpoint_schema import find_bad_tree, find_violation
from mmrl.runs.tensor_file import DTYPES, write_tensors

FORMAT = "mmrl checkpoint 1"
WEIGHTS, OPTIMIZER, STATE, MANIFEST = "weights.safetensors", "optimizer.safetensors", "state.pt", "manifest.json"
PARTS = (WEIGHTS, OPTIMIZER, STATE)
_OTHER = "use another checkpoint of the run"
_MANIFEST_BYTES = 2**20
_ELSEWHERE = "tensor in safetensors"  # a dictionary with this key alone stands for the tensor of that name


class CheckpointError(ValueError):
    """A checkpoint cannot be written or must not be read; the message names the file and the remedy."""


def write_checkpoint(checkpoint: Mapping[str, Any], path: str | Path) -> None:
    """Write a checkpoint of Lightning's Trainer to `path`, atomically.

    Raises:
        CheckpointError: the file system is full; a checkpoint that was at `path` is kept.
    """
    # tensors go to files of their own, and all other state is pickled
    rest = dict(checkpoint)
    weights = rest.pop("state_dict")
    plain, aliases = _storable(weights)
    rest["state_dict"] = {name: value for name, value in weights.items() if name not in plain and name not in aliases}
    optimizer: dict[str, Tensor] = {}
    if "optimizer_states" in rest:
        rest["optimizer_states"] = _lift(rest["optimizer_states"], "", optimizer)
    writers: dict[str, Callable[[Any], Any]] = {
        WEIGHTS: lambda file: write_tensors(file, plain, aliases),
        OPTIMIZER: lambda file: write_tensors(file, optimizer, {}),
        STATE: lambda file: torch.save(rest, file),
    }
    try:
        with replace_file(path) as file, zipfile.ZipFile(file, "w") as archive:
            # hashes are made while the parts are written, and stand in the manifest at the end
            sums = {}
            for name, write in writers.items():
                with archive.open(name, "w", force_zip64=True) as part:
                    hashed = _Hashed(part)
                    write(hashed)
                    sums[name] = hashed.sha256.hexdigest()
            entries = {name: rest.get(name) for name in ("epoch", "global_step")}
            archive.writestr(MANIFEST, json.dumps({"format": FORMAT, **entries, "sha256": sums}, indent=2))
    except OSError as error:
        if error.errno not in FULL:
            raise
        note = "the checkpoint that was there is intact" if Path(path).exists() else "nothing was there before"
        raise CheckpointError(
            f"{path}: {error.strerror}, so the checkpoint was not written; {note}. Make room, then resume from it"
        ) from error


def read_checkpoint(path: str | Path, trust: bool = False) -> dict[str, Any]:
    """Read a checkpoint in the form that Lightning's Trainer takes, with tensors on the CPU.

    Args:
        path: a file of `write_checkpoint`, or one that torch.save wrote.
        trust: unpickle objects too, which can run any code that the file holds.

    Raises:
        CheckpointError: the file is damaged, is no checkpoint, or holds pickled objects and `trust` is False.
    """
    checkpoint = _read(Path(path), trust)
    if not trust and (violation := find_violation(checkpoint)):
        raise CheckpointError(f"{path}: not a checkpoint that can be read, {violation}; {_OTHER}")
    if not trust and (place := _find_pickled(checkpoint)):
        raise CheckpointError(
            f"{path} holds a pickled simulator state ({place}), and reading it can run any code that the file holds; "
            "give trust=true if you know who wrote it"
        )
    return checkpoint


def _read(path: Path, trust: bool) -> dict[str, Any]:
    if not path.exists():
        raise CheckpointError(f"{path}: no such file")
    if path.is_dir():
        raise CheckpointError(f"{path} is a sharded checkpoint, a folder; a single file is needed here")
    _check_file(path)
    try:
        with zipfile.ZipFile(path) as archive:
            content = _read_parts(archive, path, trust) if MANIFEST in archive.namelist() else None
    except CheckpointError:
        raise
    except Exception as error:
        if not isinstance(error, zipfile.BadZipFile) or _begins_as_archive(path):
            raise CheckpointError(f"{path}: not a readable checkpoint, the file is damaged ({error})") from error
        content = None  # not a zip archive, so perhaps a file of torch.save
    checkpoint = _load(path, path, trust) if content is None else content
    if violation := find_bad_tree(checkpoint):
        raise CheckpointError(f"{path}: not a checkpoint that can be read, {violation}; {_OTHER}")
    if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("state_dict"), dict):
        raise CheckpointError(f"{path}: not a readable checkpoint, it has no state_dict; give a .ckpt file of a run")
    return checkpoint


def read_weights(path: str | Path, trust: bool = False) -> dict[str, Any]:
    """Read the state_dict and the policy_contract of a checkpoint.

    A pickled simulator state is not unpickled.
    """
    checkpoint = _read(Path(path), trust)
    return {name: checkpoint[name] for name in ("state_dict", "policy_contract") if name in checkpoint}


def read_manifest(path: str | Path) -> dict[str, Any]:
    """Read epoch, step and checksums of a checkpoint file, without its tensors; empty for a file of torch.save."""
    _check_file(Path(path))
    if not zipfile.is_zipfile(path):
        return {}
    with zipfile.ZipFile(path) as archive:
        return _read_manifest(archive, Path(path)) if MANIFEST in archive.namelist() else {}


def _check_file(path: Path) -> None:
    try:
        check_regular(path, _OTHER)
    except ValueError as error:
        raise CheckpointError(str(error)) from error


def _read_manifest(archive: zipfile.ZipFile, path: Path) -> dict[str, Any]:
    """Read the manifest, a small JSON object that is not compressed."""
    part = archive.getinfo(MANIFEST)
    if part.compress_type != zipfile.ZIP_STORED or part.file_size > _MANIFEST_BYTES:
        raise CheckpointError(f"{path}: its {MANIFEST} is not one of mmrl; {_OTHER}")
    manifest = parse_json(archive.read(MANIFEST), f"{path}: {MANIFEST}", _OTHER)
    if not isinstance(manifest, dict) or not isinstance(manifest.get("sha256", {}), dict):
        raise CheckpointError(f"{path}: its {MANIFEST} is not one of mmrl; {_OTHER}")
    return manifest


# ---------------------------------------------------------------- writing


class _Hashed:
    """File that computes the SHA-256 of what is written to it."""

    def __init__(self, file: Any):
        self.file, self.sha256 = file, hashlib.sha256()

    def write(self, data: Any) -> int:
        self.sha256.update(data)
        return self.file.write(data)

    def flush(self) -> None:
        self.file.flush()


def _storable(tensors: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors that safetensors can hold, and the aliases: second name of a tied weight -> first name."""
    plain: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    places: dict[tuple, str] = {}
    for name, tensor in tensors.items():
        if not _is_plain(tensor):
            continue
        place = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.device)
        if tensor.numel() and place in places:
            aliases[name] = places[place]
            continue
        places[place], plain[name] = name, tensor
    return plain, aliases


def _is_plain(value: Any) -> bool:
    kinds = (Tensor, torch.nn.Parameter)
    return type(value) in kinds and value.layout is torch.strided and value.dtype in DTYPES


def _lift(node: Any, place: str, tensors: dict[str, Tensor]) -> Any:
    """Move the tensors of a tree to `tensors`, by their path in the tree, and return the rest."""
    if isinstance(node, dict):
        return {key: _lift(value, f"{place}.{key}" if place else str(key), tensors) for key, value in node.items()}
    if isinstance(node, list):
        return [_lift(value, f"{place}.{i}" if place else str(i), tensors) for i, value in enumerate(node)]
    if _is_plain(node) and place not in tensors:
        tensors[place] = node
        return {_ELSEWHERE: place}
    return node


# ---------------------------------------------------------------- reading


def _read_parts(archive: zipfile.ZipFile, path: Path, trust: bool) -> dict[str, Any]:
    manifest = _read_manifest(archive, path)
    if manifest.get("format") != FORMAT:
        raise CheckpointError(f"{path} has format {manifest.get('format')!r}, this version reads {FORMAT!r}")
    parts = {name: _read_part(archive, path, name, manifest) for name in PARTS}
    checkpoint = _load(io.BytesIO(parts[STATE]), path, trust)
    if violation := find_bad_tree(checkpoint):
        raise CheckpointError(f"{path}: not a checkpoint that can be read, its {STATE}: {violation}; {_OTHER}")
    if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("state_dict"), dict):
        raise CheckpointError(f"{path}: its {STATE} has no state_dict; {_OTHER}")
    weights, optimizer = (safetensors.torch.load(parts[name]) for name in (WEIGHTS, OPTIMIZER))
    weights |= {name: weights[original] for name, original in _aliases(parts[WEIGHTS]).items()}
    checkpoint["state_dict"] |= weights
    if "optimizer_states" in checkpoint:
        checkpoint["optimizer_states"] = _put_back(checkpoint["optimizer_states"], optimizer)
    return checkpoint


def _read_part(archive: zipfile.ZipFile, path: Path, name: str, manifest: Mapping[str, Any]) -> bytes:
    stored = name in archive.namelist() and archive.getinfo(name).compress_type == zipfile.ZIP_STORED
    content = archive.read(name) if stored else b""
    if hashlib.sha256(content).hexdigest() != manifest.get("sha256", {}).get(name):
        raise CheckpointError(f"{path}: {name} is damaged, its SHA-256 is not the one that was written; use another")
    return content


def _aliases(weights: bytes) -> dict[str, str]:
    header = json.loads(weights[8 : 8 + int.from_bytes(weights[:8], "little")])
    return header.get("__metadata__") or {}


def _put_back(node: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(node, dict):
        if node.keys() == {_ELSEWHERE}:
            if node[_ELSEWHERE] not in tensors:
                raise KeyError(f"{OPTIMIZER} has no {node[_ELSEWHERE]!r}")
            return tensors[node[_ELSEWHERE]]
        return {key: _put_back(value, tensors) for key, value in node.items()}
    return [_put_back(value, tensors) for value in node] if isinstance(node, list) else node


def _load(source: Any, path: Path, trust: bool) -> Any:
    try:
        return torch.load(source, map_location="cpu", weights_only=not trust)
    except Exception as error:
        if not trust and "weights only load failed" in str(error).lower() and (source is not path or _is_pickle(path)):
            raise CheckpointError(
                f"{path} holds pickled objects, and reading them can run any code that the file holds; give trust=true "
                "if you know who wrote it"
            ) from error
        first = (str(error).strip().splitlines() or [""])[0]
        raise CheckpointError(f"{path}: not a readable checkpoint ({type(error).__name__}: {first})") from error


def _begins_as_archive(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"PK\x03\x04"


def _is_pickle(path: Path) -> bool:
    """Whether the file begins like a file of torch.save or pickle."""
    with path.open("rb") as file:
        return file.read(1) in (b"\x80", b"P")


def _find_pickled(node: Any, place: str = "") -> str | None:
    """Return the path of pickled bytes in a tree; None if there are none."""
    if isinstance(node, dict):
        if PICKLED in node:
            return place
        pairs: Any = node.items()
    elif isinstance(node, (list, tuple)):
        pairs = enumerate(node)
    else:
        return None
    return next((path for key, value in pairs if (path := _find_pickled(value, f"{place}.{key}".lstrip(".")))), None)
