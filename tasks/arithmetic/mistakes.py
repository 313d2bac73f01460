"""Pairs of worked sums: the right lines, and lines with a mistake from which the rest follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mmrl.core.rng import derive_rng
from mmrl.core.types import Episode, Prompt
from tasks.arithmetic.task import Arithmetic, result


def inject_mistake(operands: Sequence[int], symbol: str, line: int, error: int) -> list[int]:
    """Lines of a worked problem, wrong by `error` from a line on: 3+8+1, line 0, error 2 has the lines 13 and 14."""
    lines = [result(symbol, operands[:2])]
    lines[0] += error * (line == 0)
    for number, operand in enumerate(operands[2:], start=1):
        lines.append(result(symbol, [lines[-1], operand]) + error * (line == number))
    return lines


@dataclass(frozen=True)
class RunningSumPairs(Arithmetic):
    """Problems of `Arithmetic` with a right and a wrong worked answer: `chosen` and `rejected` of `Prompt.info`.

    The wrong one has a mistake of 1 to 5 in a random line, and is right after it but for that.
    """

    digits: Sequence[int] = (1, 1, 1, 1)
    steps: bool = True

    name = "running_sum_pairs"

    def score(self, episode: Episode) -> dict[str, float]:
        """Scores of a policy's answer, or those that a reward model's rollout found of a pair."""
        scores = episode.info.get("scores")
        return super().score(episode) if scores is None else dict(scores)

    def __getitem__(self, index: int) -> Prompt:
        prompt = super().__getitem__(index)
        info = prompt.info
        rng = derive_rng("running_sum_pairs", self.seed, self.split, index)
        line = int(rng.integers(len(info["operands"]) - 1))
        error = int(rng.integers(1, 6)) * (1 if rng.random() < 0.5 else -1)
        wrong = inject_mistake(info["operands"], info["operation"], line, error)
        right = inject_mistake(info["operands"], info["operation"], 0, 0)
        texts = {"chosen": "\n".join(map(str, right)), "rejected": "\n".join(map(str, wrong))}
        return replace(prompt, info={**info, **texts, "line": line})
