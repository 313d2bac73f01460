r"""Find the boxes of LaTeX in a text, \boxed{...} and \fbox{...}, and read what stands beside them.

A box that is a part of a formula holds no answer: - \boxed{7}, \boxed{4}^2, \sqrt{\boxed{7}}, 2\boxed{7}, \boxed{7}x.
Units beside a box change nothing (\boxed{7}\,\text{cm}, \$\boxed{7}), but a percent sign or a multiple belongs to its
number: \boxed{50}\% is 50\%, as in the grammar of numbers.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from mmrl.rewards.answers.numbers import DASHES, parse_number

_TRIES = 100  # boxes, from the end, whose neighbours are read
_WINDOW = 80  # characters on each side of a box
_TOKEN = re.compile(r"\\\\(?!(?:boxed|fbox)\s*\{)|\\(?:boxed|fbox)\s*\{|\\[^\\]|[{}]", re.DOTALL)

_STYLE = r"displaystyle|textstyle|boldsymbol|mathbf|mathrm|mathsf|text\w*|large|Large|LARGE|huge|Huge|bf|color\{\w+\}"
_OPENERS = re.compile(
    rf"(?:\\left(?![a-z])|\\[bB]igg?l?(?![a-z])|\\(?:{_STYLE})(?![A-Za-z])|\\[(\[$,;:! ]|[{{(\[$~ \t])*\Z"
)
_CLOSERS = re.compile(r"(?:\{\}|\\right(?![a-z])|\\[bB]igg?r?(?![a-z])|\\[)\],;:! ]|[})\]$~ \t])*")
_TEXT_BEFORE = re.compile(r"\\(?:text\w*|mbox|mathrm|mathbf|tag|label|begin|end|color)\s*\{([^{}]*)\}\Z")
_NEGATION = re.compile(rf"(?:\b(?:minus|negative|not|never)|\A\s*[-{DASHES}])\s*\Z", re.IGNORECASE)
_OPERATOR_BEFORE = re.compile(
    rf"(?:[-+/^×·⋅÷±∓√∛≠{DASHES}]|(?<=[\w)}}])[ \t]?\*|(?<=[A-Za-z0-9)}}])_|!="
    r"|\b(?:minus|negative|not|never|nor|neither|except)|n['\u2019]t)\Z",
    re.IGNORECASE,
)
_COMMAND_BEFORE = re.compile(r"\\([A-Za-z]+)\Z")
_FACTOR_BEFORE = re.compile(r"[0-9}]\Z")  # on the same line and in the same formula
_GLUED_BEFORE = re.compile(r"(?:[)\]|]|(?<![A-Za-z\\])[A-Za-z]|(?:^|[\s0-9$({])\.|[0-9],|(?:^|[=(\[{$] ?)[0-9.]+:)\Z")
_BESIDE = frozenset(
    (
        *("therefore", "because", "implies", "iff", "Rightarrow", "Longrightarrow", "rightarrow", "longrightarrow"),
        *(
            "to",
            "approx",
            "equiv",
            "cong",
            "sim",
            "simeq",
            "le",
            "leq",
            "leqslant",
            "ge",
            "geq",
            "geqslant",
            "lt",
            "gt",
        ),
        *("in", "quad", "qquad", "dots", "ldots", "cdots", "hfill", "newline", "par", "item", "noindent", "centering"),
        *("medskip", "bigskip", "smallskip", "text", "textbf", "textit", "textrm", "mathrm", "mathbf", "mbox", "tag"),
        *("label", "begin", "end", "degree", "blacksquare", "square", "qed", "checkmark", "hline", "color"),
    )
)
"""Commands of LaTeX that may stand beside a box: any other one makes it a part of a formula."""
_SCALE = re.compile(
    r"(?:\\[,;: ]|[ \t~])*(?:(\\?%)|(k)(?!\w)|(?:\\(?:text|mathrm|mbox)\{)?[ ~]*"
    r"(percent|per cent|hundred|thousand|million|billion|trillion)\b)"
)
_OPERATOR_AFTER = re.compile(
    r"\^(?!\s*(?:\{\s*)?(?:\\circ|°|\\degree))|[/×·⋅÷⁰¹²³⁴-⁹⁺⁻₀-₉]|_[A-Za-z0-9{\\(]|\*\*[0-9({]"
    r"|[-+*\u2212±][ \t]*[0-9\\({]|[-+*\u2212±][A-Za-z]|!+(?=\s*(?:[$^*/+]|\\[)\]a-z]))|:[ ]?[0-9]"
    r"|(?:is|are|was)(?: not|n['\u2019]t| wrong| incorrect| false)\b|\\boxed|\\fbox"
)
_CONTINUES_BEFORE = re.compile(r"(?:(?<![-+*/])[-+/^×·⋅÷±]|\\(?:times|cdot|div))[ \t]*\n[ \t]*\Z")
_CONTINUES_AFTER = re.compile(r"[ \t]*\n\s*(?:[\^×·⋅÷]|/(?!/))")
_COMMAND_AFTER = re.compile(r"\\([A-Za-z]+)")
_GLUED_AFTER = re.compile(r"[.][0-9]|,[0-9]{3}(?![0-9])|\{,\}[0-9]|e[+-]?[0-9]|(?:[a-cinp-ru-zMB]|π)(?!\w)|'+(?!\w)")
_FACTOR_AFTER = re.compile(r"[ \t]*[0-9]")
_AFTER_FORMULA = re.compile(r"[-+*\u2212±][ \t]*[0-9$]|[\^/⁰¹²³⁴-⁹⁺⁻₀-₉]")
_ENDS_FORMULA = re.compile(r"\$|\\[()\[\]]")


class Box(NamedTuple):
    """A box that is inside of no other one. content: None if it is a part of a formula, or is not closed."""

    content: str | None
    closed: bool


def find_boxes(text: str) -> list[Box]:
    """Return the boxes of a text in order, the last hundred at most; one within another one is a part of it."""
    return [_read_box(text, *span) for span in _find_spans(text)[-_TRIES:]]


def _find_spans(text: str) -> list[tuple[int, int, int | None]]:
    """Start of each outer box, start of its content, and its end; None for the end of one that is not closed."""
    spans: list[tuple[int, int, int | None]] = []
    open_braces: list[tuple[int, int] | None] = []  # None for a brace of no box
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token.endswith("{") and token != r"\{":
            open_braces.append((match.start(), match.end()) if len(token) > 1 else None)
        elif token == "}" and open_braces:
            span = open_braces.pop()
            if span is not None:
                while spans and spans[-1][0] > span[0]:
                    spans.pop()  # it is inside of this one
                spans.append((*span, match.start()))
    return sorted([*spans, *((*span, None) for span in open_braces if span is not None)])


def _read_box(text: str, start: int, content_start: int, end: int | None) -> Box:
    if end is None:
        return Box(None, False)
    content = text[content_start:end]
    before, after = text[max(0, start - _WINDOW) : start], text[end + 1 : end + 1 + _WINDOW]
    if _CONTINUES_BEFORE.search(before) or _CONTINUES_AFTER.match(after):
        return Box(None, True)
    before, after = before.rpartition("\n")[2], after.partition("\n")[0]
    scale = _SCALE.match(after)
    if scale is not None and parse_number(content) is not None:
        content, after = f"{content}{_write_scale(scale)}", after[scale.end() :]
    if _is_part_before(before) or _is_part_after(after, quoted=before.endswith("'")):
        return Box(None, True)
    return Box(_unnest(content), True)


def _write_scale(scale: re.Match[str]) -> str:
    return scale[1] or scale[2] or f" {scale[3]}"


def _is_part_before(before: str) -> bool:
    """Whether what stands before a box on its line makes it a part of a formula."""
    openers = _OPENERS.search(before)
    between = openers.group() if openers else ""
    rest = before[: len(before) - len(between)]
    if rest.endswith("}") and (text := _TEXT_BEFORE.search(rest)) is not None:
        return _NEGATION.search(text[1]) is not None
    command = _COMMAND_BEFORE.search(rest)
    if _OPERATOR_BEFORE.search(rest) or (command is not None and command[1] not in _BESIDE):
        return True
    if not _ENDS_FORMULA.search(between) and _FACTOR_BEFORE.search(rest):
        return True
    return not between and _GLUED_BEFORE.search(rest) is not None


def _is_part_after(after: str, quoted: bool) -> bool:
    """Whether what stands after a box on its line makes it a part of a formula."""
    closers = _CLOSERS.match(after)
    between = closers.group() if closers else ""
    rest = after[len(between) :]
    if _ENDS_FORMULA.search(between):
        return _AFTER_FORMULA.match(rest) is not None
    command = _COMMAND_AFTER.match(rest)
    if _OPERATOR_AFTER.match(rest) or (command is not None and command[1] not in _BESIDE):
        return True
    glued = None if between else _GLUED_AFTER.match(rest)
    return (glued is not None and not (quoted and glued.group() == "'")) or _FACTOR_AFTER.match(rest) is not None


def _unnest(content: str) -> str | None:
    """Content of a box without boxes that hold all of it; None if a box holds a part of it."""
    for _ in range(_TRIES):
        spans = _find_spans(content)
        if not spans:
            return content
        start, inner, end = spans[0]
        if end is None or content[:start].strip() or content[end + 1 :].strip():
            return None
        content = content[inner:end]
    return None
