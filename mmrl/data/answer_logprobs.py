"""Log-probabilities of whole answers under the policy and its start, for evaluations."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from mmrl.annotators.logprobs import positive_rows, score_rows
from mmrl.core.types import Context, Episode
from mmrl.data.collate import collate
from mmrl.evaluation.boundary.perplexity import OWN, START
from mmrl.transforms.base import EpisodeTransform


@dataclass(frozen=True)
class AnswerLogprobs(EpisodeTransform):
    """Record the mean log-probability of each text episode's tokens, under the policy and under `model.reference`.

    Logits are not divided by a temperature, and all tokens can be chosen. Without model.reference=true only the
    policy's is recorded. Episodes that write no text are left as they are.

    Args:
        rows: contexts per forward pass; lower it when memory runs out.
    """

    rows: int = 64

    def __post_init__(self) -> None:
        positive_rows(self.rows, "answer_logprobs")

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        written = [episode for episode in episodes if isinstance(episode.output, str)]
        if not written:
            return episodes
        batch = collate(written, ctx.policy)
        batch = batch.with_columns(temperature=torch.ones_like(batch["temperature"]))
        mask, number = batch["action_mask"], batch["episode"]
        models = {OWN: ctx.policy} | ({START: ctx.models["reference"]} if "reference" in ctx.models else {})
        means: dict[str, list[float]] = {}
        for name, model in models.items():
            # [N, T] of rows, to [E] of episodes, which may have several rows
            logprobs = score_rows(model, batch, lambda out: out.full_logprobs, self.rows, ctx.device)
            total = torch.zeros(len(written)).index_add(0, number, torch.where(mask, logprobs, 0.0).sum(1))
            count = torch.zeros(len(written)).index_add(0, number, mask.sum(1).float())
            means[name] = (total / count).tolist()
        infos = {id(e): {name: values[i] for name, values in means.items()} for i, e in enumerate(written)}
        return [replace(e, info={**e.info, **infos[id(e)]}) if id(e) in infos else e for e in episodes]
