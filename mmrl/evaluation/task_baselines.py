"""Floor and ceiling of a task: the mean scores of answers that need no policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mmrl.rng import derive_rng
from mmrl.rollouts.text.scripted import scripted_episode
from mmrl.types import Prompt, Task


@dataclass(frozen=True)
class TaskBaselines:
    """Mean scores on held-out problems.

    Args:
        kind: "images" where prompts show any, else "text".
        count: held-out problems.
        expert: scores of the task's expert, the ceiling.
        random: scores of answers that are drawn without reading the problem.
        majority: scores of the expert's commonest answer to training problems.
    """

    kind: str
    count: int
    expert: dict[str, float]
    random: dict[str, float]
    majority: dict[str, float]

    @property
    def floor(self) -> dict[str, float]:
        """The better of the random and the commonest answer, for each score."""
        return {name: max(self.random[name], self.majority[name]) for name in self.random}

    def plain(self) -> dict[str, Any]:
        """The fields as plain values, rounded to four digits."""
        rounded = {
            key: {name: round(score, 4) for name, score in value.items()} if isinstance(value, dict) else value
            for key, value in asdict(self).items()
        }
        return rounded


def measure_baselines(task: Task, count: int = 256) -> TaskBaselines:
    """Score the expert, random answers and the commonest answer on the first `count` held-out problems."""
    train, held_out = task.on("train"), task.on("held_out")
    prompts = [held_out[index] for index in range(min(count, len(held_out)))]
    known = Counter(demonstrations(train, [train[index] for index in range(min(count, len(train)))]))
    commonest = min(known, key=lambda answer: (-known[answer], answer))
    guesses = [held_out.guess(prompt, derive_rng("floor", prompt.key)) for prompt in prompts]
    return TaskBaselines(
        kind="images" if any(prompt.images for prompt in prompts) else "text",
        count=len(prompts),
        expert=mean_scores(held_out, prompts, demonstrations(held_out, prompts)),
        random=mean_scores(held_out, prompts, guesses),
        majority=mean_scores(held_out, prompts, [commonest] * len(prompts)),
    )


def demonstrations(task: Task, prompts: Sequence[Prompt]) -> list[str]:
    """The expert's answer to each prompt; the last one where it takes several turns."""
    return [str(decisions[-1][1]) for decisions in task.demonstrations(prompts)]


def mean_scores(task: Task, prompts: Sequence[Prompt], answers: Sequence[str]) -> dict[str, float]:
    """Mean of every score over the answers; a score that an answer does not have counts as 0."""
    scores = task.scores([scripted_episode(prompt, answer) for prompt, answer in zip(prompts, answers)])
    names = sorted({name for each in scores for name in each})
    return {name: sum(each.get(name, 0.0) for each in scores) / len(scores) for name in names}
