"""Which extra of mmrl-lightning installs each optional package, and the error of a package that is missing."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable
from typing import Any

from mmrl.core.errors import ConfigError

EXTRAS: dict[str, dict[str, str]] = {
    "video": {"imageio": "imageio", "imageio_ffmpeg": "imageio-ffmpeg"},
    "tensorboard": {"tensorboard": "tensorboard"},
    "wandb": {"wandb": "wandb"},
    "mlflow": {"mlflow": "mlflow"},
    "trackio": {"trackio": "trackio"},
    "scikit": {"sklearn": "scikit-learn", "skimage": "scikit-image"},
    "vlm": {"torchvision": "torchvision"},
    "vla": {"timm": "timm"},
    "sim": {"mujoco": "mujoco", "msgpack": "msgpack"},
    "grid": {"minigrid": "minigrid"},
    "robotics": {"gymnasium_robotics": "gymnasium-robotics"},
    "ogbench": {"ogbench": "ogbench"},
    "dmc": {"dm_control": "dm_control", "shimmy": "shimmy"},
    "data": {"pyarrow": "pyarrow", "h5py": "h5py", "av": "av", "google": "protobuf"},
    "datasets": {"datasets": "datasets"},
    "math": {"math_verify": "math-verify"},
    "reasoning": {"reasoning_gym": "reasoning-gym"},
    "chess": {"chess": "chess"},
    "svg": {"resvg_py": "resvg-py"},
    "browser": {"miniwob": "miniwob"},
    "textarena": {"textarena": "textarena"},
    "vllm": {"vllm": "vllm"},
    "guided": {"llguidance": "llguidance"},
    "mcp": {"mcp": "mcp"},
    "renderers": {"renderers": "renderers", "httpx": "httpx"},
    "private": {"dp_accounting": "dp-accounting"},
    "gguf": {"gguf": "gguf"},
    "qlora": {"bitsandbytes": "bitsandbytes"},
    "serve": {"websockets": "websockets"},
}
"""By extra the distributions that it adds, by the name under which Python imports them. An extra of pyproject.toml may
contain further ones; a package that several extras install stands in the smallest."""

DISTRIBUTIONS = {module: name for packages in EXTRAS.values() for module, name in packages.items()}
"""Name on the package index of every optional package, by its import name."""
_EXTRA_OF = {module: extra for extra, packages in EXTRAS.items() for module in packages}


class MissingPackageError(ModuleNotFoundError, ConfigError):
    """An optional package is not installed; the message names the extra that installs it."""


def is_installed(module: str) -> bool:
    """Whether Python finds a package, which is not imported."""
    return importlib.util.find_spec(module) is not None


def format_missing(need: str, module: str) -> str:
    """Format the line for a package that is missing.

    Args:
        need: what needs it, such as "task 'chess'" or "sampling.regex".
        module: name under which the package is imported; of a submodule, its package is meant.
    """
    package = module.partition(".")[0]
    return f"{need} needs the package {DISTRIBUTIONS[package]}: {format_install(package)}"


def format_install(module: str) -> str:
    """Format the command that installs an optional package."""
    return f"pip install 'mmrl-lightning[{_EXTRA_OF[module]}]'"


def require_packages(modules: Iterable[str], need: str) -> None:
    """Refuse to go on without optional packages.

    Args:
        modules: names under which they are imported.
        need: see `format_missing`.

    Raises:
        MissingPackageError: for the first one that is not installed.
    """
    for module in modules:
        if not is_installed(module):
            raise MissingPackageError(format_missing(need, module), name=module)


def import_optional(module: str, need: str) -> Any:
    """Import an optional package, or a module of it.

    Raises:
        MissingPackageError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != module.partition(".")[0]:
            raise  # the package is there, and something that it needs is not
        raise MissingPackageError(format_missing(need, module), name=module) from error
