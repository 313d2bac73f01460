"""Settings of a SmolVLA checkpoint, as lerobot writes them to config.json."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mmrl.policies.vla.lerobot.files import read_config
from mmrl.policies.vla.lerobot.statistics import DEVICE, NORMALIZER, ProcessorStep


@dataclass(frozen=True)
class SmolVLASettings:
    """The entries of config.json that the network depends on; the defaults are those of the published model.

    Args:
        chunk_size: S, control steps that the model predicts.
        max_state_dim: width of the proprioception vector, filled up with zeros.
        max_action_dim: D, width of an action.
        resize_imgs_with_padding: (width, height) of the images for the network; null keeps their size.
        tokenizer_max_length: tokens of an instruction; later ones are cut.
        vlm_model_name: hub id or folder of the vision-language model, for its sizes and its tokenizer.
        attention_mode: with "cross_attn" the expert's layers attend to the context alone, with exceptions.
        num_vlm_layers: layers of the language model that are used, from the first; all of them if not positive.
        num_expert_layers: of the expert; one for each layer of the language model if not positive.
        self_attn_every_n_layers: layers 0, n, 2n, ... of the expert attend to the action tokens too; none if not
            positive.
        expert_width_multiplier: width of the expert over that of the language model.
        min_period: shortest period of the time embedding.
        max_period: longest.
        raw: all entries of the file.
    """

    chunk_size: int = 50
    max_state_dim: int = 32
    max_action_dim: int = 32
    resize_imgs_with_padding: tuple[int, int] | None = (512, 512)
    tokenizer_max_length: int = 48
    vlm_model_name: str = "HuggingFaceTB/SmolVLM2-500M-Video-Instruct"
    attention_mode: str = "cross_attn"
    num_vlm_layers: int = 16
    num_expert_layers: int = -1
    self_attn_every_n_layers: int = 2
    expert_width_multiplier: float = 0.75
    min_period: float = 4e-3
    max_period: float = 4.0
    raw: dict[str, Any] = field(default_factory=dict)

    def attends_to_actions(self, layer: int) -> bool:
        """Whether an expert layer attends to the action tokens too, or to the context alone."""
        every = self.self_attn_every_n_layers
        return "cross" not in self.attention_mode or (every > 0 and layer % every == 0)

    def to_json(self) -> dict[str, Any]:
        """Return the content of config.json: the entries that were read, with the present chunk size."""
        executed = min(int(self.raw.get("n_action_steps", self.chunk_size)), self.chunk_size)
        entries = {part.name: getattr(self, part.name) for part in dataclasses.fields(self) if part.name != "raw"}
        return {"type": "smolvla", **self.raw, **entries, "n_action_steps": executed}


def read_settings(path: str, horizon: int | None = None) -> SmolVLASettings:
    """Read config.json of a checkpoint; refuse variants that this network does not compute.

    Args:
        path: folder or hub id.
        horizon: replaces chunk_size; None keeps it.
    """
    raw = read_config(path, "smolvla", ("add_image_special_tokens", "adapt_to_pi_aloha"))
    names = {part.name for part in dataclasses.fields(SmolVLASettings)} - {"raw"}
    settings = SmolVLASettings(**{name: raw[name] for name in names & raw.keys()}, raw=raw)
    if settings.num_expert_layers > 0 and settings.num_expert_layers != settings.num_vlm_layers:
        raise ValueError(
            f"{path}: num_expert_layers={settings.num_expert_layers} differs from "
            f"num_vlm_layers={settings.num_vlm_layers}; mmrl computes experts with as many layers as the language model"
        )
    return settings if horizon is None else dataclasses.replace(settings, chunk_size=horizon)


def vlm_source(path: str, reader: str | None, settings: SmolVLASettings) -> str:
    """Return the hub id or folder of the vision-language model's configuration and tokenizer.

    `reader` comes first, then the folder that `save_pretrained` of mmrl adds, then what config.json names.
    """
    added = Path(path) / "vlm"
    return reader or (str(added) if added.is_dir() else settings.vlm_model_name)


def input_steps(settings: SmolVLASettings) -> list[ProcessorStep]:
    """Return the steps of lerobot's preprocessor of SmolVLA."""
    config = settings.raw
    tokenizer = {
        "max_length": settings.tokenizer_max_length,
        "task_key": "task",
        "padding_side": "right",
        "padding": config.get("pad_language_to", "longest"),
        "truncation": True,
        "tokenizer_name": settings.vlm_model_name,
    }
    return [
        ProcessorStep("rename_observations_processor", {"rename_map": {}}),
        ProcessorStep("to_batch_processor"),
        ProcessorStep("smolvla_new_line_processor"),
        ProcessorStep("tokenizer_processor", tokenizer),
        ProcessorStep(DEVICE, {"device": config.get("device") or "cpu", "float_dtype": None}),
        ProcessorStep(NORMALIZER),
    ]
