"""Problems of a generator of the package reasoning-gym, scored by that generator."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from mmrl.core.errors import check_at_least, check_interval
from mmrl.core.types import Episode, Prompt
from tasks.answers import AnswerTask
from tasks.checks import check_index, check_split
from tasks.reasoning_gym.generator import build_generator
from tasks.reasoning_gym.scorer import GeneratorArguments, Graded, grade


@dataclass(frozen=True)
class ReasoningGym(AnswerTask):
    """Problems of one generator; a question that is held out is never trained on, however small the generator is.

    Args:
        dataset: name of the generator, for example chain_sum, simple_equations, knights_knaves.
        parameters: of its configuration, for example {min_terms: 2, max_terms: 2}; without size and seed.
        template: of the user's turn; {question} stands for the generator's question.
        size: number of training problems.
        held_out: number of held-out problems.
        split: "train" or "held_out".
        seed: of the generator; part of the task, not of the run.
        timeout_s: limit of scoring an answer, in seconds; one that takes longer scores 0.
    """

    dataset: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    template: str = "{question}"
    size: int = 10_000
    held_out: int = 1024
    split: str = "train"
    seed: int = 0
    timeout_s: float = 10.0

    name = "reasoning_gym"
    packages = ("reasoning_gym",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_split(self.name, self.split)
        check_at_least(1, f"task {self.name!r}:", size=self.size, held_out=self.held_out)
        check_interval(f"task {self.name!r}:", "(0, 1e4)", timeout_s=self.timeout_s)
        if self.template.count("{question}") != 1:
            raise ValueError(f"task {self.name!r}: template must hold {{question}} once, got {self.template!r}")

    @property
    def _source(self) -> GeneratorArguments:
        return GeneratorArguments(self.dataset, json.dumps(dict(self.parameters)), self.held_out + self.size, self.seed)

    @property
    def _generator(self) -> Any:
        return build_generator(*self._source)

    def __len__(self) -> int:
        return self.held_out if self.split == "held_out" else self.size

    def __getitem__(self, index: int) -> Prompt:
        check_index(self, index)
        number = index if self.split == "held_out" else self._train_number(index)
        entry = self._generator[number]
        return Prompt(
            key=f"{self.name}/{self.dataset}/{self.split}/{index}",
            messages=({"role": "user", "content": self.template.replace("{question}", entry["question"])},),
            answer=entry["answer"],
            info={"number": number},
        )

    def _train_number(self, index: int) -> int:
        """Number of a training problem in the generator: the next one from this index on that is not held out."""
        questions = _held_out_questions(self._generator, self.held_out)
        for step in range(self.size):
            number = self.held_out + (index + step) % self.size
            if self._generator[number]["question"] not in questions:
                return number
        raise ValueError(
            f"task {self.name!r}: all {self.size} training problems of {self.dataset!r} are held out; lower "
            "task.held_out, raise task.size or set task.parameters so that there are more problems"
        )

    def on(self, split: str) -> ReasoningGym:
        return replace(self, split=split)

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """score: what the generator gives, from 0 to 1, with partial credit in some; exact: 1 if that is 1."""
        return _name_scores(self._grade([(answer, prompt)])[0])

    def score(self, episode: Episode) -> dict[str, float]:
        return self.scores([episode])[0]

    def scores(self, episodes: Sequence[Episode]) -> list[dict[str, float]]:
        """The scores of each episode; `info["outcome"]` says how it was scored, and what is no score is counted."""
        answers = [self.read_answer(episode) for episode in episodes]
        graded = self._grade([(answer or "", episode.prompt) for answer, episode in zip(answers, episodes)])
        for episode, one in zip(episodes, graded):
            episode.info["outcome"] = one.outcome
            if one.outcome not in ("right", "wrong"):
                counts = episode.info.get("counts", {})
                episode.info["counts"] = {**counts, f"{self.name}/{one.outcome}": 1}
        return [{**self.score_format(answer), **_name_scores(one)} for answer, one in zip(answers, graded)]

    def _grade(self, answers: Sequence[tuple[str, Prompt]]) -> list[Graded]:
        numbers = [prompt.info["number"] for _, prompt in answers]
        entries = {number: self._generator[number] for number in set(numbers)}
        pairs = [(answer, entries[number]) for (answer, _), number in zip(answers, numbers)]
        return grade(self._source, pairs, self.timeout_s)

    def demonstrate(self, index: int) -> str:
        answer = self[index].answer
        if not isinstance(answer, str):
            raise ValueError(
                f"task {self.name!r}: {self.dataset!r} checks answers and has none of its own to demonstrate; choose "
                "another generator"
            )
        return self.write_answer(answer)


def _name_scores(graded: Graded) -> dict[str, float]:
    return {"exact": float(graded.score >= 1), "score": graded.score}


@lru_cache(maxsize=16)
def _held_out_questions(generator: Any, count: int) -> frozenset[str]:
    return frozenset(generator[number]["question"] for number in range(count))
