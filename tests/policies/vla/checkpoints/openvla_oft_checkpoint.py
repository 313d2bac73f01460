"""A tiny random OpenVLA-OFT with the published files: `python -m tests.checkpoints openvla_oft FOLDER`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from mmrl.policies.vla.openvla_oft.model import NoiseHead, RegressionHead, TokenProjector
from tests.policies.vla.checkpoints.openvla_checkpoint import openvla


def openvla_oft(
    folder: str | Path, proprio_dims: int = 13, action_dims: int = 3, diffusion: bool = False, **changes: Any
) -> Path:
    """The tiny OpenVLA with a projector of proprioception and a head, in files as its authors' training saves them.

    The head is for L1 regression or for diffusion. `changes` are entries of config.json.
    """
    folder = openvla(folder, **changes)
    torch.manual_seed(1)
    width = 32
    head = (NoiseHead if diffusion else RegressionHead)(action_dims, width)
    parts: dict[str, nn.Module] = {"proprio_projector": TokenProjector(proprio_dims, width), "action_head": head}
    parts |= {"noisy_action_projector": TokenProjector(1, width)} if diffusion else {}
    for name, part in parts.items():
        # saved in a process of several, whose names have a prefix
        state = {f"module.{key}": value for key, value in part.state_dict().items()}
        torch.save(state, folder / f"{name}--150000_checkpoint.pt")
    return folder
