"""The kinds of stages of a rounds file, with their options."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from mmrl.core.errors import check_at_least, check_fraction, check_interval, check_positive

PAIRS = ("best_worst", "best_lower")
"""Forms of preference pairs: the best row of a problem against its worst, or against one drawn from the lower rows."""


@dataclass(frozen=True)
class Stage:
    """What all stages have.

    Args:
        overrides: of `mmrl fit`, for this stage alone; they replace those of `common` with the same key.
    """

    kind: ClassVar[str]
    writes_rows: ClassVar[bool] = False
    overrides: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class SampleStage(Stage):
    """Sample completions of training problems, and score them with the task and the reward of the configuration.

    Args:
        weights: base, newest, or the name of an earlier fit, as improve or improve@1 (of round 1).
        count: problems; None for all from `offset` on.
        offset: index of the first problem.
        num_samples: completions of each problem.
        part: problems whose rows are written together; a killed stage goes on after the last whole part.
    """

    kind = "sample"
    writes_rows = True
    weights: str = "newest"
    count: int | None = None
    offset: int = 0
    num_samples: int = 1
    part: int = 256

    def __post_init__(self) -> None:
        check_at_least(1, "", num_samples=self.num_samples, part=self.part, count=self.count or 1)
        check_at_least(0, "", offset=self.offset)


@dataclass(frozen=True)
class ScoreStage(Stage):
    """Score the rows of earlier stages anew, with the reward of this stage's overrides.

    Args:
        reads: an earlier stage that writes completions, or several, whose rows are joined.
        part: as of a sample stage.
    """

    kind = "score"
    writes_rows = True
    reads: Any = None
    part: int = 256

    def __post_init__(self) -> None:
        check_at_least(1, "", part=self.part)


@dataclass(frozen=True)
class FilterStage(Stage):
    """Choose rows of earlier stages, or make preference pairs of them.

    Rows are dropped in this order: those that failed, by `min` and `max`, those that were cut off, a share of
    the problems that all samples solve, by `quantile` over all rows that are left, equal completions of a problem, all
    but the best of a problem.

    Args:
        reads: an earlier stage that writes completions, or several, whose rows are joined.
        min: by the name of a score, or `reward`: the smallest value of a row that stays.
        max: by the name: the largest value of a row that stays.
        quantile: share of the rows, of lowest `by`, that is dropped; rows at the threshold stay.
        cut: keep completions that were cut off at the limit of tokens; else they are no answers to learn from, and of
            a pair never the better one.
        solved: share of the problems that stay among those without a dropped row so far, which all samples solve; below
            1 they weigh less in what learns from the rows.
        distinct: keep one of equal completions of a problem, as in rejection sampling fine-tuning.
        best: rows of a problem that stay, those of highest `by`; None for all.
        by: score, or `reward`, by which rows are compared.
        pairs: best_worst or best_lower writes preference pairs, one a problem; None writes rows.
        margin: least difference in `by` of a pair's rows; a pair always differs.
        adds: earlier stages whose rows are added as they are, such as the original data.
    """

    kind = "filter"
    writes_rows = True
    reads: Any = None
    min: dict[str, float] = field(default_factory=dict)
    max: dict[str, float] = field(default_factory=dict)
    quantile: float | None = None
    cut: bool = False
    solved: float = 1.0
    distinct: bool = False
    best: int | None = None
    by: str = "reward"
    pairs: str | None = None
    margin: float = 0.0
    adds: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_fraction("", quantile=self.quantile or 0.0, solved=self.solved)
        check_at_least(1, "", best=self.best or 1)
        check_interval("", "[0, inf)", margin=self.margin)
        if self.pairs is not None and self.pairs not in PAIRS:
            raise ValueError(f".pairs must be {' or '.join(PAIRS)}, got {self.pairs!r}")
        if self.pairs is None and self.margin:
            raise ValueError(".margin is of preference pairs; set pairs too, or leave margin out")
        if self.pairs is not None and (self.adds or self.best is not None or self.solved < 1):
            name = "adds" if self.adds else "best" if self.best is not None else "solved"
            raise ValueError(f".{name} is for rows, and pairs={self.pairs} writes pairs; leave one of them out")
        for option in ("min", "max"):
            if bad := [name for name, value in getattr(self, option).items() if math.isnan(value)]:
                raise ValueError(f".{option}.{bad[0]} must be a number, got nan")


@dataclass(frozen=True)
class FitStage(Stage):
    """Train: a run of `mmrl fit` from given weights, on rows of an earlier stage or on the task itself.

    Without a row the stage is skipped, and its weights are those that it would have begun with.

    Args:
        weights: that it starts from, as of a sample stage.
        reads: the stage whose rows it learns from; None for the task and rollout of the configuration.
        passes: over the rows; it sets trainer.max_epochs. None leaves the number of iterations to the configuration.
        gate: a write stage; where its program was refused, this stage is skipped.
    """

    kind = "fit"
    weights: str = "newest"
    reads: Any = None
    passes: float | None = None
    gate: str | None = None

    def __post_init__(self) -> None:
        check_positive("", passes=1.0 if self.passes is None else self.passes)
        if self.passes is not None and self.reads is None:
            raise ValueError(".passes counts passes over rows; name the stage that writes them in reads")


@dataclass(frozen=True)
class EvaluateStage(Stage):
    """Measure weights on held-out problems, by `mmrl evaluate`.

    Args:
        weights: as of a sample stage.
        count: held-out problems; None as configured.
        num_samples: completions of each problem; None as configured.
        decode: sample, argmax, or a decode of the configuration; None for all that are configured.
        gate: as of a fit stage.
    """

    kind = "evaluate"
    weights: str = "newest"
    gate: str | None = None
    count: int | None = None
    num_samples: int | None = None
    decode: str | None = None

    def __post_init__(self) -> None:
        check_at_least(1, "", count=self.count or 1, num_samples=self.num_samples or 1)

    def options(self) -> list[str]:
        """Return the options of `mmrl evaluate`."""
        values = {"count": self.count, "num_samples": self.num_samples, "decode": self.decode}
        return [f"{name}={value}" for name, value in values.items() if value is not None]


@dataclass(frozen=True)
class WriteStage(Stage):
    """Let a writer write a program that rewards a simulator's decisions, and check it before anything is trained.

    The task is `written_reward`; a later fit takes the program by task.program=${folder.STAGE}/reward.py and names this
    stage as its gate, and so does the evaluate stage after it. The writer reads the simulator's names and the goal, and
    of the rounds before its programs, what was wrong with them, and what the policies of their gate reached.

    Args:
        goal: what the policy should do, in words.
        writer: files: [...] (programs or answers, in their order), or url and model of an OpenAI-compatible server.
        attempts: most answers; each that cannot be used is answered with the reason.
        order: least share of pairs of a successful and a failed recorded episode of which the program pays the
            successful one more; 0 asks for none. Until both kinds are recorded there is nothing to compare.
        success: least score of a successful episode: its success where the simulator reports one, else its return.
        episodes: recorded with random actions, and with each fit of the rounds before.
        comments: a person's words on the program of round 1, 2, ..., which the writer reads in the next one.
    """

    kind = "write"
    goal: str = ""
    writer: dict[str, Any] = field(default_factory=dict)
    attempts: int = 3
    order: float = 0.0
    success: float = 1.0
    episodes: int = 8
    comments: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_at_least(1, "", attempts=self.attempts, episodes=self.episodes)
        check_fraction("", order=self.order)
        if not self.goal.strip():
            raise ValueError(".goal must say in words what the policy should do")


@dataclass(frozen=True)
class RecordStage(Stage):
    """Record episodes of training problems in a simulator with a state vector, one row per control step.

    ${folder.STAGE}/episodes.npz has all of them, and ${folder.STAGE}/successes.npz those that succeeded, as flat arrays
    with D4RL's names, which rollout=offline and data=offline_replay read.

    Args:
        weights: as of a sample stage.
        expert: the simulator's script acts in place of the policy.
        noise: standard deviation of the noise on the expert's actions, in units of the action.
        count: episodes.
        offset: index of the first training problem.
        adds: earlier record stages, whose episodes come first in both files.
    """

    kind = "record"
    weights: str = "newest"
    expert: bool = False
    noise: float = 0.0
    count: int = 20
    offset: int = 0
    adds: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_at_least(1, "", count=self.count)
        check_at_least(0, "", offset=self.offset)
        check_interval("", "[0, inf)", noise=self.noise)
        if self.noise and not self.expert:
            raise ValueError(".noise is added to the expert's actions; set expert=true, or leave noise out")


KINDS: Mapping[str, type[Stage]] = {
    stage.kind: stage
    for stage in (SampleStage, ScoreStage, FilterStage, FitStage, EvaluateStage, WriteStage, RecordStage)
}
