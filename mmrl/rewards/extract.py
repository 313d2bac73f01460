"""Extract the final answer from a completion: the last number, a box, tags, the text after a marker, and so on."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from mmrl.rewards.answers.final_answer import find_final_answer
from mmrl.rewards.answers.latex_boxes import find_boxes
from mmrl.rewards.answers.numbers import find_last_number

LONGEST_ANSWER = 100_000
"""Characters of an answer, without its thoughts, that are read: the last ones, since answers stand at the end."""
_OPEN = re.compile(r"<(?:think|thinking|reasoning)>")
_CLOSE = re.compile(r"</(?:think|thinking|reasoning)>")
_TRIES = 100  # broken JSON objects that are read


class Extractor(ABC):
    """Base class of extractors. Thoughts between <think> tags are never read."""

    def __call__(self, completion: str) -> str | None:
        """Return the answer in a completion; None if there is none."""
        text = remove_thoughts(unify_lines(completion))
        answer = None if text is None else self.find(text)
        return answer.strip() or None if answer is not None else None

    @abstractmethod
    def find(self, text: str) -> str | None:
        """Return the answer in a text without thoughts; None if there is none."""

    def write(self, answer: str) -> str:
        """Write an answer so that it is found: the demonstration of the format."""
        return answer


@dataclass(frozen=True)
class Text(Extractor):
    """The whole text after the thoughts."""

    def find(self, text: str) -> str | None:
        return text


@dataclass(frozen=True)
class LastNumber(Extractor):
    """The last number (`mmrl.rewards.answers.numbers`): 1,250 is 1250, 35.0 is 35, 1/2 stays a fraction, 50% is 0.5.

    None if the last one has no value, such as 2^10, 1,2,3 or a date. Digits in words and powers of units do not count.
    """

    def find(self, text: str) -> str | None:
        return find_last_number(text)


@dataclass(frozen=True)
class Boxed(Extractor):
    r"""The content of the last \boxed{...}, braces inside it included.

    A box that is not closed is no answer, and neither is one that is a part of a formula, such as - \boxed{7} and
    \boxed{4}^2. What may stand beside a box says `mmrl.rewards.answers.latex_boxes`.
    """

    def find(self, text: str) -> str | None:
        closed = [box for box in find_boxes(text) if box.closed]
        return closed[-1].content if closed else None

    def write(self, answer: str) -> str:
        return rf"\boxed{{{answer}}}"


@dataclass(frozen=True)
class Tags(Extractor):
    """The text between the last <tag> and the </tag> after it.

    Args:
        tag: name of the tag.
    """

    tag: str = "answer"

    def find(self, text: str) -> str | None:
        end = text.rfind(f"</{self.tag}>")
        start = text.rfind(f"<{self.tag}>", 0, max(end, 0))
        return None if end < 0 or start < 0 else text[start + len(self.tag) + 2 : end]

    def write(self, answer: str) -> str:
        return f"<{self.tag}>{answer}</{self.tag}>"


@dataclass(frozen=True)
class Marker(Extractor):
    """The rest of the line after the last marker, or the next line; upper and lower case are the same.

    Args:
        marker: for example "####" of GSM8K, or "The answer is".
    """

    marker: str = "####"

    def find(self, text: str) -> str | None:
        *before, after = re.split(re.escape(self.marker), text, flags=re.IGNORECASE)
        lines = after.removeprefix(":").strip().splitlines() if before else []
        return lines[0].strip().strip("*").strip().removesuffix(".") if lines else None

    def write(self, answer: str) -> str:
        return f"{self.marker} {answer}"


@dataclass(frozen=True)
class Choice(Extractor):
    r"""The letter of a multiple choice.

    It is read from the first of these that the text has: \boxed{B}; "answer is (B)" or "Answer: B"; a last line such as
    "B." alone; "(B)" or "option B". Of several of one kind the last one counts.

    Args:
        letters: of the choices, in upper case.
    """

    letters: str = "ABCDE"

    def find(self, text: str) -> str | None:
        # blanks before a colon, and those behind it, are read in one way alone: a text of blanks takes linear time
        letter, link = f"([{re.escape(self.letters)}])", r"(?i:\s++is)?+\s*+(?::\s*+)?(?:\*\*|\()*+"
        for pattern in (
            rf"\\boxed\{{\(?(?:\\(?:text|textbf|mathrm|mathbf)\{{)?\(?{letter}\)?\}}",
            rf"(?i:answer){link}{letter}(?![\w'])",
            rf"(?:^|\n)[ \t*(]*{letter}[\s*).:]*\Z",
            rf"(?:(?<!\w)\((?=.\))|(?i:choice|option){link}){letter}(?![\w'])",
        ):
            if matches := re.findall(pattern, text):
                return matches[-1]
        return None


@dataclass(frozen=True)
class Json(Extractor):
    """A field of the last JSON object that has it, not of one inside it: a text as it is, another value as JSON.

    Args:
        field: name of the field.
    """

    field: str = "answer"

    def find(self, text: str) -> str | None:
        decoder, answer, start, tries = json.JSONDecoder(), None, text.find("{"), 0
        while start >= 0 and tries < _TRIES:
            try:
                value, end = decoder.raw_decode(text, start)
                answer = value.get(self.field, answer)
            except (ValueError, RecursionError):
                end, tries = start + 1, tries + 1
            start = text.find("{", end)
        return answer if answer is None or isinstance(answer, str) else json.dumps(answer)

    def write(self, answer: str) -> str:
        return json.dumps({self.field: answer})


@dataclass(frozen=True)
class CodeBlock(Extractor):
    """The first code block between lines of three backticks.

    Args:
        language: only blocks of this language, for example "python"; None for any.
    """

    language: str | None = None

    def find(self, text: str) -> str | None:
        for language, code in re.findall(r"^```[ \t]*+([\w+#-]*+)[^\n]*+\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            if self.language is None or language.lower() == self.language.lower():
                return code
        return None

    def write(self, answer: str) -> str:
        return f"```{self.language or ''}\n{answer}\n```"


@dataclass(frozen=True)
class Answer(Extractor):
    """The final answer in the forms of models from outside: boxed, in tags, in a fence, "The answer is 7.", **7**.

    See `mmrl.rewards.answers.final_answer`. Several different answers of one form are none.
    """

    def find(self, text: str) -> str | None:
        if "boxed" not in text and "fbox" not in text:
            return find_final_answer(text, [])
        contents = [box.content for box in find_boxes(text)]
        boxes = [content for content in contents if content is not None]
        # a box that is a part of a formula is no answer, and neither is another one beside it
        return find_final_answer(text, boxes) if boxes and len(boxes) == len(contents) else None


EXTRACTORS: Mapping[str, type[Extractor]] = {
    "text": Text,
    "last_number": LastNumber,
    "boxed": Boxed,
    "tags": Tags,
    "marker": Marker,
    "choice": Choice,
    "json": Json,
    "code": CodeBlock,
    "answer": Answer,
}


def build_extractor(spec: str | Mapping[str, Any], key: str = "task.extract") -> Extractor:
    """Build an extractor from its name, or from {name: {parameter: value}}.

    Args:
        spec: for example "boxed" or {"tags": {"tag": "final"}}.
        key: of the setting, for messages.
    """
    if isinstance(spec, Mapping) and len(spec) != 1:
        raise ValueError(f"{key}={dict(spec)!r}: write one name with its parameters, as in {key}={{tags: {{tag: a}}}}")
    name, parameters = (spec, {}) if isinstance(spec, str) else next(iter(spec.items()))
    if name not in EXTRACTORS:
        raise ValueError(f"{key}={name!r} is no extractor; choose one of {', '.join(EXTRACTORS)}")
    names = [field.name for field in fields(EXTRACTORS[name])]  # type: ignore[arg-type]
    arguments = dict(parameters or {})
    for parameter, value in arguments.items():
        if parameter not in names:
            has = f"has {', '.join(names)}" if names else "has none"
            raise ValueError(f"{key}: {parameter!r} is no parameter of {name!r}, which {has}; correct the name")
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{key}.{name}.{parameter} must be a text that is not blank, got {value!r}")
    return EXTRACTORS[name](**arguments)


def unify_lines(text: str) -> str:
    r"""Return the text with "\n" for every line end: of Windows, and of old Macintosh files."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def remove_thoughts(text: str) -> str | None:
    """Return the text after the thoughts; None if a thought is not closed, so that nothing follows it.

    Of a text longer than LONGEST_ANSWER the end is returned.
    """
    rest = _CLOSE.split(text)[-1]  # a template may have opened the thought in the prompt
    return None if _OPEN.search(rest) else rest[-LONGEST_ANSWER:]
