"""Settings of an OpenVLA checkpoint: config.json as its authors publish it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import AutoConfig

from mmrl.files.strict_json import read_json_object
from mmrl.policies.vla.lerobot.files import find_file

CONFIG, PIXELS, STATISTICS = "config.json", "preprocessor_config.json", "dataset_statistics.json"
REMEDY = "give a folder or hub id of an OpenVLA, such as openvla/openvla-7b (policy.path)"
_NEEDED = ("timm_model_ids", "image_sizes", "use_fused_vision_backbone", "text_config")


@dataclass(frozen=True)
class OpenVLASettings:
    """The entries of config.json that the network and its actions depend on.

    Args:
        timm_model_ids: image encoders, in the order in which their features are joined; one or two.
        image_sizes: pixels per side of each encoder's image.
        text_config: of transformers, of the Llama.
        use_fused_vision_backbone: whether there are two encoders; the projector has a layer more then.
        timm_override_act_layers: activation of each encoder; None for timm's own.
        timm_model_args: further arguments of timm.create_model for each encoder. An entry of this project, for small
            random checkpoints; published ones lack it.
        n_action_bins: B, action tokens: the last B of the vocabulary before its padding.
        pad_to_multiple_of: ids that pad the vocabulary.
        norm_stats: statistics of the datasets, by name.
        raw: all entries of the file.
    """

    timm_model_ids: tuple[str, ...]
    image_sizes: tuple[int, ...]
    text_config: Any
    use_fused_vision_backbone: bool = True
    timm_override_act_layers: tuple[str | None, ...] = ()
    timm_model_args: tuple[dict[str, Any], ...] = ()
    n_action_bins: int = 256
    pad_to_multiple_of: int = 64
    norm_stats: dict[str, Any] = field(default_factory=dict)
    raw: dict[str, Any] = field(default_factory=dict)

    @property
    def action_token_end(self) -> int:
        """Return the id after the last action token: the size of the vocabulary without padding."""
        return self.text_config.vocab_size - self.pad_to_multiple_of

    def encoder_arguments(self, number: int) -> dict[str, Any]:
        """Return the arguments of timm.create_model for an encoder."""
        acts, extra = self.timm_override_act_layers, self.timm_model_args
        options = {"img_size": self.image_sizes[number], "num_classes": 0, "pretrained": False}
        options |= {"act_layer": acts[number] if number < len(acts) else None, "weight_init": "skip"}
        return {"model_name": self.timm_model_ids[number], **options, **(extra[number] if number < len(extra) else {})}


def need_file(path: str, name: str) -> Path:
    """Return a file of a folder or hub repository; refuse a checkpoint without it."""
    file = find_file(path, name)
    if file is None:
        raise ValueError(f"{path} has no {name}; {REMEDY}")
    return file


def read_settings(path: str) -> OpenVLASettings:
    """Read config.json of a checkpoint, and dataset_statistics.json in place of its statistics where there is one.

    Args:
        path: folder or hub id.

    Raises:
        ValueError: it is not an OpenVLA, or has parts that this network does not compute.
    """
    file = need_file(path, CONFIG)
    raw = read_json_object(file, REMEDY)
    if raw.get("model_type") != "openvla":
        raise ValueError(f"{file} is of model_type {raw.get('model_type')!r}, not openvla; {REMEDY}")
    if missing := [name for name in _NEEDED if raw.get(name) is None]:
        raise ValueError(f"{file} lacks {missing}; {REMEDY}")
    # parts that the network does not compute
    text = dict(raw["text_config"])
    if text.get("model_type") != "llama":
        raise ValueError(f"{file}: text_config is of {text.get('model_type')!r}; mmrl computes OpenVLAs on Llama only")
    encoders = 2 if raw["use_fused_vision_backbone"] else 1
    if len(raw["timm_model_ids"]) != encoders:
        raise ValueError(f"{file}: {len(raw['timm_model_ids'])} timm_model_ids, but {encoders} image encoders")
    # statistics of a fine-tuned checkpoint stand in a file of their own
    statistics = find_file(path, STATISTICS)
    norm_stats = raw.get("norm_stats") if statistics is None else read_json_object(statistics, REMEDY)
    return OpenVLASettings(
        timm_model_ids=tuple(raw["timm_model_ids"]),
        image_sizes=tuple(raw["image_sizes"]),
        text_config=AutoConfig.for_model(**text),
        use_fused_vision_backbone=raw["use_fused_vision_backbone"],
        timm_override_act_layers=tuple(raw.get("timm_override_act_layers") or ()),
        timm_model_args=tuple(raw.get("timm_model_args") or ()),
        n_action_bins=raw.get("n_action_bins", 256),
        pad_to_multiple_of=raw.get("pad_to_multiple_of", 64),
        norm_stats=dict(norm_stats or {}),
        raw=raw,
    )
