"""What is installed here."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

PACKAGES = (
    "mmrl", "torch", "torchvision", "lightning", "transformers", "timm", "peft", "gymnasium", "hydra-core",
    "jsonargparse", "numpy", "mujoco", "vllm",
)  # fmt: skip


def find_version(package: str) -> str | None:
    """The version of a package, None when it is not there."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def versions() -> dict[str, str]:
    """Python and every package of PACKAGES that is installed."""
    found = {name: find_version(name) for name in PACKAGES}
    return {"python": platform.python_version(), **{name: number for name, number in found.items() if number}}


def environment() -> dict[str, str]:
    """Versions and the device: what should not change a result, and is said where it differs."""
    import torch  # versions alone are printed without it

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return {**versions(), "machine": platform.machine(), "device": device}
