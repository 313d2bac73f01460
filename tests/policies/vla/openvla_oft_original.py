"""Run the original OpenVLA-OFT on a checkpoint: `python openvla_oft_original.py FOLDER INPUTS OUTPUTS`.

Needs what openvla_original.py needs. Its authors' fork of transformers lets every token attend to every other one; here
transformers' causal mask is removed instead.
"""

from __future__ import annotations

import importlib
import json
import sys
import types
from pathlib import Path

import numpy as np
import torch
from openvla_original import build_small_encoders, load
from PIL import Image
from transformers import PreTrainedTokenizerFast
from transformers.models.llama.modeling_llama import LlamaModel

NAMES = ("images", "prompts", "proprio", "x", "timestep")
ROOT = "vla_arena.models.openvla_oft.prismatic"


def import_with_sizes(dims: int, chunk: int):
    """Import the original with another robot's sizes than those that it guesses from the command line."""
    ddim = types.ModuleType("diffusers.schedulers.scheduling_ddim")
    ddim.DDIMScheduler = lambda **_: None  # only the noise that is predicted in one step is compared
    sys.modules |= {"diffusers": types.ModuleType("diffusers"), ddim.__name__: ddim}
    sys.modules["diffusers.schedulers"] = types.ModuleType("diffusers.schedulers")
    for package in ("extern.hf", "vla", "training", "models"):  # without the imports of these packages
        load("configuration" if package == "extern.hf" else None, f"{ROOT}.{package}")
    constants = importlib.import_module(f"{ROOT}.vla.constants")
    constants.ACTION_DIM, constants.NUM_ACTIONS_CHUNK = dims, chunk
    heads, projectors = (importlib.import_module(f"{ROOT}.models.{name}") for name in ("action_heads", "projectors"))
    return load("modeling", f"{ROOT}.extern.hf"), load("processing", f"{ROOT}.extern.hf"), heads, projectors


def read_component(folder: str, name: str) -> dict:
    (file,) = Path(folder).glob(f"{name}--*checkpoint.pt")
    state = torch.load(file, weights_only=True)
    return {key.removeprefix("module."): value for key, value in state.items()}


def main(folder: str, inputs: str, outputs: str) -> None:
    given, config = np.load(inputs), json.loads((Path(folder) / "config.json").read_text())
    dims, chunk, width = int(given["dims"]), int(given["chunk"]), config["text_config"]["hidden_size"]
    modeling, processing, heads, projectors = import_with_sizes(dims, chunk)
    build_small_encoders(config)
    if given["bidirectional"]:
        LlamaModel._update_causal_mask = lambda *_, **__: None
    model = modeling.OpenVLAForActionPrediction.from_pretrained(folder, attn_implementation="eager").eval()
    model.vision_backbone.set_num_images_in_input(given["images"].shape[1])
    kind = "noise" if len(list(Path(folder).glob("noisy_action_projector--*"))) else "regression"
    build = heads.DiffusionActionHead if kind == "noise" else heads.L1RegressionActionHead
    head = build(width, width, dims).eval()
    head.load_state_dict(read_component(folder, "action_head"))
    noisy = projectors.NoisyActionProjector(width).eval()
    if kind == "noise":
        noisy.load_state_dict(read_component(folder, "noisy_action_projector"))
    projector = projectors.ProprioProjector(width, given["proprio"].shape[1]).eval()
    projector.load_state_dict(read_component(folder, "proprio_projector"))
    settings = json.loads((Path(folder) / "preprocessor_config.json").read_text())
    settings.pop("image_processor_type")
    images, tokenizer = processing.PrismaticImageProcessor(**settings), PreTrainedTokenizerFast.from_pretrained(folder)
    empty = tokenizer.convert_tokens_to_ids("▁")
    found: dict[str, list] = {kind: [], "tokens": [], "hidden": []}
    for views, prompt, proprio, x, timestep in zip(*(given[name] for name in NAMES)):
        pixels = torch.cat(
            [images(Image.fromarray(view), return_tensors="pt")["pixel_values"] for view in views], dim=1
        )
        ids = torch.tensor([[*tokenizer(str(prompt))["input_ids"], empty]])
        own = (model, ids, pixels, torch.from_numpy(proprio)[None], projector)
        if kind == "noise":
            found[kind].append(predict_noise(*own, head, noisy, torch.from_numpy(x)[None], timestep)[0].numpy())
        else:
            found[kind].append(predict(*own, head)[0])
        actions, hidden = predict(*own, None)
        found["tokens"].append(actions)
        found["hidden"].append(hidden[0].numpy())
    np.savez(outputs, **{name: np.stack(part) for name, part in found.items()})


@torch.no_grad()
def predict(model, ids, pixels, proprio, projector, head):
    """The steps of the original's predict_action, whose id of the empty token is too large for a small vocabulary."""
    mask, labels, actions_mask, seen, embeddings = prepare(model, ids, pixels, proprio, projector)
    sizes = seen.shape[1], ids.shape[1] - 1
    return model._regression_or_discrete_prediction(embeddings, actions_mask, seen, mask, labels, *sizes, head)


@torch.no_grad()
def predict_noise(model, ids, pixels, proprio, projector, head, noisy, x, timestep):
    """One step of the original's _run_diffusion_prediction."""
    mask, _, actions_mask, seen, embeddings = prepare(model, ids, pixels, proprio, projector)
    time = head.time_encoder(torch.Tensor([timestep]))[:, None]
    embeddings = model._replace_input_embeddings(embeddings, actions_mask, noisy(x.reshape(1, -1, 1)))
    seen = torch.cat((seen, time), dim=1)
    together, attended = model._build_multimodal_attention(embeddings, seen, mask)
    out = model.language_model(inputs_embeds=together, attention_mask=attended, output_hidden_states=True)
    first = seen.shape[1] + ids.shape[1] - 1
    return head.predict_noise(out.hidden_states[-1][:, first : first + x[0].numel()])


def prepare(model, ids, pixels, proprio, projector):
    """Masks, labels, embedded images and proprioception, and embedded tokens with placeholders."""
    labels = torch.full_like(ids, -100)
    tokens, mask = model._prepare_input_for_action_prediction(ids, torch.ones_like(ids))
    labels = model._prepare_labels_for_action_prediction(labels, tokens)
    actions_mask = model._process_action_masks(labels)
    seen = model._process_proprio_features(model._process_vision_features(pixels), proprio, projector)
    return mask, labels, actions_mask, seen, model.get_input_embeddings()(tokens)


if __name__ == "__main__":
    main(*sys.argv[1:])
