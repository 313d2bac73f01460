"""Problems of a generator of the package reasoning-gym, scored by that generator."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from mmrl.types import Prompt
from tasks.answers import AnswerTask
from tasks.checks import check_index, check_split


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
    """

    dataset: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    template: str = "{question}"
    size: int = 10_000
    held_out: int = 1024
    split: str = "train"
    seed: int = 0

    name = "reasoning_gym"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_split(self.name, self.split)
        if min(self.size, self.held_out) < 1:
            raise ValueError(
                f"task {self.name!r}: size and held_out must be at least 1, got {self.size} and {self.held_out}"
            )
        if self.template.count("{question}") != 1:
            raise ValueError(f"task {self.name!r}: template must hold {{question}} once, got {self.template!r}")

    @property
    def _generator(self) -> Any:
        return _generator(self.dataset, json.dumps(dict(self.parameters)), self.held_out + self.size, self.seed)

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
        known = _held_out_questions(self._generator, self.held_out)
        for step in range(self.size):
            number = self.held_out + (index + step) % self.size
            if self._generator[number]["question"] not in known:
                return number
        raise ValueError(
            f"task {self.name!r}: all {self.size} training problems of {self.dataset!r} are held out; lower "
            "task.held_out, raise task.size or set task.parameters so that there are more problems"
        )

    def on(self, split: str) -> ReasoningGym:
        return replace(self, split=split)

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """score: what the generator gives, from 0 to 1, with partial credit in some; exact: 1 if that is 1."""
        score = float(self._generator.score_answer(answer or None, self._generator[prompt.info["number"]]))
        return {"exact": float(score >= 1), "score": score}

    def demonstrate(self, index: int) -> str:
        answer = self[index].answer
        if not isinstance(answer, str):
            raise ValueError(
                f"task {self.name!r}: {self.dataset!r} checks answers and has none of its own to demonstrate; choose "
                "another generator"
            )
        return self.write_answer(answer)


@lru_cache(maxsize=16)
def _generator(dataset: str, parameters: str, size: int, seed: int) -> Any:
    try:
        import reasoning_gym
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"task 'reasoning_gym' needs the package {error.name}: pip install 'mmrl-lightning[reasoning]'"
        ) from error
    from reasoning_gym.factory import DATASETS

    if dataset not in DATASETS:
        near = difflib.get_close_matches(dataset, DATASETS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(DATASETS))}"
        raise ValueError(f"task.dataset={dataset!r} is no generator of reasoning-gym; {hint}")
    given = json.loads(parameters)
    try:
        return reasoning_gym.create_dataset(dataset, size=size, seed=seed, **given)
    except (TypeError, AssertionError, ValueError) as error:
        raise ValueError(f"task.parameters={given} are refused by the generator {dataset!r}: {error}") from error


@lru_cache(maxsize=16)
def _held_out_questions(generator: Any, count: int) -> frozenset[str]:
    return frozenset(generator[number]["question"] for number in range(count))
