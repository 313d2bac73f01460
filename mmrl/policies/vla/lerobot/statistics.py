"""Normalisation statistics as lerobot stores them beside the weights of a policy."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from mmrl.policies.vla.lerobot.files import CONFIG, find_file
from mmrl.policies.vla.scale import STATISTICS, Kind, Scale
from mmrl.policies.weights import read_weights
from mmrl.strict_json import read_json_object

FEATURES = {"STATE": "observation.state", "ACTION": "action"}
MODES: dict[str, Kind] = {"IDENTITY": "identity", "MEAN_STD": "mean_std", "MIN_MAX": "min_max", "QUANTILES": "quantile"}
REMEDY = "give a folder or hub id of a policy that lerobot or mmrl saved (policy.path)"
Step = tuple[str, dict[str, Any]]
"""A step of a processor: registered name and arguments."""
_BEFORE, _AFTER = "policy_preprocessor", "policy_postprocessor"
_STATES = {_BEFORE: "normalizer_processor", _AFTER: "unnormalizer_processor"}
_BUFFER = re.compile(r"(?:un)?normalize_\w+\.(?:[\w.-]+?[._])?buffer_(observation_\w+|action)\.(\w+)")


def read_scales(
    path: str, config: Mapping[str, Any], weights: Path | None, images: Sequence[str] = ()
) -> dict[str, Scale]:
    """Return the scales of "STATE", "ACTION" and images; identity where the checkpoint has no finite statistics.

    They are in policy_preprocessor.json and the file that it names; in older checkpoints among the weights.

    Args:
        path: folder or hub id of the checkpoint.
        config: content of its config.json.
        weights: model.safetensors.
        images: names of the image features, each with a scale of its 3 channels.
    """
    modes, statistics = dict(config.get("normalization_mapping") or {}), _read_buffers(weights)
    file = find_file(path, f"{_BEFORE}.json")
    for step in [] if file is None else read_json_object(file, REMEDY)["steps"]:
        if step.get("registry_name") == _STATES[_BEFORE]:
            modes |= step.get("config", {}).get("norm_map", {})
            saved = find_file(path, step["state_file"]) if "state_file" in step else None
            statistics |= {} if saved is None else _nest(read_weights(saved, REMEDY))
    found = {
        kind: _scale(modes.get(kind, "MEAN_STD"), statistics.get(_flatten(name), {}), name)
        for kind, name in FEATURES.items()
    }
    visual = modes.get("VISUAL", "IDENTITY")
    return found | {name: _scale(visual, statistics.get(_flatten(name), {}), name) for name in images}


def write_processors(folder: Path, scales: Mapping[str, Scale], steps: Sequence[Step] = ()) -> None:
    """Write lerobot's pre- and post-processor and the statistics of the scales; replace the modes in config.json.

    Args:
        folder: that has config.json.
        scales: of "STATE", "ACTION" and of images, by the name of their feature; without images they are not
            normalised. Dimensions that a mask leaves out get statistics that change nothing.
        steps: of the pre-processor, between the batch axis and the device.
    """
    visual = [_mode(scale) for name, scale in scales.items() if name not in FEATURES]
    modes = {"VISUAL": visual[0] if visual else "IDENTITY", **{kind: _mode(scales[kind]) for kind in FEATURES}}
    config = read_json_object(folder / CONFIG, REMEDY) | {"normalization_mapping": modes}
    (folder / CONFIG).write_text(json.dumps(config, indent=4) + "\n")
    flat = {
        f"{FEATURES.get(kind, kind)}.{name}": torch.from_numpy(value if kind in FEATURES else value[:, None, None])
        for kind, scale in scales.items()
        for name, value in _statistics(scale).items()
    }
    output = {**(config.get("output_features") or {})}
    features = {**(config.get("input_features") or {}), **output}
    before: list[Step] = [
        ("rename_observations_processor", {"rename_map": {}}),
        ("to_batch_processor", {}),
        *steps,
        ("device_processor", {"device": config.get("device") or "cpu", "float_dtype": None}),
        (_STATES[_BEFORE], {"eps": 1e-8, "features": features, "norm_map": modes}),
    ]
    after: list[Step] = [
        (_STATES[_AFTER], {"eps": 1e-8, "features": output, "norm_map": modes}),
        ("device_processor", {"device": "cpu", "float_dtype": None}),
    ]
    for name, part in ((_BEFORE, before), (_AFTER, after)):
        _write_pipeline(folder, name, part, flat)


def _write_pipeline(folder: Path, name: str, steps: list[Step], flat: Mapping[str, Any]) -> None:
    """Write NAME.json, and the statistics beside it."""
    entries: list[dict[str, Any]] = [{"registry_name": kind, "config": config} for kind, config in steps]
    place = next(number for number, (kind, _) in enumerate(steps) if kind == _STATES[name])
    if flat:
        entries[place]["state_file"] = f"{name}_step_{place}_{_STATES[name]}.safetensors"
        save_file(dict(flat), folder / entries[place]["state_file"])
    (folder / f"{name}.json").write_text(json.dumps({"name": name, "steps": entries}, indent=2) + "\n")


def _read_buffers(weights: Path | None) -> dict[str, dict[str, np.ndarray]]:
    """Read the statistics among the weights, for example normalize_inputs.buffer_observation_state.mean."""
    found: dict[str, dict[str, np.ndarray]] = {}
    for name, value in ({} if weights is None else read_weights(weights, REMEDY)).items():
        if match := _BUFFER.fullmatch(name):
            found.setdefault(match[1], {})[match[2]] = value.float().numpy()
    return found


def _nest(flat: Mapping[str, torch.Tensor]) -> dict[str, dict[str, np.ndarray]]:
    """Convert {"observation.state.mean": values} to {"observation_state": {"mean": values}}."""
    found: dict[str, dict[str, np.ndarray]] = {}
    for name, value in flat.items():
        feature, _, statistic = name.rpartition(".")
        found.setdefault(_flatten(feature), {})[statistic] = value.float().numpy()
    return found


def _flatten(feature: str) -> str:
    """Return the name of a feature as older checkpoints write it, where a dot cannot be in a name."""
    return feature.replace(".", "_")


def _scale(mode: str, statistics: Mapping[str, np.ndarray], name: str) -> Scale:
    if mode not in MODES:
        raise ValueError(f"{name} is normalised by {mode}, which mmrl does not compute; it has {sorted(MODES)}")
    needed = STATISTICS.get(MODES[mode], ())
    if not needed or not all(part in statistics and np.isfinite(statistics[part]).all() for part in needed):
        return Scale()
    return Scale.of(MODES[mode], statistics, name=name)


def _mode(scale: Scale) -> str:
    return next(mode for mode, kind in MODES.items() if kind == scale.kind)


def _statistics(scale: Scale) -> dict[str, np.ndarray]:
    """Return the two statistics that make a scale, float32 [D]; none for identity."""
    if scale.kind == "identity":
        return {}
    mask = np.asarray(scale.mask)
    offset, width = np.where(mask, scale.offset, 0.0), np.where(mask, scale.width, 1.0)
    values = (offset, width) if scale.kind == "mean_std" else (offset - width, offset + width)
    return {name: value.astype(np.float32) for name, value in zip(STATISTICS[scale.kind], values)}
