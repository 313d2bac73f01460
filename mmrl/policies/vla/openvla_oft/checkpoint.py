"""Files that OpenVLA-OFT has beside OpenVLA's: a projector of proprioception and an action head."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import list_repo_files
from torch import Tensor, nn

from mmrl.policies.vla.openvla.checkpoint import load_network, save_network
from mmrl.policies.vla.openvla.settings import need_file
from mmrl.policies.vla.openvla_oft.model import OpenVLAOFT
from mmrl.policies.weights import check_fits

log = logging.getLogger(__name__)

COMPONENTS = ("proprio_projector", "action_head", "noisy_action_projector")
_SUFFIX = "latest_checkpoint.pt"


def load_oft(build: Any, path: str, dtype: str) -> OpenVLAOFT:
    """Build the network and load OpenVLA's weights, then those of the components; new ones are drawn at random.

    Args:
        build: makes the network.
        path: folder or hub id.
        dtype: of the weights, as torch names it.

    Raises:
        ValueError: the checkpoint has parts that this network does not compute.
    """
    names = _list_files(path)
    if _find(names, "vision_backbone"):
        raise ValueError(f"{path} has FiLM in its image encoders, which mmrl does not compute; take one without")
    model: Any = load_network(build, path, dtype, COMPONENTS)
    if _find(names, "noisy_action_projector") and model.noisy_action_projector is None:
        raise ValueError(f"{path} has a diffusion head: set policy=openvla_oft_diffusion")
    if torch.get_default_device().type == "meta":
        return model
    for name in COMPONENTS:
        part, file = getattr(model, name), _find(names, name)
        if part is None:
            continue
        part.to_empty(device="cpu")
        if file is None:
            log.warning("policy.path=%s has no %s: a new one is trained", path, name)
            part.apply(_reset)
            continue
        weights = _read(need_file(path, file))
        check_fits(part.state_dict(), weights, f"{path}/{file}")
        part.load_state_dict(weights)
    return model


def save_oft(model: Any, folder: Path) -> None:
    """Save OpenVLA's files and a file of each component, under the published names."""
    save_network(model, folder, COMPONENTS)
    for name in COMPONENTS:
        part = getattr(model, name)
        if part is not None:
            weights = {key: value.detach().cpu() for key, value in part.state_dict().items()}
            torch.save(weights, folder / f"{name}--{_SUFFIX}")


def _list_files(path: str) -> list[str]:
    if Path(path).is_dir():
        return sorted(file.name for file in Path(path).iterdir())
    return sorted(list_repo_files(path))


def _find(names: list[str], component: str) -> str | None:
    """Return the component's file, for example action_head--150000_checkpoint.pt; the last of several."""
    files = [name for name in names if name.startswith(component) and name.endswith("checkpoint.pt")]
    return max(files, key=lambda name: (name.endswith(_SUFFIX), len(name), name), default=None)


def _read(file: Path) -> dict[str, Tensor]:
    """Read tensors of a pickle without running its code; DDP's prefix is removed."""
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise ValueError(f"{file} is not a file of weights alone ({str(error)[:100]})") from error
    return {name.removeprefix("module."): value for name, value in state.items()}


def _reset(module: nn.Module) -> None:
    if hasattr(module, "reset_parameters"):
        module.reset_parameters()  # type: ignore[operator]
