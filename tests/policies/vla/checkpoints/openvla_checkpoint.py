"""A tiny random OpenVLA with the published files and names: `python -m tests.checkpoints openvla FOLDER`."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import timm
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, processors
from torch import nn
from transformers import AutoConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VIT = {"embed_dim": 16, "depth": 3, "num_heads": 2, "patch_size": 8}
DINO = {**VIT, "reg_tokens": 4, "no_embed_class": True, "init_values": 0.5}
SIGLIP = {**VIT, "embed_dim": 24, "class_token": False, "global_pool": "map"}
MEANS, STDS = [[0.484375, 0.455078125, 0.40625], [0.5] * 3], [[0.228515625, 0.2236328125, 0.224609375], [0.5] * 3]


def openvla(folder: str | Path, **changes: Any) -> Path:
    """DINOv2 and SigLIP with two read blocks for images of 16 x 16, a Llama with two layers, 32 action tokens.

    `changes` are entries of config.json. The tokenizer spells words by characters and ends, as Llama 2's, with 32
    tokens that are seldom needed.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    bins = changes.get("n_action_bins", 32)
    tokenizer = llama_like_tokenizer(96 + bins)
    end = len(tokenizer) - 1  # the padding token is the first id after the vocabulary
    config = {
        "model_type": "openvla",
        "architectures": ["OpenVLAForActionPrediction"],
        "vision_backbone_id": "dinosiglip-vit-so-224px",
        "llm_backbone_id": "llama2-7b-pure",
        "arch_specifier": "no-align+fused-gelu-mlp",
        "use_fused_vision_backbone": True,
        "timm_model_ids": ["vit_tiny_patch16_224", "vit_tiny_patch16_224"],
        "timm_override_act_layers": [None, None],
        "timm_model_args": [DINO, SIGLIP],
        "image_sizes": [16, 16],
        "image_resize_strategy": "resize-naive",
        "n_action_bins": bins,
        "pad_to_multiple_of": 64,
        "pad_token_id": end,
        "text_config": {
            "model_type": "llama",
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "initializer_range": 32**-0.5,
            "vocab_size": end + 64,
            "pad_token_id": end,
        },
        "norm_stats": {},
        **changes,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    tokenizer.save_pretrained(folder)
    own = {"tokenizer_class": "LlamaTokenizer", "processor_class": "PrismaticProcessor", "model_max_length": 2048}
    own |= {"add_bos_token": True, "add_eos_token": False, "legacy": False, "padding_side": "right"}
    special = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<PAD>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(own | special, indent=2))
    count = 2 if config["use_fused_vision_backbone"] else 1
    pixels = {
        "image_processor_type": "PrismaticImageProcessor",
        "image_resize_strategy": config["image_resize_strategy"],
        "input_sizes": [[3, size, size] for size in config["image_sizes"]],
        "interpolations": ["bicubic"] * count,
        "means": MEANS[:count],
        "stds": STDS[:count],
        "use_fused_vision_backbone": config["use_fused_vision_backbone"],
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(pixels, indent=2))
    save_file(_weights(config), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def llama_like_tokenizer(size: int) -> PreTrainedTokenizerFast:
    """A tokenizer of characters with `size` + 1 ids, as Llama's: 0, 1, 2 are unknown, begin and end, "▁" a blank."""
    words = ["<unk>", "<s>", "</s>", "<0x0A>", "▁", *string.ascii_lowercase, *string.digits, *"INOW?:.,-'"]
    words += [f"<seldom{number}>" for number in range(size - len(words))]
    options: dict[str, Any] = {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
    tokenizer = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, [], **options))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    tokenizer.decoder = decoders.Replace("▁", " ")
    special = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<PAD>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, padding_side="right", **special)


def _weights(config: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Random weights with the published names: timm's layer scales are called scale_factor."""
    torch.manual_seed(0)
    text = dict(config["text_config"])
    llama, width, seen = LlamaForCausalLM(AutoConfig.for_model(**text)), text["hidden_size"], 0
    parts: dict[str, nn.Module] = {"language_model": llama}
    names = ("featurizer", "fused_featurizer") if config["use_fused_vision_backbone"] else ("featurizer",)
    for name, kind, size, given in zip(
        names, config["timm_model_ids"], config["image_sizes"], config["timm_model_args"]
    ):
        encoder = timm.create_model(kind, pretrained=False, num_classes=0, img_size=size, **given)
        for parameter in encoder.parameters():  # timm's biases start at 0
            nn.init.normal_(parameter, mean=float(parameter.dim() == 1) / 2, std=0.2)
        parts[f"vision_backbone.{name}"], seen = encoder, seen + encoder.embed_dim
    sizes = (
        [(seen, 4 * seen), (4 * seen, width), (width, width)] if len(names) == 2 else [(seen, width), (width, width)]
    )
    parts |= {f"projector.fc{number}": nn.Linear(*pair) for number, pair in enumerate(sizes, 1)}
    return {
        f"{name}.{key}".replace(".gamma", ".scale_factor"): value.contiguous()
        for name, part in parts.items()
        for key, value in part.state_dict().items()
    }
