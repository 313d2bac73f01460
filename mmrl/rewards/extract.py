"""Extract the final answer from a completion: the last number, a box, tags, the text after a marker, and so on."""

from __future__ import annotations

import json
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

LONGEST_ANSWER = 100_000
"""Characters of an answer, without its thoughts, that are read: the last ones, since answers stand at the end."""
_OPEN = re.compile(r"<(?:think|thinking|reasoning)>")
_CLOSE = re.compile(r"</(?:think|thinking|reasoning)>")
_MINUS = str.maketrans(dict.fromkeys("−–﹣－", "-"))
_SUPERSCRIPTS = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
# 12, -0.5, .5, 1,250.75, 3e-7, 1/2; not the end of a word, and no part of 1.2.3, of 1,2,3, of 3/4/2024 or of a power
# such as 10^-2. The minus of 3-5 and of (a)-5 is no sign
NUMBER = re.compile(
    r"(?<!\^)(?<!\^[-{])(?<!\^\{-)(?:(?<![\w.,/)\]])-|(?<![\w.,/]))(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)?"
    r"(?:\.[0-9]+)?(?<=[0-9])(?:e[+-]?[0-9]{1,3}|/[0-9]+)?(?![0-9^]|[.,/][0-9])",
    re.IGNORECASE,
)
_TRIES = 100  # boxes, from the end, and broken JSON objects that are read


class Extractor(ABC):
    """Base class of extractors. Thoughts between <think> tags are never read."""

    def __call__(self, completion: str) -> str | None:
        """Return the answer in a completion; None if there is none."""
        said = remove_thoughts(completion)
        found = None if said is None else self.find(said)
        return found.strip() or None if found is not None else None

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
    """The last number: 1,250 is 1250, 35.0 is 35, 1/2 stays a fraction. Digits of full width count.

    Words do not count, and neither do powers: 10^2 and m² have no number.
    """

    def find(self, text: str) -> str | None:
        found = NUMBER.findall(unify_width(text.translate(_MINUS)).translate(_MINUS))
        return _plain(found[-1]) if found else None


@dataclass(frozen=True)
class Boxed(Extractor):
    r"""The content of the last \boxed{...}, braces inside it included. A box that is not closed is no answer."""

    def find(self, text: str) -> str | None:
        for start in [match.end() for match in re.finditer(r"\\(?:boxed|fbox)\s*\{", text)][: -_TRIES - 1 : -1]:
            if (end := _closing_brace(text, start)) is not None:
                return text[start:end]
        return None

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
        letter, named = f"([{re.escape(self.letters)}])", r"(?i:\s++is)?+\s*+(?::\s*+)?(?:\*\*|\()*+"
        for pattern in (
            rf"\\boxed\{{\(?(?:\\text\{{)?\(?{letter}\)?\}}",
            rf"(?i:answer){named}{letter}(?![\w'])",
            rf"(?:^|\n)[ \t*(]*{letter}[\s*).:]*\Z",
            rf"(?:(?<!\w)\((?=.\))|(?i:choice|option){named}){letter}(?![\w'])",
        ):
            if found := re.findall(pattern, text):
                return found[-1]
        return None


@dataclass(frozen=True)
class Json(Extractor):
    """A field of the last JSON object that has it, not of one inside it: a text as it is, another value as JSON.

    Args:
        field: name of the field.
    """

    field: str = "answer"

    def find(self, text: str) -> str | None:
        decoder, found, start, tries = json.JSONDecoder(), None, text.find("{"), 0
        while start >= 0 and tries < _TRIES:
            try:
                value, end = decoder.raw_decode(text, start)
                found = value.get(self.field, found)
            except (ValueError, RecursionError):
                end, tries = start + 1, tries + 1
            start = text.find("{", end)
        return found if found is None or isinstance(found, str) else json.dumps(found)

    def write(self, answer: str) -> str:
        return json.dumps({self.field: answer})


@dataclass(frozen=True)
class Code(Extractor):
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


EXTRACTORS: Mapping[str, type[Extractor]] = {
    "text": Text,
    "last_number": LastNumber,
    "boxed": Boxed,
    "tags": Tags,
    "marker": Marker,
    "choice": Choice,
    "json": Json,
    "code": Code,
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
    known = [field.name for field in fields(EXTRACTORS[name])]  # type: ignore[arg-type]
    given = dict(parameters or {})
    for parameter, value in given.items():
        if parameter not in known:
            has = f"has {', '.join(known)}" if known else "has none"
            raise ValueError(f"{key}: {parameter!r} is no parameter of {name!r}, which {has}; correct the name")
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{key}.{name}.{parameter} must be a text that is not blank, got {value!r}")
    return EXTRACTORS[name](**given)


def remove_thoughts(text: str) -> str | None:
    """Return the text after the thoughts; None if a thought is not closed, so that nothing follows it.

    Of a text longer than LONGEST_ANSWER the end is returned.
    """
    rest = _CLOSE.split(text)[-1]  # a template may have opened the thought in the prompt
    return None if _OPEN.search(rest) else rest[-LONGEST_ANSWER:]


def unify_width(text: str) -> str:
    """Return the text in Unicode's compatible form (NFKC), digits of full width as plain ones; 10² becomes 10^2."""
    return unicodedata.normalize("NFKC", _SUPERSCRIPTS.sub(lambda found: f"^{found.group()}", text))


def _plain(number: str) -> str:
    """Write a number without thousands separators and without a fractional part of zeros."""
    plain = number.replace(",", "")
    whole, point, fraction = plain.partition(".")
    if point and not fraction.strip("0"):
        plain = whole or "0"
    digits = re.fullmatch(r"(-?)0*([0-9]+)", plain)
    return plain if digits is None else (digits[2] if digits[2] == "0" else digits[1] + digits[2])


def _closing_brace(text: str, start: int) -> int | None:
    """Position of the brace that closes the one before `start`; escaped braces do not count."""
    depth = 1
    for match in re.finditer(r"\\.|[{}]", text[start:], re.DOTALL):
        depth += {"{": 1, "}": -1}.get(match.group(), 0)
        if depth == 0:
            return start + match.start()
    return None
