"""Versions of Python and of the installed packages, and the device."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

import mmrl

PACKAGES = (
    "mmrl", "torch", "torchvision", "lightning", "transformers", "timm", "peft", "gymnasium", "hydra-core",
    "jsonargparse", "numpy", "mujoco", "vllm",
)  # fmt: skip


def find_version(package: str) -> str | None:
    """Return the version of a distribution, and for "mmrl" that of this package; None if it is not installed."""
    if package == "mmrl":
        return mmrl.__version__
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def versions() -> dict[str, str]:
    """Return the versions of Python and of every installed package of PACKAGES."""
    by_name = {name: find_version(name) for name in PACKAGES}
    return {"python": platform.python_version(), **{name: number for name, number in by_name.items() if number}}


def environment() -> dict[str, str]:
    """Return versions and device, which should not change a result; differences are reported."""
    import torch  # versions alone are printed without it

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return {**versions(), "machine": platform.machine(), "device": device}
