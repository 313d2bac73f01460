"""Weights of OpenVLA: published names, shards, and a network without a second copy of 7 B numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import save_torch_state_dict
from torch import Tensor, nn

from mmrl.files.strict_json import read_json_object
from mmrl.policies.vla.lerobot.files import find_file
from mmrl.policies.vla.openvla.settings import CONFIG, REMEDY, need_file
from mmrl.policies.weights import check_fits, read_weights

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
_TIED = ("language_model.lm_head.weight", "language_model.model.embed_tokens.weight")
# transformers renames weights called gamma, so the published layer scales have another name than timm's
_OURS, _PUBLISHED = ".gamma", ".scale_factor"


def load_network(build: Callable[[], Any], path: str, dtype: str, apart: tuple[str, ...] = ()) -> nn.Module:
    """Build the network and give it the checkpoint's weights, in training mode.

    The modules are built without memory and take the tensors of the file, so that no random weights are drawn. With
    torch's default device "meta" the network stays without weights.

    Args:
        build: makes the network.
        path: folder or hub id.
        dtype: of the weights, as torch names it.
        apart: modules that have files of their own; they stay without weights.
    """
    kind = getattr(torch, dtype)
    with torch.device("meta"):
        model = build().to(kind)
    if torch.get_default_device().type == "meta":
        return model.train()
    weights = read_published(path)
    for name in weights:  # one by one, so that there are never two copies
        weights[name] = weights[name].to(kind)
    tied = model.settings.text_config.tie_word_embeddings
    for name, other in (_TIED, _TIED[::-1]) if tied else ():
        weights.setdefault(name, weights[other])  # one weight, saved under one of its two names
    check_fits(model.state_dict(), weights, path, apart)
    model.load_state_dict(weights, strict=False, assign=True)
    model.language_model.tie_weights()  # changes nothing where they are not tied
    llama = model.language_model.model
    llama.rotary_emb = type(llama.rotary_emb)(llama.config)  # its buffer is not in the file
    empty = [name for name, buffer in model.named_buffers() if buffer.is_meta]
    if empty:
        raise ValueError(f"{path}: {empty[0]} is in no file, and mmrl does not compute it; take another image encoder")
    return model.train()


def read_published(path: str) -> dict[str, Tensor]:
    """Read all weights of a checkpoint under timm's and transformers' names, from one file or from shards."""
    index = find_file(path, INDEX)
    shards = [WEIGHTS] if index is None else sorted(set(read_json_object(index, REMEDY)["weight_map"].values()))
    weights: dict[str, Tensor] = {}
    for shard in shards:
        weights |= read_weights(need_file(path, shard), REMEDY)
    return {name.replace(_PUBLISHED, _OURS): value for name, value in weights.items()}


def save_network(model: Any, folder: Path, apart: tuple[str, ...] = ()) -> None:
    """Save weights under the published names, in shards of at most 5 GB, and config.json; without those `apart`."""
    settings = model.settings
    left_out = (*apart, *_TIED[:1]) if settings.text_config.tie_word_embeddings else apart
    weights = {
        name.replace(_OURS, _PUBLISHED): value.detach().cpu().contiguous()
        for name, value in model.state_dict().items()
        if not name.startswith(left_out)
    }
    save_torch_state_dict(weights, folder, max_shard_size="5GB")
    dtype = str(model.language_model.dtype).removeprefix("torch.")
    config = {**settings.raw, "norm_stats": settings.norm_stats, "torch_dtype": dtype}
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n")
