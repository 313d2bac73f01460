"""Who says in which of two frames a goal is better achieved: a script, a function, or a vision-language model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from mmrl.core.errors import ConfigError, check_at_least, check_interval
from mmrl.core.function_path import load_functions
from mmrl.methods.control.offline_rl_vlm_f.pairs import FIRST, SECOND, UNCLEAR, FramePair
from mmrl.rewards.judges.base import LanguageJudge, NoAnswer
from mmrl.rewards.judges.questions import Question, Reply, Sheet, Unreadable

_WORDS = {"1": FIRST, "2": SECOND, "none": UNCLEAR}


class FrameComparer(ABC):
    """Base class of who labels pairs of frames."""

    @abstractmethod
    def compare(self, pairs: Sequence[FramePair], rng: np.random.Generator) -> list[int | NoAnswer]:
        """Label each pair: 0 the first is better, 1 the second, -1 unclear; or why there is no answer.

        Args:
            pairs: of frames.
            rng: drawn from by a comparer that is noisy.
        """


class RewardComparer(FrameComparer):
    """Scripted comparer, a noisy stand-in for a vision-language model: it compares the recorded rewards.

    Args:
        error: probability that a label is the wrong one.
        margin: rewards that differ by at most this are unclear.
    """

    def __init__(self, error: float = 0.1, margin: float = 0.0):
        check_interval("comparer", "[0, 0.5)", error=error)
        check_at_least(0, "comparer", margin=margin)
        self.error, self.margin = error, margin

    def compare(self, pairs: Sequence[FramePair], rng: np.random.Generator) -> list[int | NoAnswer]:
        wrong = rng.random(len(pairs)) < self.error
        return [self._label(pair, bool(flipped)) for pair, flipped in zip(pairs, wrong)]

    def _label(self, pair: FramePair, flipped: bool) -> int:
        if pair.rewards is None:
            raise ConfigError(
                "data.relabelling.comparer: the scripted comparer reads recorded rewards, and the recording has none; "
                "name one that sees the frames, JudgeComparer or FunctionComparer, as "
                "data.relabelling.comparer._target_=mmrl.methods.control.offline_rl_vlm_f.comparers.JudgeComparer"
            )
        first, second = pair.rewards
        if abs(first - second) <= self.margin:
            return UNCLEAR
        return SECOND if (second > first) != flipped else FIRST


class FunctionComparer(FrameComparer):
    """Comparer that is a function f(goal, first, second) of the goal and two frames, which returns 0, 1 or -1.

    Args:
        function: path, as compare.py:prefer or package.module:prefer.
    """

    def __init__(self, function: str):
        self.function = function
        self._call = load_functions([function], "data.relabelling.comparer.function")[0]

    def compare(self, pairs: Sequence[FramePair], rng: np.random.Generator) -> list[int | NoAnswer]:
        return [self._label(pair) for pair in pairs]

    def _label(self, pair: FramePair) -> int | NoAnswer:
        try:
            label = self._call(pair.goal, pair.first, pair.second)
        except Exception as error:
            return NoAnswer(f"{self.function} raised {type(error).__name__}: {error}")
        if label not in (FIRST, SECOND, UNCLEAR):
            return NoAnswer(f"{self.function} returned {label!r}; it must return 0, 1 or -1")
        return int(label)


class JudgeComparer(FrameComparer):
    """Comparer that asks a vision-language model in two steps: to describe both frames, then for the label.

    The second question holds the answer to the first, and no frame. Source: Wang et al., RL-VLM-F, 2024, section 4.2,
    arXiv:2402.03681.

    Args:
        judge: a vision-language model, as `mmrl.rewards.judges.server.ServerJudge`.
        two_steps: False asks for the label with the frames, in one question.
    """

    def __init__(self, judge: LanguageJudge, two_steps: bool = True):
        if not judge.sees_images or judge.of_run:
            raise ValueError(
                f"data.relabelling.comparer.judge={type(judge).__name__}: it must see pictures, and answer before the "
                "run has models; take mmrl.rewards.judges.server.ServerJudge"
            )
        self.judge, self.two_steps = judge, two_steps

    def compare(self, pairs: Sequence[FramePair], rng: np.random.Generator) -> list[int | NoAnswer]:
        if not self.two_steps:
            return self.judge.judge([self._ask(Sheet({"goal": pair.goal}), pair) for pair in pairs])
        described = self.judge.judge([self._ask_description(pair) for pair in pairs])
        answers: list[int | NoAnswer] = [text if isinstance(text, NoAnswer) else UNCLEAR for text in described]
        rows = [i for i, text in enumerate(described) if not isinstance(text, NoAnswer)]
        questions = [self._ask(Sheet({"goal": pairs[i].goal, "description": described[i]})) for i in rows]
        for i, label in zip(rows, self.judge.judge(questions)):
            answers[i] = label
        return answers

    @staticmethod
    def _ask_description(pair: FramePair) -> Question:
        task = (
            "You see two pictures. 1. What is shown in the first picture? 2. What is shown in the second picture? "
            "3. Is the goal better achieved in the first or in the second picture, or is there no difference?"
        )
        return Question(Sheet({"goal": pair.goal}).format(task), lambda reply: reply.text, (pair.first, pair.second))

    def _ask(self, sheet: Sheet, pair: FramePair | None = None) -> Question:
        shown = "You see two pictures." if pair else "The description is of two pictures."
        task = f"{shown} In which of them is the goal better achieved?"
        verdict = (
            "End with one line that reads\nbetter-MARK: N\nwhere N is 1 for the first picture, 2 for the second, or "
            "none if there is no difference or you cannot tell."
        )
        frames = (pair.first, pair.second) if pair else ()
        return Question(sheet.format(task, verdict), lambda reply: self._read(sheet, reply), frames)

    @staticmethod
    def _read(sheet: Sheet, reply: Reply) -> int:
        value = sheet.read(reply).get("better", "").lower()
        if value not in _WORDS:
            raise Unreadable(f"better: {value!r} is not 1, 2 or none")
        return _WORDS[value]
