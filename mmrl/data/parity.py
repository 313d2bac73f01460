"""Checks of sampled rows: their staleness, and the parity of the engine's log-probs with the learner's."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from mmrl.annotators.logprobs import positive_rows, score_rows
from mmrl.core.batch import Batch
from mmrl.core.errors import check_at_least
from mmrl.core.types import Context, PolicyOutput
from mmrl.policies.base import Policy

log = logging.getLogger(__name__)

BOUNDS = {torch.float32: (1e-3, 1e-2), torch.float16: (1e-2, 1e-1), torch.bfloat16: (5e-2, 3e-1)}
"""Mean |difference| in nats beyond which to warn and to refuse, by the precision in which the learner computes.

float32 on a CPU differs by 1e-6 from one order of summation to another, with the 11 bits of TF32 in one of the two by
up to 1e-3; a log-prob from logits of size 10 in the 11 bits of float16 is off by about 5e-3, in the 8 bits of bfloat16
by about 4e-2. Other weights, another prompt or another temperature are off by 0.1 and more, except after tiny steps.
"""
OUTLIER = 10
"""Largest allowed difference of one choice as a multiple of the mean's limit: unlikely choices have larger errors."""
AT_ONCE = 16  # rows per forward pass


def sampled_rows(batch: Batch) -> Tensor:
    """Mask of rows that this run's policy sampled; demonstrations and logged rows have version -1."""
    return batch["action_mask"].any(1) & ~batch["is_demo"] & (batch["policy_version"] >= 0)


def measure_staleness(batch: Batch, ctx: Context, allowed: int) -> dict[str, float]:
    """Mean staleness of the sampled rows of all ranks; refuses rows older than `allowed` or newer than the learner.

    Weights have the version of the iteration that began with them.
    """
    sampled = sampled_rows(batch)
    local_ages = (ctx.iteration - batch["policy_version"][sampled]).tolist()
    ages = [age for part in ctx.collector.gather([local_ages]) for age in part]
    if not ages:
        return {}
    if max(ages) > allowed or min(ages) < 0:
        wrong = max(ages) if max(ages) > allowed else min(ages)
        raise ValueError(
            f"iteration {ctx.iteration} was given rows that weights of version {ctx.iteration - wrong} sampled, but "
            f"only versions {ctx.iteration - allowed} to {ctx.iteration} may: data.engine was not given the weights "
            "by sync, or its completions carry another version than that of the weights they were sampled with"
        )
    return {"rollout/staleness": sum(ages) / len(ages)}


