r"""Find the final answer of a model that was trained elsewhere, in the forms that such models write."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mmrl.rewards.answers.latex_boxes import find_boxes

_NAME = (
    r"(?:(?:so|thus|therefore|hence|i think|i believe),? )?(?:that )?(?:the |my )?(?:final |correct |right )?"
    r"(?:answer|guess|result|solution)"
)
_LEAD = re.compile(
    rf"(?:(?<![^\n])|(?<=[.!?;:,] ))[*_#>• \t]*"
    rf"(?:{_NAME}[*_]*(?:[ \t]+is\b[ \t]*:?|[ \t]*:|[ \t]*(?=\n))|\#{{4}})[ \t]*([^\n]*)",
    re.IGNORECASE,
)
_DISPLAY = re.compile(r"^[ \t]*(\\\[|\$\$)[ \t]*\n[ \t]*(\S[^\n]*)\n[ \t]*(\\\]|\$\$)", re.MULTILINE)
_FENCE = re.compile(r"(`{3,}|~{3,})[\w+#.-]*")
_TAG = re.compile(r"<answer>([^<]*(?:<(?!/?answer>)[^<]*)*)</answer>")
_BULLET = re.compile(r"(?:[*•‣▪◦] +|- +(?![0-9.(])|#{1,6} +|> +)(?=\S)")
_PAIRS = (
    ("**", "**"), ("__", "__"), ("$$", "$$"), ("\\(", "\\)"), ("\\[", "\\]"), ("*", "*"), ("`", "`"), ("$", "$"),
    ('"', '"'), ("'", "'"), ("\u201c", "\u201d"), ("\u2018", "\u2019"), ("\u00ab", "\u00bb"),
    ("\\text{", "}"), ("\\textbf{", "}"), ("\\mathbf{", "}"), ("\\mathrm{", "}"),
)  # fmt: skip
"""Marks around an answer, before and after it."""
_GUESS_TAG = re.compile(r"<guess>([^<]*)</guess>")
_GUESS = re.compile(
    r"(?:[0-9]{1,2}[.)][ \t]+|(?:(?:so |then )?i(?:'ll| will| would)? (?:guess|try|say|choose|pick)"
    r"|let(?:'s| me| us) (?:try|guess|say)|my (?:next|first|second|last) (?:guess|try)(?: is| will be|:)"
    r"|(?:guess|question|turn)(?: [0-9]{1,2})?:)[ \t]+)(.+)",
    re.IGNORECASE,
)
"""A guess behind its number, or behind words that announce it."""
_LAYERS = 12  # wrappings that are removed


def find_final_answer(text: str, boxes: Sequence[str]) -> str | None:
    r"""Return the final answer of a text, without what wraps it; None for several different ones.

    The first of these that the text has: boxes, <answer> tags, fences, lines after "The answer is" or "Answer:", the
    text itself. Bold, italics, code marks, dollars, quotes, bullets, headings and the full stop at the end are removed
    from the answer's last line.

    Args:
        text: a completion without its thoughts.
        boxes: contents of its \boxed{...}.
    """
    text = _DISPLAY.sub(r"\1\2\3", text)  # a formula of three lines as one line
    tagged = [content for inside in _TAG.findall(text) for content in _list_fences(inside) or [inside]]
    for candidates in (boxes, tagged, _list_fences(text), _list_leads(text)):
        if candidates:
            answers = {unwrap(candidate) for candidate in candidates}
            return answers.pop() if len(answers) == 1 else None
    return unwrap(text)


def read_guess(text: str) -> str:
    """Return a guess in a game without what wraps it: My guess: fridge, "fridge", I guess fridge. are all fridge."""
    boxes = [box.content for box in find_boxes(text)]
    guesses = [content for content in boxes if content is not None] or _GUESS_TAG.findall(text)
    guess = (find_final_answer(text, guesses) or "").strip() if len(guesses) == len(boxes) or not boxes else ""
    for _ in range(_LAYERS):
        match = _GUESS.fullmatch(guess)
        inside = unwrap(match[1] if match else guess).strip("!?… ").removesuffix(" is my guess").strip()
        if len(inside) > 2 and inside[0] + inside[-1] in ("()", "[]", "{}"):
            inside = inside[1:-1].strip()
        if inside == guess:
            break
        guess = inside
    return guess


def unwrap(text: str) -> str:
    """Remove what stands around the last line of an answer: marks in pairs, a bullet, the full stop at the end."""
    before, newline, line = text.strip("\n").rstrip().rpartition("\n")
    indented = line
    for _ in range(_LAYERS):
        outer, line = line, line.strip()
        if bullet := _BULLET.match(line):
            line = line[bullet.end() :]
        if line.endswith(".") and not line.endswith("..") and len(line) > 1:
            line = line[:-1].rstrip()
        for opening, closing in _PAIRS:
            inside = line[len(opening) : len(line) - len(closing)]
            if line.startswith(opening) and line.endswith(closing) and _is_closed(inside, opening, closing):
                line = inside
                break
        if line == outer:
            break
    return f"{before}{newline}{indented if line == indented.strip() else line}"


def _is_closed(inside: str, opening: str, closing: str) -> bool:
    """Whether a text between two marks has content and none of these marks: "a" or "b" is no quoted text."""
    return bool(inside.strip()) and opening not in inside and closing not in inside


def _list_fences(text: str) -> list[str]:
    """Return the contents of the blocks between lines of three or more backticks or tildes, as Markdown has them.

    A block ends at a line of at least as many of its marks; one that is not closed is none.
    """
    blocks: list[str] = []
    lines: list[str] = []
    opening = ""  # of the block that is open
    for line in text.split("\n"):
        mark = line.strip(" \t")
        if opening and len(mark) >= len(opening) and not mark.strip(opening[0]):
            blocks.append("\n".join(lines))
            opening = ""
        elif opening:
            lines.append(line)
        elif match := _FENCE.fullmatch(mark):
            opening, lines = match[1], []
    return blocks


def _list_leads(text: str) -> list[str]:
    """Return what follows each "The answer is", on its line or else on the next one."""
    answers = []
    for match in _LEAD.finditer(text):
        rest = match[1].strip().strip("*_").strip() and match[1].strip()
        answers.append(_balance(rest or text[match.end() :].strip().partition("\n")[0]))
    return answers


def _balance(text: str) -> str:
    """Remove the closing half of bold that began before the lead: **Answer:** 7, **Answer: 7**."""
    text = text.strip()
    if text.count("**") % 2:
        text = text.removeprefix("**") if text.startswith("**") else text.removesuffix(".").removesuffix("**")
    return text
