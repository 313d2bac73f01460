"""Normalisation statistics as lerobot stores them beside the weights of a policy."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import save_file

from mmrl.files.strict_json import read_json_object
from mmrl.policies.vla.lerobot.files import REMEDY, find_file
from mmrl.policies.vla.scale import STATISTICS, Kind, Scale
from mmrl.policies.weights import read_weights

FEATURES = {"STATE": "observation.state", "ACTION": "action"}
MODES: dict[str, Kind] = {"IDENTITY": "identity", "MEAN_STD": "mean_std", "MIN_MAX": "min_max", "QUANTILES": "quantile"}
NORMALIZER, UNNORMALIZER = "normalizer_processor", "unnormalizer_processor"
EPSILON = 1e-8  # range that lerobot gives to a dimension whose two quantiles or extremes are equal
DEVICE = "device_processor"
_BEFORE, _AFTER = "policy_preprocessor", "policy_postprocessor"
_BUFFER = re.compile(r"(?:un)?normalize_\w+\.(?:[\w.-]+?[._])?buffer_(observation_\w+|action)\.(\w+)")


class ProcessorStep(NamedTuple):
    """A step of lerobot's processors."""

    name: str  # under which it is registered
    config: Mapping[str, Any] = {}  # arguments
    artifacts: Mapping[str, str] = {}  # arguments that are files or folders of the checkpoint

    def to_json(self) -> dict[str, Any]:
        """Return the step's entry of a processor file."""
        entry = {"registry_name": self.name, "config": dict(self.config)}
        return {**entry, "artifacts": dict(self.artifacts)} if self.artifacts else entry


UNNORMALIZE = [ProcessorStep(UNNORMALIZER), ProcessorStep(DEVICE, {"device": "cpu", "float_dtype": None})]
"""Steps of the postprocessors."""


def read_scales(
    path: str, config: Mapping[str, Any], weights: Path | None, mode: str, images: Sequence[str] = ()
) -> dict[str, Scale]:
    """Return the scales of "STATE", "ACTION" and images; identity where the checkpoint has no finite statistics.

    They are in policy_preprocessor.json and the file that it names; in older checkpoints among the weights.

    Args:
        path: folder or hub id of the checkpoint.
        config: of config.json, whose normalization_mapping counts where the preprocessor has none.
        weights: model.safetensors; None if statistics are never among the weights.
        mode: name of the normalisation, such as QUANTILES, where neither file says it.
        images: names of image features, each with a scale of its 3 channels.
    """
    modes, statistics = dict(config.get("normalization_mapping") or {}), _read_buffers(weights)
    for step in read_steps(path):
        if step.get("registry_name") == NORMALIZER:
            modes |= step.get("config", {}).get("norm_map", {})
            saved = find_file(path, step["state_file"]) if "state_file" in step else None
            statistics |= {} if saved is None else _nest(read_weights(saved, REMEDY))
    features = [(kind, name, modes.get(kind, mode)) for kind, name in FEATURES.items()]
    features += [(name, name, modes.get("VISUAL", "IDENTITY")) for name in images]
    return {kind: _scale(norm, statistics.get(_flatten(name), {}), name) for kind, name, norm in features}


def read_steps(path: str) -> list[dict[str, Any]]:
    """Return the steps of policy_preprocessor.json; empty if the checkpoint has none."""
    file = find_file(path, f"{_BEFORE}.json")
    return [] if file is None else read_json_object(file, REMEDY)["steps"]


