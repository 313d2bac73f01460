"""Refuse parts of a configuration whose optional packages are not installed, before anything is built."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from mmrl.core.installation.optional_packages import (
    DISTRIBUTIONS,
    MissingPackageError,
    format_missing,
    is_installed,
    require_packages,
)


def check_packages(config: Mapping[str, Any]) -> None:
    """Check the packages that parts import, and those that they name in `packages`.

    A part that imports a package only when it is used has a class attribute `packages`, the import names, or a
    class method `packages_of` that computes them from its arguments.

    Args:
        config: nested plain values; a part is {_target_, ...} or {class_path, init_args}. Values that are still
            interpolations are skipped.

    Raises:
        MissingPackageError: with the key, the class and the command that installs the package.
    """
    for key, path, arguments in _list_parts(config):
        need = f"{key} ({path})"
        part = _import_part(path, need)
        require_packages(getattr(part, "packages", ()), need)
        if hasattr(part, "packages_of"):
            require_packages(part.packages_of(arguments), need)


def drop_missing_logger(cfg: DictConfig, arguments: Sequence[str]) -> None:
    """Remove the TensorBoard logger where its package is missing and no argument names a logger; see `lacks_logger`."""
    if lacks_logger(arguments) and OmegaConf.select(cfg, "trainer.logger.tensorboard") is not None:
        del cfg.trainer.logger["tensorboard"]


def lacks_logger(arguments: Sequence[str]) -> bool:
    """Whether a run goes without its default logger, TensorBoard, because the package is missing."""
    names_logger = any(word.lstrip("+~").startswith(("logger=", "trainer.logger")) for word in arguments)
    return not names_logger and not is_installed("tensorboard")


def _import_part(path: str, need: str) -> Any:
    """Import a class; None where that fails for another reason, which the typed parser reports."""
    module, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name, None) if module else None
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in DISTRIBUTIONS:
            raise MissingPackageError(format_missing(need, package), name=package) from error
        return None
    except Exception:
        return None


def _list_parts(node: Any, key: str = "") -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield key, import path and arguments of every part."""
    if isinstance(node, Mapping):
        path = node.get("class_path", node.get("_target_"))
        inside = (node.get("init_args") or {}) if "class_path" in node else node
        if isinstance(path, str) and "${" not in path:
            yield key, path, inside if isinstance(inside, Mapping) else {}
        pairs: Any = inside.items() if isinstance(inside, Mapping) else ()
    else:
        pairs = enumerate(node) if isinstance(node, (list, tuple)) else ()
    for name, value in pairs:
        yield from _list_parts(value, f"{key}.{name}" if key else str(name))
