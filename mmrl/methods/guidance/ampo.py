"""AMPO: add teacher traces to failing groups, ordered by the policy's probability of the answer after each.

More Than One Teacher: Adaptive Multi-Guidance Policy Optimization for Diverse Exploration, 2025, arXiv:2510.02227.

- which traces replace wrong completions: `AddTeacherTraces`
- the loss -A p / (p + gamma) of their tokens: `ShapedSurrogate`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.columns import per_choice
from mmrl.core.errors import check_positive
from mmrl.core.groups import get_score, group_episodes
from mmrl.core.rng import derive_rng
from mmrl.core.types import Context, Episode, PolicyOutput, Task, Turn
from mmrl.objectives.objective import Term
from mmrl.ops.masked import zero_outside
from mmrl.transforms import answer_splice
from mmrl.transforms.answer_splice import Splice, reference_answer, split_reasoning
from mmrl.transforms.base import EpisodeTransform


@dataclass(frozen=True)
class AddTeacherTraces(EpisodeTransform):
    """Replaces some completions of a group without any success by traces of teachers.

    A teacher is a task with the same problems, whose demonstrations are its traces. Those are taken after whose
    reasoning the policy gives the reference answer the highest mean probability per token; they replace completions
    drawn at random, are scored by the verifier, and their rows are `is_demo`. Groups with a success stay.

    Source: AMPO, 2025, adaptive multi-guidance, arXiv:2510.02227.

    Args:
        teachers: tasks by name.
        max_traces: completions that are replaced in a group, at most as many as there are teachers.
        score_name: "reward", or the name of a score.
        success_threshold: above this value of it a completion is a success.
        marker: text after whose last occurrence in a trace the answer stands; a trace without it is an answer alone.
    """

    teachers: dict[str, Task]
    max_traces: int = 2
    score_name: str = "exact"
    success_threshold: float = 0.6
    marker: str = "\n"

    def __post_init__(self) -> None:
        if not self.teachers or self.max_traces < 1:
            got = f"{sorted(self.teachers)} and {self.max_traces}"
            raise ValueError(f"add_teacher_traces: need at least one teacher and max_traces >= 1, got {got}")

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        groups = group_episodes(episodes)
        first = {slot: group[0] for slot, group in groups.items()}  # metrics are of the episodes that were sampled
        failed = {slot: group for slot, group in groups.items() if not self._has_success(group)}
        traces = {slot: self._read_traces(group[0]) for slot, group in failed.items()}
        ranked = self._rank(failed, traces, ctx)
        for slot, group in failed.items():
            count = min(self.max_traces, len(ranked[slot]), len(group))
            rng = derive_rng("teacher", ctx.seed, ctx.purpose, ctx.iteration, slot)
            places = sorted(rng.permutation(len(group))[:count].tolist())
            teacher_episodes = [self._show(group[place], text, ctx) for place, text in zip(places, ranked[slot])]
            ctx.collector.score(teacher_episodes)
            members = dict(enumerate(group)) | dict(zip(places, teacher_episodes))
            groups[slot] = list(members.values())
        for slot, episode in first.items():
            episode.info["counts"] = {**episode.info.get("counts", {}), "guided_groups": float(slot in failed)}
        return [episode for group in groups.values() for episode in group]

    def _has_success(self, group: Sequence[Episode]) -> bool:
        return any(get_score(episode, self.score_name) > self.success_threshold for episode in group)

    def _read_traces(self, episode: Episode) -> list[str]:
        """Return the trace of every teacher; refuse other problems."""
        index = episode.prompt.index
        for name, teacher in self.teachers.items():
            if index >= len(teacher) or teacher[index].messages != episode.prompt.messages:
                raise ValueError(
                    f"data.transforms: teacher {name!r} has another problem {index} than {episode.prompt.key!r}; give "
                    "it the arguments of data.task, apart from those of its demonstrations"
                )
        return [teacher.demonstrate(index) for teacher in self.teachers.values()]

    def _rank(
        self, failed: dict[int, list[Episode]], traces: dict[int, list[str]], ctx: Context
    ) -> dict[int, list[str]]:
        """Sort the traces of each group by the mean probability of the reference answer after their reasoning."""
        pairs = [(slot, trace) for slot, texts in traces.items() for trace in texts]
        splices = []
        for slot, trace in pairs:
            prompt = failed[slot][0].prompt
            answer = reference_answer(prompt, "add_teacher_traces")
            splices.append(Splice(prompt, split_reasoning(trace, self.marker), answer))
        scores = map(answer_splice.mean_probability, answer_splice.answer_probabilities(splices, ctx))
        ranked: dict[int, list[str]] = {slot: [] for slot in traces}
        for (slot, trace), _ in sorted(zip(pairs, scores), key=lambda pair: -pair[1]):
            ranked[slot].append(trace)
        return ranked

    def _show(self, replaced: Episode, trace: str, ctx: Context) -> Episode:
        """Return the trace as an episode in the place of a completion, whose context it has."""
        done = replaced.turns[0].completion
        odd = sorted(name for name in done.extra if per_choice(name))
        if len(replaced.turns) != 1 or odd:
            cause = f"{replaced.prompt.key!r} has {len(replaced.turns)} rows and the columns {odd}"
            raise ValueError(
                f"add_teacher_traces: {cause}; it is for completions of one row, sampled without truncation"
            )
        ids = ctx.policy.encode_demonstration(replaced.prompt.observation, trace)
        zero = torch.zeros(len(ids))
        choices: dict[str, Any] = {"action": ids, "behavior_logprobs": zero, "action_mask": zero == 0}
        done = replace(done, **choices, output=trace, ended="done", value=None)
        return replace(replaced, turns=[Turn(done)], ended="done", source="demo", scores={}, info={})


@dataclass(frozen=True)
class ShapedSurrogate(Term):
    """Policy-gradient loss -A p / (p + gamma) of tokens that a teacher wrote, p the policy's probability.

    No old policy and no clip. Source: AMPO, 2025, arXiv:2510.02227, after LUFFY, 2025, arXiv:2504.14945.

    Args:
        gamma: probability at which the shape is one half.
    """

    gamma: float = 0.1

    def __post_init__(self) -> None:
        check_positive("shaped_surrogate", gamma=self.gamma)

    def reads(self) -> frozenset[str]:
        return frozenset({"action_mask", "advantages"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        return -zero_outside(batch["advantages"], batch["action_mask"]) * self._shape(out, batch)

    def metrics(self, out: PolicyOutput, batch: Batch) -> dict[str, Tensor]:
        """shape: p / (p + gamma)."""
        return {"shape": self._shape(out, batch)}

    def _shape(self, out: PolicyOutput, batch: Batch) -> Tensor:
        p = zero_outside(out.logprobs, batch["action_mask"]).exp()
        return p / (p + self.gamma)
