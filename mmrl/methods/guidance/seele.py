"""SEELE: hints (prefixes of the solution) with a fitted length at which about half of the completions succeed.

SEELE: Staying in the Sweet Spot, Responsive Reasoning Evolution via Capability-Adaptive Hint Scaffolding, 2025,
arXiv:2509.06923, section 3.

- accuracy b + (1 - b) / (1 + exp(-k (p + mu))) with the share p of the solution shown: `Response`
- its least-squares fit to the rounds of a visit: `fit_response`
- rounds of completions, each after a hint: `Hinted`
- loss of the hint tokens: `HintNegativeLogLikelihood`
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.columns import pad_value, per_choice
from mmrl.core.errors import check_at_least, check_interval
from mmrl.core.types import Completion, Context, Episode, Observation, PolicyOutput, Prompt, Request, Turn
from mmrl.objectives.objective import Term
from mmrl.ops.masked import masked_sum
from mmrl.rollouts.base import Rollout, turn_seed

PRIOR = {"slope": 10.0, "place": -0.5, "floor": 0.1}
"""Prior of the fit: an accuracy of 1/2 if a little less than half of the solution is shown."""
PRIOR_WEIGHT = 0.002
"""Weight of the prior, in squared errors of the accuracy per squared unit (a factor of e, half of the solution, a fifth
of all completions): small against any measurement, but one measured point then determines a curve."""


@dataclass(frozen=True)
class Response:
    """f(p) = b + (1 - b) / (1 + exp(-k (p + mu))), the accuracy with the share p of the solution shown.

    Source: SEELE, 2025, section 3, arXiv:2509.06923 (three-parameter logistic model of item response theory).
    """

    slope: float  # k > 0
    place: float  # mu
    floor: float  # b in [0, 1)

    def __call__(self, share: float) -> float:
        return float(_curve(share, self.slope, self.place, self.floor))

    def share_for(self, accuracy: float) -> float:
        """The least share in [0, 1] with which the accuracy is expected: -mu - log((1 - b) / (a - b) - 1) / k."""
        if self.floor >= accuracy:
            return 0.0
        odds = (1 - self.floor) / (accuracy - self.floor) - 1
        return float(np.clip(-self.place - np.log(odds) / self.slope, 0.0, 1.0)) if odds > 0 else 1.0


def fit_response(points: Sequence[tuple[float, float]]) -> Response:
    """Fit a `Response` by least squares to points (share, accuracy); accuracies at one share are averaged first.

    The best of a grid of curves, which no start and no local minimum can miss.
    """
    by_share: dict[float, list[float]] = defaultdict(list)
    for share, accuracy in points:
        by_share[share].append(accuracy)
    # (curves,) parameters of all curves, and the prior's penalty of each
    slope, place, floor, unusual = _grid()
    error = unusual.copy()
    for share, accuracies in by_share.items():
        error += (_curve(share, slope, place, floor) - np.mean(accuracies)) ** 2
    best = int(error.argmin())
    return Response(float(slope[best]), float(place[best]), float(floor[best]))


def _curve(share, slope, place, floor):
    return floor + (1 - floor) / (1 + np.exp(-slope * (share + place)))


@lru_cache(maxsize=1)
def _grid() -> tuple[np.ndarray, ...]:
    parts = np.meshgrid(np.geomspace(2, 50, 16), np.linspace(-1.3, 0.3, 81), np.linspace(0, 0.6, 13), indexing="ij")
    slope, place, floor = (part.ravel() for part in parts)
    z_scores = (np.log(slope / PRIOR["slope"]), (place - PRIOR["place"]) / 0.5, (floor - PRIOR["floor"]) / 0.2)
    return slope, place, floor, PRIOR_WEIGHT * sum(z**2 for z in z_scores)  # type: ignore[return-value]


class Hinted(Rollout):
    """SEELE: complete a prompt in several rounds, each after a prefix of the task's demonstration.

    The first round at a prompt shows all but one token of it, or what the last visit found right. After each round a
    curve is fitted to the shares and accuracies of this visit, and the next round shows what it says gives `target`.
    Hints are forced tokens, with `imitation_mask` True, and the policy goes on from them; a held-out measurement that
    plays single turns shows none. Shares are remembered for every prompt, alike on all processes, and saved.

    Args:
        rounds: per prompt; they share its data.group_size completions equally.
        target: accuracy that is aimed at.
        score_name: name of the score that is 1 for a success.
        hint_fraction: fixed fraction of the solution to show; None: fitted.
    """

    def __init__(
        self, rounds: int = 4, target: float = 0.5, score_name: str = "exact", hint_fraction: float | None = None
    ):
        check_at_least(1, "rollout", rounds=rounds)
        check_interval("rollout", "(0, 1)", target=target)
        if hint_fraction is not None and not 0 <= hint_fraction <= 1:
            raise ValueError(f"rollout.hint_fraction must be in [0, 1] or null, got {hint_fraction}")
        self.rounds, self.target, self.score_name, self.hint_fraction = rounds, target, score_name, hint_fraction
        self.known: dict[int, float] = {}  # share for the next visit, by the prompt's index

    @classmethod
    def writes(cls) -> frozenset[str]:
        return frozenset({"imitation_mask"})

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        visits = [self._visit(slot, prompt, ctx) for slot, prompt in prompts]
        for number in range(self.rounds):
            entries = [(visit, index) for visit in visits for index in visit.sample_indices[number :: self.rounds]]
            requests = [visit.request(index, ctx) for visit, index in entries]
            completions = ctx.engine.sample(requests, ctx.sampling)
            latest = [visit.episode(index, done, ctx) for (visit, index), done in zip(entries, completions)]
            ctx.collector.score(latest)
            for visit in visits:
                self._learn(visit, [episode for episode in latest if episode.group == visit.slot])
            ctx.progress("rollout", number + 1, self.rounds)
        return [episode for visit in visits for episode in sorted(visit.episodes, key=lambda e: e.sample_index)]

    def _visit(self, slot: int, prompt: Prompt, ctx: Context) -> _Visit:
        indices = ctx.sample_indices(slot)
        if len(indices) % self.rounds:
            raise ValueError(
                f"rollout.rounds={self.rounds} do not divide {len(indices)} completions; change data.group_size"
            )
        raw = prompt.observation
        solution = ctx.policy.encode_demonstration(raw, ctx.task.demonstrate(prompt.index))[
            :-1
        ]  # the end is the policy's to find
        first = (len(solution) - 1) / len(solution)
        share = self.known.get(prompt.index, first) if self.hint_fraction is None else self.hint_fraction
        return _Visit(slot, prompt, raw, ctx.policy.encode(raw), solution, indices, share)

    def _learn(self, visit: _Visit, latest: Sequence[Episode]) -> None:
        """Add a point of the completions that were scored, those of failed requests left out, and fit the share."""
        valid = [episode for episode in latest if episode.ended != "error"]
        for episode in valid:
            if self.score_name not in episode.scores:
                raise KeyError(
                    f"rollout.score_name={self.score_name!r} is no score of {visit.prompt.key!r}, "
                    f"which has {sorted(episode.scores)}"
                )
        visit.episodes += latest
        if valid:
            accuracy = sum(episode.scores[self.score_name] >= 1 for episode in valid) / len(valid)
            visit.points.append((visit.share, accuracy))
        if self.hint_fraction is None and visit.points:
            visit.share = fit_response(visit.points).share_for(self.target)
        for episode in visit.episodes:
            episode.info["next_share"] = visit.share

    def observe(self, groups: Sequence[Sequence[Episode]]) -> None:
        for group in groups:
            self.known[group[0].prompt.index] = group[0].info["next_share"]

    def state_dict(self) -> dict[str, Any]:
        return {"known": dict(self.known)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.known = {int(index): share for index, share in state["known"].items()}


@dataclass
class _Visit:
    """One prompt in one iteration."""

    slot: int
    prompt: Prompt
    raw: Mapping[str, Any]
    observation: Observation  # encoded
    solution: Tensor  # [L] ids without the end of the answer
    sample_indices: range
    share: float  # of the solution, that the next round shows
    points: list[tuple[float, float]] = field(default_factory=list)
    episodes: list[Episode] = field(default_factory=list)

    @property
    def hint(self) -> Tensor:
        return self.solution[: round(self.share * len(self.solution))]

    def request(self, sample_index: int, ctx: Context) -> Request:
        prefix = self.hint if len(self.hint) else None
        return Request(self.raw, turn_seed(self.slot, sample_index, ctx), prefix, prompt_id=self.slot)

    def episode(self, sample_index: int, done: Completion, ctx: Context) -> Episode:
        """Return the hint and its completion as one episode, in the context of the prompt without the hint."""
        hint = self.hint
        done = replace(done, observation=self.observation, prompt_id=self.slot)
        turn = Turn(_after(hint, done, ctx.policy.decode(hint.tolist())))
        info = {"hint": len(hint), "shown": self.share}
        return Episode(self.prompt, self.slot, sample_index, [turn], ended=done.ended, info=info)


def _after(hint: Tensor, done: Completion, text: str) -> Completion:
    def longer(part: Tensor, value: float) -> Tensor:
        return torch.cat([part.new_full((len(hint), *part.shape[1:]), value), part])

    along = filter(per_choice, done.extra)
    extra = {name: longer(done.extra[name], pad_value(name)) for name in along}
    imitation_mask = torch.arange(len(hint) + len(done.action)) < len(hint)
    return replace(
        done,
        action=torch.cat([hint.to(done.action.dtype), done.action]),
        behavior_logprobs=longer(done.behavior_logprobs, 0),
        action_mask=longer(done.action_mask, False),
        output=text + done.output,
        extra={**done.extra, **extra, "imitation_mask": imitation_mask},
    )


@dataclass(frozen=True)
class HintNegativeLogLikelihood(Term):
    """Negative log-likelihood of hints in the completion (SEELE), in nats per sampled token of the row.

    -sum_hint log pi / C with the C sampled tokens of the row. A term per row is multiplied by the row's summed weight,
    which is C times the weight of a sampled token, so that each hint token has the weight of a sampled token of its
    row, however long hint and completion are. 0 for rows without a hint.
    """

    def reads(self) -> frozenset[str]:
        return frozenset({"imitation_mask", "action_mask"})

    def __call__(self, out: PolicyOutput, batch: Batch) -> Tensor:
        choices = batch["action_mask"].sum(1).clamp(min=1)
        return -masked_sum(out.full_logprobs, batch["imitation_mask"], dim=1) / choices
