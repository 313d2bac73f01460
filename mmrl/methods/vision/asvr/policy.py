"""ASVR: a vision-language policy with a visual head, and the loss of its code predictions.

- the head that predicts codes level by level: `VisualHead`; the policy with it: `ReconstructingPolicy`
- the loss of a row: `reconstruction_loss`, `VisualReconstruction`
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from mmrl.core.batch import Batch, Ragged
from mmrl.core.types import PolicyOutput
from mmrl.objectives.objective import Term
from mmrl.policies.text.vision import VisionLanguagePolicy

FILE = "visual_head.safetensors"


class VisualHead(nn.Module):
    """Logits of the codes of an image token, level by level; a level is given the codes of the levels before it.

    Args:
        size: of the hidden states.
        levels: of the residual quantiser.
        codes: of each level.
    """

    def __init__(self, size: int, levels: int, codes: int):
        super().__init__()
        self.codes = codes
        self.embed = nn.Embedding(levels * codes, size)
        self.out = nn.ModuleList(
            nn.Sequential(nn.Linear(size, size), nn.GELU(), nn.Linear(size, codes)) for _ in range(levels)
        )

    def forward(self, hidden: Tensor, ids: Tensor) -> Tensor:
        """[M, L, K] from the states [M, D] before the tokens and their codes [M, L]."""
        logits = []
        for level, out in enumerate(self.out):
            logits.append(out(hidden))
            hidden = hidden + self.embed(ids[:, level] + level * self.codes)
        return torch.stack(logits, dim=1)


def reconstruction_loss(
    logits: Tensor,  # [M, L, K]
    ids: Tensor,  # [M, L]
    row: Tensor,  # [M] to which row a prediction belongs
    rows: int,
) -> Tensor:  # [rows] nats
    """Sum over the levels of the mean cross-entropy of a row's predictions; 0 for a row without any."""
    nll = -logits.float().log_softmax(-1).gather(2, ids[..., None])[..., 0].sum(1)
    counts = torch.bincount(row, minlength=rows).clamp(min=1)
    return nll.new_zeros(rows).index_add(0, row, nll) / counts


class ReconstructingPolicy(VisionLanguagePolicy):
    """Vision-language policy that also predicts the codes of the next image token of its prompts.

    Where rows have the codes of their image tokens, the column `visual_ids`, its output has `visual_loss` [N]: the
    hidden state at an image token predicts the codes of the next one. Prompts are read once more for it. Source: ASVR,
    2025, arXiv:2506.09040. Differs: a level is predicted from the sum of the state and the embedded codes before it, in
    place of a depth transformer.

    Args:
        levels: of the codes.
        codes: of each level.
    """

    def __init__(self, levels: int = 2, codes: int = 16, **kwargs: Any):
        super().__init__(**kwargs)
        self.levels, self.visual_head = levels, VisualHead(self.hidden_size, levels, codes)
        if self.path is not None and (Path(self.path) / FILE).is_file():
            self.visual_head.load_state_dict(load_file(Path(self.path) / FILE))

    @classmethod
    def predicts(cls, init_args: Mapping[str, Any]) -> frozenset[str]:
        return super().predicts(init_args) | {"visual_loss"}

    @property
    def image_id(self) -> int:
        """Id of the token that stands for a part of an image."""
        config = self.model.config
        return config.image_token_id if hasattr(config, "image_token_id") else config.image_token_index

    def forward(self, batch: Batch) -> PolicyOutput:
        out = super().forward(batch)
        if "visual_ids" in batch:
            out.extra["visual_loss"] = self._reconstruct(batch)
        return out

    def _reconstruct(self, batch: Batch) -> Tensor:
        """[N] loss of each row; every prompt is read once."""
        _, first, owner = np.unique(batch["prompt_id"].cpu().numpy(), return_index=True, return_inverse=True)
        prompts = batch.select(torch.from_numpy(first).to(self.device))
        columns = prompts.observation()
        if not (columns["input_ids"] == self.image_id).any():  # an encoder of images does not take none
            columns = {name: column for name, column in columns.items() if not isinstance(column, Ragged)}
        inputs = {"input_ids": columns["input_ids"], **self.extra_inputs(columns)}
        attention = columns["attention_mask"]
        positions = self.positions(inputs["input_ids"], attention, inputs)
        options = {"output_hidden_states": True, "logits_to_keep": 1}
        out = self.model(**inputs, attention_mask=attention, position_ids=positions, **options)
        row, place = (inputs["input_ids"] == self.image_id).nonzero(as_tuple=True)
        ids = prompts["visual_ids"].values.view(-1, self.levels)
        if len(ids) != len(row):
            raise ValueError(
                f"visual_ids has {len(ids)} codes of {self.levels} levels, and the prompts have {len(row)} tokens of "
                "images; levels of data.transforms and model.policy must be equal"
            )
        follows = row[:-1] == row[1:]
        hidden = out.hidden_states[-1][row, place][:-1][follows]
        logits = self.visual_head(hidden.to(self.visual_head.embed.weight.dtype), ids[1:][follows])
        loss = reconstruction_loss(logits, ids[1:][follows], row[1:][follows], len(first))
        return loss[torch.from_numpy(owner).to(loss.device)]

    def save_pretrained(self, folder: str | Path) -> None:
        super().save_pretrained(folder)
        save_file(self.visual_head.state_dict(), Path(folder) / FILE)


@dataclass(frozen=True)
class VisualReconstruction(Term):
    """Loss of a row's image tokens: the cross-entropy of the codes of the next one, summed over the levels.

    Source: ASVR, 2025, arXiv:2506.09040, where it is added to the loss of the text with a weight of 1.
    """

    def needs(self) -> frozenset[str]:
        return frozenset({"visual_loss"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        if "visual_loss" not in out.extra:
            raise KeyError(
                "visual_reconstruction: rows have no visual_ids; add mmrl.methods.vision.asvr.tokens.VisualTokens to "
                "data.transforms"
            )
        return out.extra["visual_loss"]
