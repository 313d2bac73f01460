"""Floor and ceiling of a task: the mean scores of answers that need no policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from mmrl.core.rng import derive_rng, derive_seed
from mmrl.core.text_environment import EnvironmentTask, TextEnvironment
from mmrl.core.types import Episode, Prompt, Task
from mmrl.rollouts.text.scripted import play_episode, scripted_episode


@dataclass(frozen=True)
class TaskBaselines:
    """Mean scores on held-out problems.

    Args:
        kind: "images" where prompts or observations show any, else "text".
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
    """Score the expert, random answers and the commonest answer on the first `count` held-out problems.

    In text environments the expert and random actions play, and the commonest action of the expert is repeated.
    """
    train, held_out = task.on("train"), task.on("held_out")
    prompts = [held_out[index] for index in range(min(count, len(held_out)))]
    examples = [train[index] for index in range(min(count, len(train)))]
    images = any(prompt.images or prompt.videos for prompt in prompts)
    if isinstance(held_out, EnvironmentTask):
        expert, random, majority = _environment_scores(held_out, prompts, examples)
        images = images or _observes_images(held_out, prompts[0])
    else:
        guesses = [held_out.guess(prompt, derive_rng("floor", prompt.key)) for prompt in prompts]
        expert = mean_scores(held_out, prompts, demonstrations(held_out, prompts))
        random = mean_scores(held_out, prompts, guesses)
        majority = score_commonest_answer(held_out, prompts, count)
    return TaskBaselines("images" if images else "text", len(prompts), expert, random, majority)


def score_commonest_answer(task: Task, prompts: Sequence[Prompt], count: int = 256) -> dict[str, float]:
    """Score the expert's commonest answer to the first `count` training problems on other prompts.

    In a text environment it is the commonest action, which is repeated.
    """
    train = task.on("train")
    examples = [train[index] for index in range(min(count, len(train)))]
    if isinstance(task, EnvironmentTask):
        return _environment_scores(task, prompts, examples)[-1]
    return mean_scores(task, prompts, [_commonest(demonstrations(train, examples))] * len(prompts))


def _environment_scores(task: Any, prompts: Sequence[Prompt], train: Sequence[Prompt]) -> list[dict[str, float]]:
    """Mean scores of the expert, of random actions and of the expert's commonest action in training problems."""

    def play(some: Sequence[Prompt], act: Callable[[Prompt, TextEnvironment], str]) -> list[Episode]:
        return [play_episode(task, prompt, partial(act, prompt)) for prompt in some]

    episodes = play(train, lambda _, environment: environment.expert_action())
    commonest = _commonest([turn.completion.output for episode in episodes for turn in episode.turns])
    draws = {prompt.key: derive_rng("floor", prompt.key) for prompt in prompts}
    actors: list[Callable[[Prompt, TextEnvironment], str]] = [
        lambda _, environment: environment.expert_action(),
        lambda prompt, environment: environment.random_action(draws[prompt.key]),
        lambda *_: commonest,
    ]
    return [_means(task.scores(play(prompts, act))) for act in actors]


def _observes_images(task: EnvironmentTask, prompt: Prompt) -> bool:
    """Whether the first observation of an episode has images."""
    environment = task.make_environment()
    observation = environment.reset(prompt, derive_seed("kind", prompt.key))
    environment.close()
    return bool(observation.images)


def _commonest(answers: Sequence[str]) -> str:
    counts = Counter(answers)
    return min(counts, key=lambda answer: (-counts[answer], answer))


def demonstrations(task: Task, prompts: Sequence[Prompt]) -> list[str]:
    """The expert's answer to each prompt; the last one where it takes several turns."""
    return [str(decisions[-1][1]) for decisions in task.demonstrations(prompts)]


def mean_scores(task: Task, prompts: Sequence[Prompt], answers: Sequence[str]) -> dict[str, float]:
    """Mean of every score over the answers; a score that an answer does not have counts as 0."""
    return _means(task.scores([scripted_episode(prompt, answer) for prompt, answer in zip(prompts, answers)]))


def _means(scores: Sequence[dict[str, float]]) -> dict[str, float]:
    names = sorted({name for each in scores for name in each})
    return {name: sum(each.get(name, 0.0) for each in scores) / len(scores) for name in names}