def write_scales(folder: Path, inputs: Sequence[ProcessorStep], scales: Mapping[str, Scale]) -> None:
    """Write lerobot's pre- and post-processor and the statistics of the scales; replace the modes in config.json.

    Args:
        folder: that has config.json with its features.
        inputs: steps of the preprocessor; NORMALIZER gets its arguments here.
        scales: of "STATE" and "ACTION", and of images by the name of their feature; without the latter, images are not
            normalised. Dimensions that a mask leaves out get statistics that change nothing.
    """
    visual = [_mode(scale) for name, scale in scales.items() if name not in FEATURES]
    modes = {"VISUAL": visual[0] if visual else "IDENTITY", **{kind: _mode(scales[kind]) for kind in FEATURES}}
    config = read_json_object(folder / "config.json", REMEDY) | {"normalization_mapping": modes}
    (folder / "config.json").write_text(json.dumps(config, indent=4) + "\n")
    flat = {
        f"{FEATURES.get(kind, kind)}.{name}": torch.from_numpy(value if kind in FEATURES else value[:, None, None])
        for kind, scale in scales.items()
        for name, value in _statistics(scale).items()
    }
    output = dict(config.get("output_features") or {})
    features = {NORMALIZER: {**(config.get("input_features") or {}), **output}, UNNORMALIZER: output}
    for name, steps in ((_BEFORE, inputs), (_AFTER, UNNORMALIZE)):
        filled = [
            ProcessorStep(step.name, {"eps": EPSILON, "features": features[step.name], "norm_map": modes})
            if step.name in features
            else step
            for step in steps
        ]
        _write_pipeline(folder, name, filled, flat)


def _write_pipeline(folder: Path, name: str, steps: Sequence[ProcessorStep], flat: Mapping[str, Any]) -> None:
    """Write NAME.json, and the statistics beside it."""
    entries = [step.to_json() for step in steps]
    scaling = (NORMALIZER, UNNORMALIZER)
    place, kind = next((number, step.name) for number, step in enumerate(steps) if step.name in scaling)
    if flat:
        entries[place]["state_file"] = f"{name}_step_{place}_{kind}.safetensors"
        save_file(dict(flat), folder / entries[place]["state_file"])
    (folder / f"{name}.json").write_text(json.dumps({"name": name, "steps": entries}, indent=2) + "\n")


def _read_buffers(weights: Path | None) -> dict[str, dict[str, np.ndarray]]:
    """Read the statistics among the weights, for example normalize_inputs.buffer_observation_state.mean."""
    statistics: dict[str, dict[str, np.ndarray]] = {}
    for name, value in ({} if weights is None else read_weights(weights, REMEDY)).items():
        if match := _BUFFER.fullmatch(name):
            statistics.setdefault(match[1], {})[match[2]] = value.float().numpy()
    return statistics


def _nest(flat: Mapping[str, torch.Tensor]) -> dict[str, dict[str, np.ndarray]]:
    """Convert {"observation.state.mean": values} to {"observation_state": {"mean": values}}."""
    statistics: dict[str, dict[str, np.ndarray]] = {}
    for name, value in flat.items():
        feature, _, statistic = name.rpartition(".")
        statistics.setdefault(_flatten(feature), {})[statistic] = value.float().numpy()
    return statistics


def _flatten(feature: str) -> str:
    """Return the name of a feature as older checkpoints write it, where a dot cannot be in a name."""
    return feature.replace(".", "_")


def _scale(mode: str, statistics: Mapping[str, np.ndarray], name: str) -> Scale:
    if mode not in MODES:
        raise ValueError(f"{name} is normalised by {mode}, which mmrl does not compute; it has {sorted(MODES)}")
    needed = STATISTICS.get(MODES[mode], ())
    missing = [part for part in needed if part not in statistics]
    if statistics and missing:
        raise ValueError(f"{name} is normalised by {mode}, but its statistics {sorted(statistics)} lack {missing}")
    if not needed or missing or not all(np.isfinite(statistics[part]).all() for part in needed):
        return Scale()
    return Scale.of(MODES[mode], _open_ranges(MODES[mode], statistics), name=name)


def _open_ranges(kind: Kind, statistics: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Give constant dimensions the range or standard deviation that lerobot divides by.

    A constant action is thereby its mean whatever the network says, to 1e-8, as lerobot's inverse x std + mean has it.
    """
    values = {name: value.astype(np.float64) for name, value in statistics.items()}
    if kind in ("quantile", "min_max"):
        low, high = (values[name] for name in STATISTICS[kind])
        values[STATISTICS[kind][1]] = np.where(high == low, low + EPSILON, high)
    elif kind == "mean_std":
        values["std"] = np.where(values["std"] == 0, EPSILON, values["std"])
    return values


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
