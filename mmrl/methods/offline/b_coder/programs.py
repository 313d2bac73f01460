"""B-Coder's data and its choice among candidates: programs of checkpoint and humans, and recovered returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

from mmrl.annotators.logprobs import evaluate_rows
from mmrl.core.batch import Batch
from mmrl.core.errors import check_at_least
from mmrl.core.rng import derive_rng
from mmrl.core.types import Context, Episode, PolicyOutput, Prompt, Turn
from mmrl.data.collate import collate
from mmrl.methods.offline.b_coder.losses import CheckpointChoices, ConservativeBellman, dueling_q, recovered_rewards
from mmrl.rollouts.offline.demonstrations import demonstration
from mmrl.rollouts.offline.logged import LoggedEpisodes
from mmrl.transforms.base import EpisodeTransform


class SampledAndHumanPrograms(LoggedEpisodes):
    """Two programs of each problem: one of the checkpoint's samples, drawn anew in every iteration, and the task's own.

    The log has `data.group_size` samples of each problem. Half of a batch are programs of humans, here the task's
    demonstrations. Source: B-Coder, 2023, appendix H, arXiv:2310.03173.
    """

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        out: list[Episode] = []
        groups: dict[int, list[Episode]] = {}
        for episode in super().collect(prompts, ctx):
            groups.setdefault(episode.group, []).append(episode)
        for slot, samples in groups.items():
            draw = derive_rng("b_coder", ctx.seed, ctx.purpose, ctx.iteration, slot).integers(len(samples))
            out.append(replace(samples[int(draw)], sample_index=0))
        decisions = ctx.task.demonstrations([episode.prompt for episode in out]) if out else []
        for sample, steps in zip(list(out), decisions):
            turns = [Turn(demonstration(raw, output, ctx)) for raw, output in steps]
            out.append(Episode(sample.prompt, group=sample.group, sample_index=1, turns=turns, source="demo"))
        return sorted(out, key=lambda episode: (episode.group, episode.sample_index))


@dataclass(frozen=True)
class RecoveredReturns(EpisodeTransform):
    """Score `recovered` of an episode: sum_t Q(s_t, a_t) - gamma V(s_{t+1}), by which candidates are ranked.

    Episodes are those of one answer. Source: B-Coder, 2023, section 4, arXiv:2310.03173.

    Args:
        bellman: the loss of stage theta, with its constants.
        rows: contexts per forward pass; lower it when memory runs out.
        name: of the score.
    """

    bellman: ConservativeBellman = field(default_factory=ConservativeBellman)
    rows: int = 64
    name: str = "recovered"

    def __post_init__(self) -> None:
        check_at_least(1, "recovered_returns", rows=self.rows)

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        played = [episode for episode in episodes if episode.turns]
        if not played:
            return episodes
        batch = CheckpointChoices(rows=self.rows)(collate(played, ctx.policy), ctx)
        policy = ctx.policy
        returns = evaluate_rows(policy, batch, lambda r: self.sum_rewards(policy(r), r), self.rows, ctx.device)
        if len(returns) != len(played):
            raise ValueError("recovered_returns ranks answers of one turn, and an episode has several; leave it out")
        values = dict(zip(map(id, played), returns.tolist()))
        return [replace(e, scores={**e.scores, self.name: values[id(e)]}) if id(e) in values else e for e in episodes]

    def sum_rewards(self, out: PolicyOutput, batch: Batch) -> Tensor:
        """Recovered return [N] of each row."""
        values = self.bellman.predict_values(out, batch)
        q = dueling_q(out.extra["relative_logits"], values, batch["action"], self.bellman.alpha)
        return recovered_rewards(q, values, batch["action_mask"], self.bellman.gamma).sum(1)
