"""Scripted stand-ins for a language model that imagines dialogues about a wish, and for the one that judges them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mmrl.core.errors import check_fraction
from mmrl.core.rng import derive_rng
from mmrl.core.types import Prompt
from tasks.twenty_questions.table import TABLE
from tasks.twenty_questions.wishes import WishDialogue


@dataclass(frozen=True)
class ScriptedDialogues:
    """Writes dialogues of agents of several skills with a user whom it imagines.

    Args:
        random_fractions: by skill the probability that a turn of the agent is drawn at random; the others are those of
            the task's expert, for a user who answers as the imagined one.
        mistakes: probability of a wrong answer of the imagined user.
    """

    random_fractions: Mapping[str, float] = field(default_factory=lambda: {"good": 0.2, "fair": 0.6, "poor": 1.0})
    mistakes: float = 0.1

    def __post_init__(self) -> None:
        check_fraction("rollout.writer", mistakes=self.mistakes)
        for skill, fraction in self.random_fractions.items():
            check_fraction("rollout.writer.random_fractions", **{skill: fraction})

    def write(self, task: Any, prompts: Sequence[Prompt], skills: Sequence[str], seed: int) -> list[str]:
        """Write a dialogue of each prompt as lines "Agent: ..." and "User: ...", as `DialogueWriter.write`."""
        if unknown := sorted(set(skills) - set(self.random_fractions)):
            raise ValueError(
                f"rollout.skills has {unknown[0]!r}, and rollout.writer.random_fractions has "
                f"{sorted(self.random_fractions)}; name skills of these"
            )
        if not isinstance(task, WishDialogue):
            raise ValueError(
                f"rollout.writer: ScriptedDialogues writes about task 'wish_dialogue', got {task.name!r}; take "
                "rollout=imagined_model, whose writer is a language model"
            )
        imagined = replace(task, noise=self.mistakes)
        return [
            self._write(imagined, prompt, self.random_fractions[skill], seed + number)
            for number, (prompt, skill) in enumerate(zip(prompts, skills, strict=True))
        ]

    def _write(self, task: WishDialogue, prompt: Prompt, random_fraction: float, seed: int) -> str:
        rng, environment, lines = derive_rng("imagined dialogue", seed), task.make_environment(), list[str]()
        environment.reset(prompt, seed)
        while len(lines) < 2 * task.max_turns:
            expert = rng.random() >= random_fraction
            action = environment.expert_action() if expert else environment.random_action(rng)
            step = environment.step(action)
            lines += [f"Agent: {action}", f"User: {step.text}"]
            if step.done:
                break
        return "\n".join(lines)


@dataclass(frozen=True)
class ScriptedCritic:
    """Judges dialogues about a wish: whether the last turn names the wanted thing, and which answers are true."""

    def judge(self, task: Any, prompts: Sequence[Prompt], dialogues: Sequence[Sequence[str]]) -> list[Any]:
        """Outcome and consistency of each dialogue, as `DialogueCritic.judge`."""
        return [self._judge(task, prompt, turns) for prompt, turns in zip(prompts, dialogues, strict=True)]

    @staticmethod
    def _judge(task: WishDialogue, prompt: Prompt, turns: Sequence[str]) -> tuple[float, float]:
        thing = prompt.info["problem"].thing
        words = [task.read_word(turn) for turn in turns[::2]]  # the agent's
        answers = {"yes.": True, "no.": False}
        true = [
            answers.get(reply.lower()) == (word in TABLE[thing])
            for word, reply in zip(words, turns[1::2])
            if word in task.properties
        ]
        return float(words[-1] == thing), float(np.mean(true)) if true else 1.0
