"""A measurement of one checkpoint, and two of them compared problem by problem."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from rich.table import Table

from mmrl.evaluation.accuracy import Rate
from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.finished import binary_score, finished
from mmrl.evaluation.held_out import HeldOut
from mmrl.evaluation.intervals import mcnemar
from mmrl.evaluation.pass_at_k import PassAtK
from mmrl.evaluation.report import Comparison, Measured
from mmrl.types import Episode, Sampling

Numbers = Mapping[str, Mapping[str, Mapping[str, float]]]
"""decode -> evaluator -> named numbers."""


def asked(
    held_out: HeldOut, training: Sampling, count: int | None, attempts: int | None, decodes: Sequence[str]
) -> HeldOut:
    """The configured evaluation with another number of problems, attempts, or other decodes.

    Several attempts are only worth playing under a decode that draws; pass@k is then measured beside every rate.

    Args:
        held_out: as configured.
        training: of the run, for decodes that the evaluation does not name.
        count: held-out problems; None as configured.
        attempts: per problem; None as configured.
        decodes: names in `held_out.sampling`, or "sample", "argmax", "mean"; empty for all that are configured.
    """
    out = copy.copy(held_out)
    out.count, out.attempts = count or held_out.count, attempts or held_out.attempts
    out.sampling = {name: _decode(name, held_out, training) for name in decodes or held_out.sampling}
    if out.attempts > 1 and not decodes:
        drawn = {name: sampling for name, sampling in out.sampling.items() if sampling.decode == "sample"}
        out.sampling = drawn or {"sample": _decode("sample", held_out, training)}
    if out.attempts > 1:
        ks = [k for k in (1, 2, 4, 8, 16, 32, 64, 128, 256) if k < out.attempts] + [out.attempts]
        rates = {name: part for name, part in held_out.evaluators.items() if isinstance(part, Rate)}
        passes: dict[str, Evaluator] = {
            f"{name}_pass": PassAtK(ks, rate.score, rate.level) for name, rate in rates.items()
        }
        out.evaluators = {**held_out.evaluators, **passes}
    return out


def _decode(name: str, held_out: HeldOut, training: Sampling) -> Sampling:
    if name in held_out.sampling:
        return held_out.sampling[name]
    ways = get_args(Sampling.__annotations__["decode"]) or ("sample", "argmax", "mean")
    if name not in ways:
        raise ValueError(f"decode={name}: give {', '.join(ways)} or a configured one of {sorted(held_out.sampling)}")
    return replace(training, decode=name)  # type: ignore[arg-type]


def numbers(held_out: HeldOut) -> dict[str, dict[str, dict[str, float]]]:
    """What every evaluator says about the episodes that were measured last."""
    return {
        decode: {name: evaluator(episodes) for name, evaluator in held_out.evaluators.items()}
        for decode, episodes in held_out.latest.items()
    }


def table(measured: Numbers, title: str) -> Table:
    """One line per number; those with an interval show it."""
    made = Table(title=title, title_justify="left", caption="[Wilson 95 % interval unless configured otherwise]")
    for position, header in enumerate(("decode", "measure", "value", "episodes", "errors")):
        made.add_column(header, justify="left" if position < 2 else "right", no_wrap=True)
    for decode, evaluators in measured.items():
        for name, values in evaluators.items():
            errors = f"{values.get('errors', 0):g}"
            for measure, value, count in _lines(name, values):
                made.add_row(decode, measure, value, count, errors)
    return made


def _lines(name: str, values: Mapping[str, float]) -> list[tuple[str, str, str]]:
    """(measure, value, count) of one evaluator: x with x_lower and x_upper, or mean with lower and upper, is a rate."""
    count = values.get("n", values.get("prompts"))
    shown = "" if count is None else f"{count:g}"
    lines = []
    for key, value in values.items():
        low, high = ("lower", "upper") if key == "mean" else (f"{key}_lower", f"{key}_upper")
        if low in values:
            interval = f"[{100 * values[low]:.1f}, {100 * values[high]:.1f}]"
            lines.append((name if key == "mean" else key, f"{100 * value:.1f} % {interval}", shown))
        elif key not in ("n", "prompts", "errors") and not key.endswith(("lower", "upper")):
            lines.append((f"{name}/{key}", f"{value:.4g}", shown))
    return lines


@dataclass(frozen=True)
class Paired:
    """Two checkpoints on the same problems under one decode.

    `p_value` is McNemar's exact two-sided one over the problems that both finished; `won` were solved after only,
    `lost` before only.
    """

    comparison: Comparison
    pairs: int
    won: int
    lost: int
    p_value: float

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {"pairs": self.pairs, "won": self.won, "lost": self.lost, "mcnemar_p": self.p_value}

    def __str__(self) -> str:
        word = "disjoint" if self.comparison.disjoint else "overlapping"
        return (
            f"{self.comparison.decode}: intervals {word}; of {self.pairs} problems {self.won} solved only after, "
            f"{self.lost} only before, exact McNemar p = {self.p_value:.2g}"
        )


def paired(decode: str, before: Sequence[Episode], after: Sequence[Episode], rate: Rate) -> Paired:
    """Compare one score of 0 or 1, one attempt per problem."""
    first, second = (_by_problem(episodes, rate.score) for episodes in (before, after))
    common = [key for key in first if key in second]
    won = sum(second[key] and not first[key] for key in common)
    lost = sum(first[key] and not second[key] for key in common)
    sides = [Measured(sum(side.values()), len(side), rate.level) for side in (first, second)]
    p_value = mcnemar([first[key] for key in common], [second[key] for key in common])
    return Paired(Comparison(decode, *sides), len(common), won, lost, p_value)


def _by_problem(episodes: Sequence[Episode], score: str) -> dict[str, bool]:
    right = {episode.prompt.key: binary_score(episode, score) == 1 for episode in finished(episodes)}
    if len(right) != len(finished(episodes)):
        raise ValueError("problems are compared in pairs of single attempts; measure with attempts=1")
    return right
