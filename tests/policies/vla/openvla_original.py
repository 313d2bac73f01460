"""Run the original OpenVLA on a checkpoint: `python openvla_original.py FOLDER INPUTS OUTPUTS`, under its own Python.

Needs transformers 4.40.1, tokenizers 0.19.1, timm 0.9.16 and the package that has modeling_prismatic.py; it imports
nothing of this project. INPUTS is an npz of images and prompts, OUTPUTS gets what the original computes.
"""

from __future__ import annotations

import importlib
import json
import sys
import types
from pathlib import Path

import numpy as np
import timm
import torch
from PIL import Image
from transformers import PreTrainedTokenizerFast

PACKAGE = "vla_arena.models.openvla.prismatic.extern.hf"  # of PyPI's vla-arena, which has the original's files


def load(kind: str | None, package: str = PACKAGE):
    """Import a module of the original alone, without the packages around it, which import much more; None for none."""
    place = next(Path(entry) for entry in sys.path if (Path(entry) / package.split(".")[0]).is_dir())
    for depth in range(1, package.count(".") + 2):
        name = ".".join(package.split(".")[:depth])
        sys.modules.setdefault(name, types.ModuleType(name)).__path__ = [str(place / name.replace(".", "/"))]
    return None if kind is None else importlib.import_module(f"{package}.{kind}_prismatic")


def build_small_encoders(config: dict) -> None:
    """Let timm build the small encoders of the checkpoint, whose sizes the original takes from their names."""
    plain, sizes = timm.create_model, iter(config["timm_model_args"])
    timm.create_model = lambda *names, **given: plain(*names, **given, **next(sizes))


def main(folder: str, inputs: str, outputs: str) -> None:
    config = json.loads((Path(folder) / "config.json").read_text())
    modeling, processing = load("modeling"), load("processing")
    build_small_encoders(config)
    model = modeling.OpenVLAForActionPrediction.from_pretrained(folder, attn_implementation="eager").eval()
    settings = json.loads((Path(folder) / "preprocessor_config.json").read_text())
    settings.pop("image_processor_type")
    images = processing.PrismaticImageProcessor(**settings)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    given = np.load(inputs)
    end, bins, dims = model.vocab_size, config["n_action_bins"], int(given["dims"])
    empty = tokenizer.convert_tokens_to_ids("▁")
    found: dict[str, list] = {"pixels": [], "logits": [], "greedy": [], "actions": []}
    for image, prompt, chosen in zip(given["images"], given["prompts"], given["chosen"]):
        pixels = images(Image.fromarray(image), return_tensors="pt")["pixel_values"]
        ids = torch.tensor([[*tokenizer(str(prompt))["input_ids"], empty]])
        found["pixels"].append(pixels[0].numpy())
        tokens = torch.cat([ids, end - 1 - torch.from_numpy(chosen)[None, :-1]], dim=1)
        with torch.no_grad():
            logits = model(input_ids=tokens, attention_mask=torch.ones_like(tokens), pixel_values=pixels).logits
        found["logits"].append(logits[0, -dims:, end - bins : end].flip(-1).numpy())
        options = {"do_sample": False, "prefix_allowed_tokens_fn": lambda *_: list(range(end - bins, end))}
        written = model.generate(ids, pixel_values=pixels, max_new_tokens=dims, **options)
        chosen = end - written[0, -dims:].numpy()
        greedy = model.bin_centers[np.clip(chosen - 1, 0, len(model.bin_centers) - 1)]
        found["greedy"].append(greedy)
        statistics = model.get_action_stats("robot")
        low, high = np.array(statistics["q01"]), np.array(statistics["q99"])
        scaled = 0.5 * (greedy + 1) * (high - low) + low
        found["actions"].append(np.where(np.array(statistics["mask"]), scaled, greedy))
    np.savez(outputs, **{name: np.stack(part) for name, part in found.items()})


if __name__ == "__main__":
    main(*sys.argv[1:])
