"""Inputs of OpenVLA: prompt, pixels and units, as its own processor computes them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from mmrl.files.pretrained import load_pretrained
from mmrl.files.strict_json import read_json_object
from mmrl.policies.processor import Processor
from mmrl.policies.text.loading import refuse_empty
from mmrl.policies.vla.lerobot.files import find_file
from mmrl.policies.vla.openvla.images import ImageSettings, crop_centre
from mmrl.policies.vla.openvla.settings import CONFIG, PIXELS, REMEDY, need_file, read_settings
from mmrl.policies.vla.openvla.statistics import read_units, select_key, write_units
from mmrl.policies.vla.pretrained.loading import resolve_processor
from mmrl.policies.vla.pretrained.reading import PretrainedReading
from mmrl.policies.vla.scale import Kind

PROMPT = "In: What action should the robot take to {instruction}?\nOut:"
EMPTY = "▁"
"""The last word of a prompt, 29871 of Llama 2: the blank between "Out:" and the first action token."""
_COPIED = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "tokenizer.model"),
    "processor_config.json",
)


class OpenVLAReading(PretrainedReading):
    """Tokenizer, image settings and statistics of an OpenVLA checkpoint.

    Args:
        path: hub id or folder of the checkpoint.
        reader: hub id or folder of tokenizer and preprocessor_config.json; None for the checkpoint's own.
        cameras: names of the images of an observation, in the order in which the model reads them.
        unnorm_key: statistics in use, by the name of their dataset; None where there is one.
        kind: statistics that are -1 and 1 to the network.
        reads_proprio: whether the model reads proprioception.
        crop: fraction of the image's area that is kept, around its centre.
    """

    def __init__(
        self,
        path: str,
        reader: str | None,
        cameras: Sequence[str],
        unnorm_key: str | None = None,
        kind: Kind = "quantile",
        reads_proprio: bool = False,
        crop: float = 1.0,
    ):
        self.path, self.settings, self.cameras = path, read_settings(path), tuple(cameras)
        self.unnorm_key, self.kind, self.reads_proprio, self.crop = unnorm_key, kind, reads_proprio, crop
        self.source = reader or path
        file = need_file(self.source, PIXELS)
        self.images = ImageSettings.from_json(read_json_object(file, REMEDY), str(file))
        # tokenizer.json as it is: transformers' own class for Llama would build another one
        self.tokenizer: Any = refuse_empty(load_pretrained(PreTrainedTokenizerFast, self.source))
        self.empty_id = self.tokenizer.convert_tokens_to_ids(EMPTY)
        if self.empty_id in (None, self.tokenizer.unk_token_id):
            raise ValueError(f"its tokenizer has no token {EMPTY!r}, which ends an OpenVLA's prompt")
        self._ids: dict[str, Tensor] = {}

    @property
    def pad_id(self) -> int:
        return self.tokenizer.pad_token_id or 0

    def prompt_ids(self, instruction: str, proprio: np.ndarray) -> Tensor:
        """Return token ids [L] of the prompt with the instruction in lower case; the last one is the empty token."""
        if instruction not in self._ids:
            ids = self.tokenizer(PROMPT.format(instruction=instruction.lower()))["input_ids"]
            ids = ids if ids[0] == self.tokenizer.bos_token_id else [self.tokenizer.bos_token_id, *ids]
            self._ids[instruction] = torch.tensor(ids if ids[-1] == self.empty_id else [*ids, self.empty_id])
        return self._ids[instruction]

    def pixels(self, images: Tensor) -> Tensor:
        return self.images.pixels(crop_centre(images.flatten(0, 1), self.crop)).unflatten(0, images.shape[:2])

    def units(self) -> Processor | None:
        key = select_key(self.settings.norm_stats, self.unnorm_key, self.path)
        return None if key is None else read_units(self.settings.norm_stats[key], self.kind, self.reads_proprio)

    def save(self, folder: Path, units: Processor, proprio_dims: int, action_dims: int) -> None:
        """Save tokenizer, image settings, statistics, and the original's code where the checkpoint has it.

        The statistics replace those of `unnorm_key`, or of the only dataset; a robot that is none of the checkpoint's
        is called "mmrl".
        """
        names = self.settings.norm_stats
        key = self.unnorm_key or (next(iter(names)) if len(names) == 1 else None)
        config = read_json_object(folder / CONFIG, REMEDY)
        config["norm_stats"] = write_units(names, key, units, action_dims, proprio_dims if self.reads_proprio else 0)
        config["auto_map"] = self._auto_map(config, folder)
        (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n")
        images = {**self.images.raw, "auto_map": self._auto_map(self.images.raw, folder)}
        (folder / PIXELS).write_text(json.dumps(images, indent=2) + "\n")
        for name in _COPIED:
            file = find_file(self.source, name)
            if file is not None and file.resolve() != (folder / name).resolve():
                shutil.copy(file, folder / name)

    @property
    def several(self) -> bool:
        """Whether the checkpoint has statistics of several datasets, and none is named."""
        return self.unnorm_key is None and len(self.settings.norm_stats) > 1

    def _auto_map(self, config: dict[str, Any], folder: Path) -> dict[str, str]:
        """Copy the files that auto_map names, or name the hub repository that has them."""
        names = config.get("auto_map") or {}
        if not Path(self.path).is_dir():
            return {kind: name if "--" in name else f"{self.path}--{name}" for kind, name in names.items()}
        for name in names.values():
            file = Path(self.path) / f"{name.split('.')[0]}.py"
            if file.is_file() and not (folder / file.name).exists():
                shutil.copy(file, folder)
        return names


def resolve_units(reading: OpenVLAReading, given: Processor | None, file: Path) -> Processor:
    """Return the processor saved in `file`, or the given one with the scales of the statistics in use.

    Where the checkpoint has statistics of several robots and none is named, a given one that scales actions is taken.
    """
    if given is not None and given.action.kind != "identity" and reading.several and not file.is_file():
        return given
    return resolve_processor(file, reading, given)