@dataclass
class Parity:
    """Recompute log-probs of some rows with the learner and compare them with the engine's.

    It looks at the first iteration, also after a resume, and at every so many after it, at choices that the policy
    made itself: forced choices and demonstrations have no log-probs to compare, and those of a log were made by other
    weights (policy_version -1). parity/mean and parity/max are |difference| in nats. A run is refused when the mean
    exceeds `refuse` or one choice ten times as much.

    Args:
        every: iterations between two looks.
        rows: how many rows to score, over all ranks.
        warn: mean |difference| in nats beyond which to warn; None takes what the learner's precision explains.
        refuse: mean |difference| in nats beyond which to stop; None as for `warn`.
    """

    every: int = 10
    rows: int = 64
    warn: float | None = None
    refuse: float | None = None
    _looked: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        positive_rows(self.rows, "parity")
        check_at_least(1, "parity", every=self.every)
        for name in ("warn", "refuse"):
            if (bound := getattr(self, name)) is not None and bound <= 0:
                raise ValueError(f"parity.{name} must be > 0 nats, got {bound}; data.parity=null does not look at all")

    def __call__(self, batch: Batch, policy: Policy, ctx: Context) -> dict[str, float]:
        """Metrics of this iteration, equal on all ranks; empty if the iteration is not checked.

        Args:
            batch: the rows of this rank.
            policy: with the weights that the engine is said to have sampled them with.
        """
        planned = ctx.iteration % self.every == 0
        if self._looked and not planned:
            return {}
        comparison = _compare(self._select_rows(batch, ctx), policy, ctx.device)
        ranks = [rank for rank in ctx.collector.gather([comparison]) if rank]
        if not ranks:
            return {}
        self._looked = True
        mean = math.fsum(rank.total for rank in ranks) / sum(rank.count for rank in ranks)
        worst = max(ranks, key=lambda rank: rank.difference)
        warn, refuse = self._bounds(policy, ctx.device)
        if not (mean <= refuse and worst.difference <= OUTLIER * refuse):  # NaN fails both comparisons and is refused
            raise ValueError(_message(mean, worst, refuse, ctx) + _CAUSES)
        if mean > warn or worst.difference > OUTLIER * warn:
            log.warning("%s", _message(mean, worst, warn, ctx))
        # a check made only because of a resume is not logged, so that a resumed run has equal metrics
        return {"parity/mean": mean, "parity/max": worst.difference} if planned else {}

    def _select_rows(self, batch: Batch, ctx: Context) -> Batch:
        """Select rows with sampled choices, evenly spaced over this rank's rows."""
        batch = _newest_choices(batch)
        sampled = sampled_rows(batch).nonzero().flatten()
        count = min(len(sampled), max(self.rows // ctx.world_size, 1))
        return batch.select(sampled[torch.arange(count) * len(sampled) // max(count, 1)])

    def _bounds(self, policy: Policy, device: torch.device) -> tuple[float, float]:
        warn, refuse = BOUNDS.get(precision_of(policy, device), BOUNDS[torch.float32])
        refuse = self.refuse or refuse
        return min(self.warn or warn, refuse), refuse


def _newest_choices(batch: Batch) -> Batch:
    """Leave, of rows that several weights sampled, the choices of the newest ones, which are the policy's."""
    if "choice_versions" not in batch or not batch["action_mask"].any():
        return batch
    versions = batch["choice_versions"]
    return batch.with_columns(action_mask=batch["action_mask"] & (versions == versions.max()))


@dataclass(frozen=True)
class _Compared:
    """Comparison on one rank: number of choices, sum of |differences|, and the choice with the largest difference."""

    count: int
    total: float
    difference: float
    version: int
    group: int
    step: int
    choice: int
    engine: float
    learner: float


def _compare(batch: Batch, policy: Policy, device: torch.device) -> _Compared | None:
    if not batch.rows:
        return None
    learner = score_rows(policy, batch, _logprobs, AT_ONCE, device)
    difference = (learner - batch["behavior_logprobs"]).abs().masked_fill(~batch["action_mask"], 0.0)
    # NaN counts as the largest difference
    row, choice = divmod(int(difference.nan_to_num(math.inf).argmax()), difference.shape[1])
    return _Compared(  # type: ignore[call-arg]
        int(batch["action_mask"].sum()),
        float(difference.double().sum()),
        float(difference[row, choice]),
        *(int(batch[name][row]) for name in ("policy_version", "group", "step")),
        choice,
        float(batch["behavior_logprobs"][row, choice]),
        float(learner[row, choice]),
    )


def precision_of(policy: Policy, device: torch.device) -> torch.dtype:
    """Precision in which the policy computes: that of autocast, else the lowest precision of its weights."""
    if torch.is_autocast_enabled(device.type):
        return torch.get_autocast_dtype(device.type)
    dtypes = {p.dtype for p in policy.parameters() if p.is_floating_point()}
    return max(dtypes, key=lambda dtype: torch.finfo(dtype).eps)


def _message(mean: float, worst: _Compared, bound: float, ctx: Context) -> str:
    return (
        f"iteration {ctx.iteration}: the engine and the learner disagree about how likely the same choices are, by "
        f"{mean:.2g} nats on average, more than {bound:.2g}, or by more than {OUTLIER} times that at one. Worst, by "
        f"weights of version {worst.version}: group {worst.group}, row (step) {worst.step}, choice {worst.choice}: "
        f"engine {worst.engine:.4g}, learner {worst.learner:.4g}"
    )


_CAUSES = (
    ". Either the engine does not have the learner's weights (a sync or an adapter that did not arrive), or it reads "
    "another prompt (chat template, images), or its log-probs are those before temperature or truncation "
    "(data.sampling), or it computes in a lower precision: then say how much is right in data.parity.refuse, and "
    "correct for it with objective=decoupled"
)


def _logprobs(out: PolicyOutput) -> torch.Tensor:
    return out.logprobs
