"""List the principles in feedback on a sentence: baba: full of b, drags on? is many b|y|full of b;short|n|drags on.

What RLBFF's extraction reads, and a reward model that is asked about one principle learns from.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mmrl.core.errors import check_fraction
from mmrl.core.types import Prompt
from tasks.checks import check_range, final_line
from tasks.generated import GeneratedTask, ask_user
from tasks.grammar.language import LETTERS
from tasks.grammar.task import draw_sentence
from tasks.judgements.principles import LONGEST, SATISFIED, WORDS, grade

HELPFUL = "helpful"
YES, NO, PARTIAL = "y", "n", "p"
"""Verdicts: satisfied, not satisfied, and in part."""
LETTER_PHRASES = {
    YES: ("full of {0}", "{0} all over"),
    NO: ("lacks {0}", "where is {0}"),
    PARTIAL: ("one {0} only", "some {0}"),
}
LENGTH_PHRASES = {YES: ("nice and brief", "to the point"), NO: ("drags on", "way too long"), PARTIAL: ("bit long",)}
HELPFUL_PHRASES = {YES: ("good job", "helps me"), NO: ("no use",), PARTIAL: ("helps a bit",)}
CODES = [f"+{letter}" for letter in LETTERS] + ["-n"]
"""Principles that annotators write about."""


@dataclass(frozen=True)
class Remarks:
    """A sentence, and of each annotator the principles of the feedback in its order: words, verdict and phrase."""

    response: str
    by_annotator: tuple[tuple[tuple[str, str, str], ...], ...]


@dataclass(frozen=True)
class Feedback(GeneratedTask):
    """Principles, verdicts and quotes in the feedback of the first of several annotators on a sentence.

    The response has two principles that most annotators write about. The others are those of one annotator alone.
    `Prompt.info` has the `response` and the `feedback` of all annotators, as the question shows one: baba: full of b?

    Args:
        annotators: of a sentence.
        mentioned: probability that an annotator writes about one of the two principles.
        further: probability of a further principle, and of a remark on helpfulness.
        errors: share of the verdicts of an annotator that are wrong.
    """

    annotators: int = 3
    mentioned: float = 0.9
    further: float = 0.3
    errors: float = 0.05

    name = "feedback"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self.name, "annotators, annotators", (self.annotators, self.annotators), 1, 8)
        check_fraction(f"task {self.name!r}:", mentioned=self.mentioned, further=self.further, errors=self.errors)

    def draw(self, rng: np.random.Generator) -> Remarks | None:
        response = draw_sentence(rng, LONGEST)
        salient = [CODES[i] for i in rng.permutation(len(CODES))[:2]]
        by_annotator = tuple(self._write_remarks(response, salient, rng) for _ in range(self.annotators))
        return Remarks(response, by_annotator) if all(by_annotator) else None

    def _write_remarks(
        self, response: str, salient: list[str], rng: np.random.Generator
    ) -> tuple[tuple[str, str, str], ...]:
        """Remarks of one annotator, in random order."""
        codes = [code for code in salient if rng.random() < self.mentioned]
        if rng.random() < self.further:
            others = [code for code in CODES if code not in salient]
            codes.append(others[int(rng.integers(len(others)))])
        remarks = [self._write_remark(code, response, rng) for code in codes]
        if rng.random() < self.further:
            verdict = (YES, NO, PARTIAL)[int(rng.integers(3))]
            remarks.append((HELPFUL, verdict, _choose(HELPFUL_PHRASES[verdict], rng)))
        return tuple(remarks[i] for i in rng.permutation(len(remarks)))

    def _write_remark(self, code: str, response: str, rng: np.random.Generator) -> tuple[str, str, str]:
        verdict = judge(code, response)
        if verdict != PARTIAL and rng.random() < self.errors:
            verdict = YES if verdict == NO else NO
        phrases = LENGTH_PHRASES if code[1] == "n" else LETTER_PHRASES
        return WORDS[code], verdict, _choose(phrases[verdict], rng).format(code[1])

    def split_key(self, problem: Remarks) -> str:
        return problem.response

    def write_prompt(self, problem: Remarks, key: str) -> Prompt:
        texts = [", ".join(phrase for _, _, phrase in remarks) for remarks in problem.by_annotator]
        feedback = tuple(f"{problem.response}: {text}?" for text in texts)
        info = {"response": problem.response, "feedback": feedback}
        return Prompt(key, ask_user(feedback[0]), answer=write_list(problem.by_annotator[0]), info=info)

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """exact: the right list; of a question about one principle, its right verdict; format: a list or a verdict."""
        line = final_line(answer)
        code = next((code for code, words in WORDS.items() if words == prompt.info.get("principle")), None)
        if "principle" not in prompt.info:
            return {"exact": float(line == prompt.answer), "format": float(line.count("|") % 2 == 0 and "|" in line)}
        right = code is not None and line == (YES if grade(code, prompt.info["response"]) >= SATISFIED else NO)
        return {"exact": float(right), "format": float(line in (YES, NO))}

    def demonstrate(self, index: int) -> str:
        return self.write_answer(write_list(self.problem(index).by_annotator[0]))

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        code = CODES[int(rng.integers(len(CODES)))]
        verdict = (YES, NO, PARTIAL)[int(rng.integers(3))]
        phrases = LENGTH_PHRASES if code[1] == "n" else LETTER_PHRASES
        return self.write_answer(write_list([(WORDS[code], verdict, _choose(phrases[verdict], rng).format(code[1]))]))


def judge(code: str, response: str) -> str:
    """The verdict on a sentence: y from grade 3 on, n at grade 1, p between them."""
    value = grade(code, response)
    return YES if value >= SATISFIED else NO if value == 1 else PARTIAL


def write_list(remarks: object) -> str:
    """Write remarks as a list: many b|y|full of b;short|n|drags on."""
    return ";".join("|".join(remark) for remark in remarks)  # type: ignore[attr-defined]


def _choose(phrases: tuple[str, ...], rng: np.random.Generator) -> str:
    return phrases[int(rng.integers(len(phrases)))]
