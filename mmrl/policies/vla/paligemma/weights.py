"""Weights of a PaliGemma under the names of lerobot's pi checkpoints, and the sizes that their shapes give."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import GemmaConfig, PaliGemmaConfig

from mmrl.policies.vla.lerobot.files import REMEDY, WEIGHTS

Shapes = Mapping[str, tuple[int, ...]]
VLM, EXPERT = "paligemma_with_expert.paligemma", "paligemma_with_expert.gemma_expert"
EMBEDDING, HEAD = f"{VLM}.model.language_model.embed_tokens.weight", f"{VLM}.lm_head.weight"
_PREFIX = "model."  # of every name in a file that lerobot wrote; those of openpi's port on the hub have none
_VISION_HEADS = 16  # attention heads of SigLIP So400m, which no shape says
_NESTED, _PLAIN = "vision_tower.vision_model.", "vision_tower."  # older and newer transformers


def read_shapes(file: Path) -> dict[str, tuple[int, ...]]:
    """Read the shapes of a checkpoint's weights from the header of its file."""
    try:
        with safe_open(file, "pt") as opened:
            return {_own(name): tuple(opened.get_slice(name).get_shape()) for name in list(opened.keys())}
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{file}: not a readable safetensors file ({error}); {REMEDY}") from error


def read_embedding(file: Path) -> Tensor | None:
    """Read the word embeddings of a checkpoint of lerobot; None if they are not saved under their own name."""
    with safe_open(file, "pt") as opened:
        names = {_own(name): name for name in list(opened.keys())}
        return opened.get_tensor(names[EMBEDDING]) if EMBEDDING in names else None


def network_weights(given: Mapping[str, Tensor], model: nn.Module, tied: bool) -> dict[str, Tensor]:
    """Return a file's weights under the model's names.

    Word embeddings and output layer may be one weight, saved under one of its two names.

    Args:
        given: by the names of the file.
        model: that is filled with them.
        tied: whether its output layer is the word embeddings; a different output layer of the file is left out.
    """
    weights = {_own(name): value for name, value in given.items()}
    if EMBEDDING not in weights and HEAD in weights:
        weights[EMBEDDING] = weights[HEAD]
    if EMBEDDING in weights and (tied or HEAD not in weights):
        weights[HEAD] = weights[EMBEDDING]
    names = {_own(name): name for name in model.state_dict()}
    return {names.get(name, name): value for name, value in weights.items()}


def save_weights(model: nn.Module, folder: Path) -> None:
    """Save a model's weights under lerobot's names; tied weights are written under each of their names."""
    weights = {
        f"{_PREFIX}{_own(name).replace(_PLAIN, _NESTED)}": value.detach()
        .cpu()
        .clone(memory_format=torch.contiguous_format)
        for name, value in model.state_dict().items()
    }
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


def vlm_config(shapes: Shapes, tied: bool) -> PaliGemmaConfig:
    """Return the configuration of the vision-language model, whose sizes config.json only names as a variant.

    Args:
        shapes: of `read_shapes`.
        tied: whether the output layer is the word embeddings.
    """
    vision = f"{VLM}.model.vision_tower."
    width, channels, patch, _ = need_shape(shapes, f"{vision}embeddings.patch_embedding.weight")
    places = need_shape(shapes, f"{vision}embeddings.position_embedding.weight")[0]
    words, text_width = shapes[EMBEDDING] if EMBEDDING in shapes else need_shape(shapes, HEAD)
    return PaliGemmaConfig(
        text_config={
            "model_type": "gemma",
            "vocab_size": words,
            "tie_word_embeddings": tied,
            "use_bidirectional_attention": True,
            **_decoder_sizes(shapes, f"{VLM}.model.language_model.layers.", text_width),
        },
        vision_config={
            "model_type": "siglip_vision_model",
            "hidden_size": width,
            "num_channels": channels,
            "patch_size": patch,
            "image_size": patch * round(places**0.5),
            "intermediate_size": need_shape(shapes, f"{vision}encoder.layers.0.mlp.fc1.weight")[0],
            "num_hidden_layers": _count(shapes, f"{vision}encoder.layers."),
            "num_attention_heads": _VISION_HEADS,
            "vision_use_head": False,
        },
        projection_dim=text_width,
        image_token_id=words,  # images have no place in the text
        tie_word_embeddings=tied,
    )


def expert_config(shapes: Shapes) -> GemmaConfig:
    """Return the configuration of the action expert, a Gemma without word embeddings."""
    width = need_shape(shapes, "action_in_proj.weight")[0]
    return GemmaConfig(
        vocab_size=1,
        **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id")),
        **_decoder_sizes(shapes, f"{EXPERT}.model.layers.", width),
    )


def need_shape(shapes: Shapes, name: str) -> tuple[int, ...]:
    """Return the shape of a weight; refuse a checkpoint without it."""
    if name not in shapes:
        raise ValueError(f"the checkpoint lacks the weight {name}; {REMEDY}")
    return shapes[name]


def _decoder_sizes(shapes: Shapes, layers: str, width: int) -> dict[str, Any]:
    """Return the sizes of a Gemma decoder with one key-value head, as every variant has."""
    head = need_shape(shapes, f"{layers}0.self_attn.k_proj.weight")[0]
    return {
        "hidden_size": width,
        "intermediate_size": need_shape(shapes, f"{layers}0.mlp.gate_proj.weight")[0],
        "num_hidden_layers": _count(shapes, layers),
        "num_attention_heads": need_shape(shapes, f"{layers}0.self_attn.q_proj.weight")[0] // head,
        "num_key_value_heads": 1,
        "head_dim": head,
    }


def _count(shapes: Shapes, layers: str) -> int:
    return len({name.removeprefix(layers).split(".")[0] for name in shapes if name.startswith(layers)})


def _own(name: str) -> str:
    """Return the name without lerobot's prefix, torch.compile's and the nesting of older transformers."""
    return name.removeprefix(_PREFIX).removeprefix("_orig_mod.").replace(_NESTED, _PLAIN)
