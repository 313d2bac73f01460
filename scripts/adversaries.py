"""Train tiny policies against verifiers with and without their guard: python scripts/adversaries.py.

A policy is a table of logits for each problem, position and token; it is trained by policy gradient. Each attack has
two verifiers. On sums of two digits, "stuffing": the answer is anywhere in the completion, or it is the final answer
(the task's verifier); "length": the scores of all steps are summed, or they go through clip and delta before. On the
boxes of a scene, "padding": mean average precision without or with the count factor. Writes docs/assets/adversaries.png
and prints what was reached.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from mmrl.core.types import Prompt, Task
from mmrl.evaluation.report.plots import COLOURS
from mmrl.ops.advantage import group_advantage
from mmrl.rewards.steps import StepTransform, split_steps
from tasks.arithmetic import Arithmetic
from tasks.scenes import Detection

ROOT = Path(__file__).parent.parent
POSITIONS, PROBLEMS, GROUP = 12, 8, 16
Verifier = Callable[[Sequence[str], Prompt], float]


@dataclass(frozen=True)
class Attack:
    """Problems, tokens beside the end, what stands between tokens, and the rewards with and without the guard."""

    task: Task
    words: Sequence[str]
    separator: str
    verifiers: dict[str, Verifier]

    def measure_exact(self, words: Sequence[str], prompt: Prompt) -> float:
        """Score of the task's verifier."""
        return self.task.verify(self.separator.join(words), prompt)["exact"]


@dataclass(frozen=True)
class Curve:
    """Means over the completions of each iteration: reward, accuracy by the task's verifier, number of tokens."""

    reward: list[float]
    exact: list[float]
    tokens: list[float]


def find_anywhere(words: Sequence[str], prompt: Prompt) -> float:
    """1 if the right number is one of the words: no guard against several answers."""
    return float(str(prompt.answer) in words)


def reward_steps(transform: StepTransform) -> Verifier:
    """A verifier that adds the scores of steps to the accuracy; 0.9 for a step that is right or says nothing."""

    def verify(words: Sequence[str], prompt: Prompt) -> float:
        steps = [step.strip() for step in split_steps("\n".join(words))]
        scores = [0.9 if step in ("ok", str(prompt.answer)) else 0.3 for step in steps]
        return SUMS.verify("\n".join(words), prompt)["exact"] + sum(transform(scores))

    return verify


def score_boxes(name: str) -> Verifier:
    """A verifier that gives one score of the detection task."""
    return lambda words, prompt: BOXES.verify("; ".join(words), prompt)[name]


SUMS, BOXES = Arithmetic(digits=(1, 1)), Detection(size=32, units=8, sides=(0.25, 0.5), distractors=(0, 0))
NUMBERS = [*map(str, range(19)), "ok"]
"""Tokens for sums; "ok" is a step that says nothing."""
PLACES = sorted({" ".join(map(str, box)) for index in range(PROBLEMS) for box in BOXES[index].answer})
"""Tokens for boxes: the true ones of all problems."""
ATTACKS = {
    "stuffing": Attack(
        SUMS,
        NUMBERS,
        " ",
        {
            "without guard": find_anywhere,
            "with guard": lambda words, prompt: SUMS.verify(" ".join(words), prompt)["exact"],
        },
    ),
    "length": Attack(
        SUMS,
        NUMBERS,
        "\n",
        {
            "without guard": reward_steps(StepTransform()),
            "with guard": reward_steps(StepTransform(clip=0.7, delta=True)),
        },
    ),
    "padding": Attack(
        BOXES, PLACES, "; ", {"without guard": score_boxes("map"), "with guard": score_boxes("detection")}
    ),
}


def train(attack: str, guard: str, iterations: int = 100, seed: int = 0) -> Curve:
    """Train a policy against a verifier, and measure every iteration."""
    problem = ATTACKS[attack]
    verifier, end = problem.verifiers[guard], len(problem.words)
    generator = torch.Generator().manual_seed(seed)
    prompts = [problem.task[index] for index in range(PROBLEMS)]
    table = torch.zeros(PROBLEMS, POSITIONS, end + 1)
    table[..., end] = math.log(end / 2)  # a third of the tokens end the completion at first
    table.requires_grad_()
    optimizer = torch.optim.Adam([table], lr=0.1)
    group = torch.arange(PROBLEMS).repeat_interleave(GROUP)
    curve = Curve([], [], [])
    for _ in range(iterations):
        logprobs = table.log_softmax(-1)[group]  # [N, T, V]
        tokens = torch.multinomial(logprobs.detach().exp().flatten(0, 1), 1, generator=generator).view(len(group), -1)
        before_end = (tokens == end).cumsum(1) == 0  # [N, T]
        mask = torch.cat([torch.ones(len(group), 1, dtype=torch.bool), before_end[:, :-1]], 1)  # the end is chosen too
        texts = [
            [problem.words[token] for token, here in zip(*row) if here]
            for row in zip(tokens.tolist(), before_end.tolist())
        ]
        rows = list(zip(texts, group.tolist()))
        rewards = torch.tensor([verifier(words, prompts[number]) for words, number in rows])
        exact = [problem.measure_exact(words, prompts[number]) for words, number in rows]
        advantage = group_advantage(rewards, group)
        token_logprobs = logprobs.gather(2, tokens[..., None])[..., 0]
        loss = -(advantage[:, None] * token_logprobs * mask).sum() / len(group)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        curve.reward.append(float(rewards.mean()))
        curve.exact.append(sum(exact) / len(exact))
        curve.tokens.append(float(before_end.sum(1).float().mean()))
    return curve


def plot(curves: dict[str, dict[str, Curve]], path: Path) -> None:
    """Plot accuracy and length of each attack, with and without the guard."""
    figure = Figure(figsize=(10, 4.2), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, len(curves), sharex=True, squeeze=False)
    for column, (attack, sides) in enumerate(curves.items()):
        for colour, (guard, curve) in zip(COLOURS, sides.items()):
            axes[0][column].plot(curve.exact, color=colour, label=guard)
            axes[1][column].plot(curve.tokens, color=colour, label=guard)
        axes[0][column].set_title(attack)
        axes[1][column].set_xlabel("iteration")
    axes[0][0].set_ylabel("accuracy")
    axes[1][0].set_ylabel("tokens, or boxes")
    axes[0][0].legend()
    figure.savefig(path, bbox_inches="tight", metadata={"Software": None})


def main() -> None:
    curves = {attack: {guard: train(attack, guard) for guard in sides.verifiers} for attack, sides in ATTACKS.items()}
    for attack, sides in curves.items():
        for guard, curve in sides.items():
            print(
                f"{attack} {guard}: reward {curve.reward[-1]:.2f}, accuracy {curve.exact[-1]:.2f}, "
                f"tokens {curve.tokens[-1]:.1f}"
            )
    plot(curves, ROOT / "docs" / "assets" / "adversaries.png")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    main()
