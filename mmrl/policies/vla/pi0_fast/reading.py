"""Inputs of pi0-FAST: the prompt with the state, pixels, units, and the action tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from mmrl.policies.processor import Processor
from mmrl.policies.vla.lerobot.statistics import ProcessorStep, read_steps
from mmrl.policies.vla.paligemma.reading import PaliGemmaReading
from mmrl.policies.vla.pi0_fast.fast_tokenizer import FastTokenizer

_STEP, _FOLDER, _FAST = "action_tokenizer_processor", "action_tokenizer", "physical-intelligence/fast"


class Pi0FastReading(PaliGemmaReading):
    """Inputs of a pi0-FAST checkpoint in lerobot's format.

    Action token t is the id `highest - t` of the text vocabulary, whose last `fast_skip_tokens` ids stay free. A
    sequence of tokens begins with the word "Action: " after the beginning of a text, and ends with "|".

    Args:
        path: hub id or folder of the checkpoint.
        reader: hub id or folder of the text tokenizer; None for the checkpoint's own.
        cameras: names of the images of an observation, in the order in which the model reads them.
        fast: hub id or folder of the action tokenizer; None for the checkpoint's own.
    """

    kind = "pi0_fast"
    mode = "MEAN_STD"
    prompt_end = ""
    prompt_step = "pi0_fast_prepare_state_tokenizer_processor_step"

    def __init__(self, path: str, reader: str | None, cameras: Sequence[str], fast: str | None = None):
        super().__init__(path, reader, cameras)
        step = next((step for step in read_steps(path) if step.get("registry_name") == _STEP), {})
        artifact = step.get("artifacts", {}).get("action_tokenizer_name")
        self.fast_name = self.config.get("action_tokenizer_name") or _FAST
        added = Path(path) / (artifact or _FOLDER)
        self.fast = FastTokenizer.load(fast or (str(added) if added.is_dir() else self.fast_name))
        self.skipped = int(self.config.get("fast_skip_tokens", 128))

    @property
    def action_ids(self) -> Tensor:
        """Ids [V] of the text vocabulary of the choices: the action tokens 0, 1, ..., then the end."""
        highest = self.tokenizer.vocab_size - 1 - self.skipped
        if highest < self.fast.size:
            raise ValueError(
                f"{self.fast.size} action tokens do not fit into a text vocabulary of {self.tokenizer.vocab_size}: "
                "give the tokenizer of PaliGemma (policy.reader)"
            )
        end = self.tokenizer("|", add_special_tokens=False)["input_ids"]
        return torch.tensor([*range(highest, highest - self.fast.size, -1), end[0]])

    @property
    def start_ids(self) -> Tensor:
        """Ids [L] of the text vocabulary between prompt and action tokens."""
        return torch.tensor(
            [self.tokenizer.bos_token_id, *self.tokenizer("Action: ", add_special_tokens=False)["input_ids"]]
        )

    def save(self, folder: Path, units: Processor, proprio_dims: int, action_dims: int) -> None:
        """Save lerobot's processors with the units, and both tokenizers."""
        super().save(folder, units, proprio_dims, action_dims)
        self.fast.save(folder / _FOLDER)

    def input_steps(self) -> list[ProcessorStep]:
        *first, device = super().input_steps()
        config = {
            "trust_remote_code": True,
            "max_action_tokens": int(self.config.get("max_action_tokens", 256)),
            "fast_skip_tokens": self.skipped,
            "paligemma_tokenizer_name": self.tokenizer_name,
            "action_tokenizer_name": self.fast_name,
        }
        return [*first, ProcessorStep(_STEP, config), device]
