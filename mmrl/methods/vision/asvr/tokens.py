"""ASVR: the frozen image tokenizer, a residual quantiser of image features, as a column of rows.

- codebooks by k-means and the ids of features: `fit_codebooks`, `quantise`
- image features of a model, and their codes in every row: `encode_images`, `VisualTokens`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from mmrl.core.columns import Column, register_columns
from mmrl.core.errors import check_at_least
from mmrl.core.evaluation_mode import evaluation_mode
from mmrl.core.types import Context, Episode, Observation
from mmrl.distributed.whole_weights import refuse_sharded
from mmrl.policies.text.vision import PER_TOKEN
from mmrl.transforms.base import StatefulTransform

register_columns(
    {
        "visual_ids": Column(
            "[N, *]", "ids", "ASVR: codes of the image tokens of the row, all levels of a token together"
        ),
    }
)


def fit_codebooks(features: Tensor, levels: int, codes: int, steps: int = 10) -> Tensor:
    """Codebooks [L, K, D] of a residual quantiser: k-means of features [M, D], then of what each level leaves.

    Centres start at points far from each other, the first one at the farthest from the mean.
    """
    rest, books = features, []
    for _ in range(levels):
        distance, points = (rest - rest.mean(0)).square().sum(1), []
        for _ in range(codes):
            points.append(rest[distance.argmax()])
            apart = (rest - points[-1]).square().sum(1)
            distance = apart if len(points) == 1 else torch.minimum(distance, apart)
        centres = torch.stack(points)
        for _ in range(steps):
            nearest = torch.cdist(rest, centres).argmin(1)
            counts = torch.bincount(nearest, minlength=codes)[:, None]
            means = torch.zeros_like(centres).index_add(0, nearest, rest) / counts.clamp(min=1)
            centres = torch.where(counts > 0, means, centres)
        books.append(centres)
        rest = rest - centres[torch.cdist(rest, centres).argmin(1)]
    return torch.stack(books)


def quantise(features: Tensor, codebooks: Tensor) -> Tensor:
    """Ids [M, L] of features [M, D]: the nearest code of each level to what the levels before it leave."""
    rest, ids = features, []
    for centres in codebooks:
        ids.append(torch.cdist(rest, centres).argmin(1))
        rest = rest - centres[ids[-1]]
    return torch.stack(ids, dim=1)


@dataclass
class VisualTokens(StatefulTransform):
    """Write `visual_ids`: the codes of every image token of a row, by a frozen model's image features.

    The codebooks are fitted once, to the images of the first iteration of all processes. Source: ASVR, 2025,
    arXiv:2506.09040, whose tokenizer is a pretrained one of eight levels.

    Args:
        levels: of the residual quantiser, those of the policy.
        codes: of each level, those of the policy.
        encoder: "reference", or one of model.frozen_models, a vision-language policy.
        rows: images per forward pass of the encoder.
        max_features: that codebooks are fitted to.
    """

    levels: int = 2
    codes: int = 16
    encoder: str = "reference"
    rows: int = 64
    max_features: int = 4096
    _codebooks: Tensor | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        check_at_least(
            1, "visual_tokens", levels=self.levels, codes=self.codes, rows=self.rows, max_features=self.max_features
        )

    def writes(self) -> frozenset[str]:
        return frozenset({"visual_ids"})

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        if self.encoder not in ctx.models:
            raise ValueError(
                f"visual_tokens.encoder={self.encoder!r} is none of the learner's models {sorted(ctx.models)}; set "
                "model.reference=true or add it to model.frozen_models"
            )
        observations = [turn.completion.observation for episode in episodes for turn in episode.turns]
        features = encode_images(observations, ctx.models[self.encoder], self.rows)
        if self._codebooks is None:
            parts = [each for part in ctx.collector.gather([features]) for each in part if len(each)]
            if parts:
                everyone = torch.cat(parts)
                step = -(-len(everyone) // self.max_features)
                self._codebooks = fit_codebooks(everyone[::step], self.levels, self.codes)
        ids = iter([self._codes(each) for each in features])
        return [replace(e, turns=[turn.with_columns(visual_ids=next(ids)) for turn in e.turns]) for e in episodes]

    def _codes(self, features: Tensor) -> Tensor:
        """[P * L] codes of the image tokens of a row."""
        if self._codebooks is None:  # no row of any process has an image
            return torch.zeros(0, dtype=torch.long)
        return quantise(features, self._codebooks).flatten()

    def state_dict(self) -> dict[str, Any]:
        return {} if self._codebooks is None else {"codebooks": self._codebooks}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._codebooks = state.get("codebooks")


@torch.no_grad()
def encode_images(observations: Sequence[Observation], model: Any, rows: int) -> list[Tensor]:
    """Features [P, D] of the image tokens of each encoded observation, after the projector; P is 0 without images."""
    refuse_sharded(model, "data.transforms (codes of images)")
    out: list[Tensor] = []
    with evaluation_mode(model):
        for start in range(0, len(observations), rows):
            part = observations[start : start + rows]
            counts = [int((each["input_ids"] == model.image_id).sum()) for each in part]
            features = torch.zeros(0, model.hidden_size)
            if sum(counts):
                inputs = model.extra_inputs(model.collate(part))
                pixels = {name: column.to(model.device) for name, column in inputs.items() if name not in PER_TOKEN}
                features = torch.cat(list(model.model.get_image_features(**pixels).pooler_output)).float().cpu()
            out += features.split(counts)
    return out
