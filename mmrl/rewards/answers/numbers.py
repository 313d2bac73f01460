r"""Read numbers in texts: the one grammar of every extractor and verifier that compares numbers.

Numbers are decimals (-0.5, 1,250.75, 1 250, 1{,}250, 1'250), repeating decimals (0.1\overline{6}), fractions (1/2,
\frac{1}{2}, 2 1/2 and the characters of Unicode), powers of ten (3e-7, 3 \times 10^{-7}), percent (50% is 0.5) and
multiples (42k, 5 million). A sign is any dash of Unicode, or "minus". Other powers, roots, ratios, dates, lists such as
1,2,3, numbers of another base and products with a variable have no value.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from decimal import Context, Decimal
from fractions import Fraction
from typing import NamedTuple

DASHES = "\u02d7\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u2796\ufe58\ufe63\uff0d"
"""Characters of Unicode that people write for a minus sign."""
_MINUS = str.maketrans(dict.fromkeys(DASHES, "-"))
_SUPERSCRIPTS = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+")
_SUBSCRIPTS = re.compile("[₀-₉]+")
_APOSTROPHE = re.compile("(?<=[0-9])[\u2019\u02bc\u066c](?=[0-9]{3}(?![0-9]))")
_REPEATING = re.compile(
    r"(?<![0-9.,\w])([0-9]{1,20})\.([0-9]{0,20})"
    r"(?:\\(?:overline|bar|dot)\s?(?:\{\s?([0-9]{1,20})\s?\}|([0-9]))|\(([0-9]{1,20})\))(?![0-9])"
)
_VULGAR = re.compile("(?:(?<=([0-9]))[ \u2009\u202f\u00a0]?)?([¼½¾⅐-⅞↉])")
_FRACTION = re.compile(
    r"(?:(?<=([0-9]))\s?)?\\[dtc]?frac\s*(?:\{\s*(-?[0-9]+)\s*\}\s*\{\s*([0-9]+)\s*\}|([0-9])([0-9]))"
)
_LATEX = (
    (re.compile("\u2044"), "/"),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"\\!"), ""),
    (re.compile(r"\\[,;: ]|(?<=[0-9])~(?=[0-9])"), " "),
    (re.compile(r"\\(?:left|right|displaystyle)(?![A-Za-z])"), ""),
    (re.compile(r"\\(?:times|cdot)(?![A-Za-z])"), "×"),
    (re.compile(r"\\([%$])"), r"\1"),
    # a sign in braces of its own, or outside of the marks of bold and code: {-}7, -**7**
    (re.compile(r"(?:\\(?:text|mathrm|mathbf))?\{-\}|\*\*-\*\*(?=[0-9.])"), "-"),
    (re.compile(r"(?<![\w)\]}*`-])-(\*{1,2}|`)(?=[$0-9.])"), r"\1-"),
)
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{([^{}]*)\}")
_TEN = r"[ ]?[×x*·⋅][ ]?10\^(?:\{[ ]?([+-]?[0-9]{1,3})[ ]?\}|\(([+-]?[0-9]{1,3})\)|([+-]?[0-9]{1,3}))"
_EXPONENT = r"\s?(?:\^|\*\*)\s?(?:\{[^{}\n]{0,40}\}|\([^()\n]{0,40}\)|[+-]?\w+)"
_TOKEN = re.compile(
    rf"""
    (?P<word>[^\W\d_]\w*(?:(?<=_)\{{\w{{1,20}}\}})?(?:\s?\^\s?(?:\{{[+-]?[0-9]+\}}|\([+-]?[0-9]+\)|[+-]?[0-9]+))?)
    |(?P<other>\\(?:[dtc]?frac|[dt]?binom)[^=$\n]{{0,200}}
        |\.?\\(?:overline|bar|dot)\s?\{{?\s?[0-9]+
        |\\sqrt\s?(?:\[[^\]\n]{{0,20}}\])?\s?(?:\{{[^{{}}\n]{{0,80}}\}}|[0-9]+)|[√∛∜]\s?\(?[0-9.]+
        |\\(?:log|ln|sin|cos|tan|exp|pi|sqrt)(?![A-Za-z])\s?[({{]?[0-9.]*
        |[_^]\s?[({{]?\s?[+-]?[0-9]+
        |0[xXbBoO][0-9A-Fa-f]+(?!\w)
        |(?<![0-9])[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}(?![0-9])
        |\|\s?[+-]?[0-9.,]{{1,40}}\s?\|)
    |(?P<number>
        (?P<body>[0-9]+[ ][0-9]+/[0-9]+(?![0-9/.,])
            |[0-9]{{1,3}}(?:[ ][0-9]{{3}})+(?![0-9])(?:\.[0-9]+)?(?![0-9.,/:])
            |(?:[0-9](?:[0-9.,:'_/]*[0-9])?|(?<![.\w,])\.[0-9]+)(?:[ ]/[ ][0-9]+(?![0-9/.]))?)
        (?P<ten>e[+-]?[0-9]{{1,3}}(?!\w)|{_TEN})?
        (?P<unit>\)?[ ]?%|\)?[ ](?:percent|per[ ]cent)\b|\)?k(?!\w)
            |\)?[ ](?:hundred|thousand|million|billion|trillion)\b)?
        (?P<bad>{_EXPONENT}|e[+-]?[0-9]+\w*|[ ]?(?:[π‰]|\\?pi(?![A-Za-z]))|[ ](?:dozens?|bn|mn)\b
            |(?:[xyzi]|(?-i:[MB]))(?!\w))?)
    |[^\w\\]|.
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_SIGN = re.compile(
    r"(?P<operand>[\w)\]}%]?)(?P<gap>\s*)(?P<signs>[-+±](?:[ \t]*[-+±])*|\b(?:minus|negative)\b)(?P<space>[ \t]*)"
    r"(?:[$€£¥]|[({][ \t]*)*\Z",
    re.IGNORECASE,
)
_CURRENCY = re.compile(r"[$€£¥({ \t]*\Z")
_BEFORE_MINUS = re.compile(r"\b(?:is|are|be|equals?|was|answer|result)\s*\Z", re.IGNORECASE)
_WHOLE = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,3}(?:'[0-9]{3})+|[0-9]{1,3}(?:_[0-9]{3})+|[0-9]+")
_DECIMAL = re.compile(rf"(?:{_WHOLE.pattern})(?:\.[0-9]+)?|\.[0-9]+")
_RATIO = re.compile(r"(?:([0-9]{1,40}) )?([0-9]+) ?/ ?([0-9]+)")
_VALUE = re.compile(r"-?(?:[0-9]{0,40}(?:\.[0-9]{1,40})?(?:e[+-]?[0-9]{1,2})?|[0-9]{1,40}/[0-9]{1,40})")
_PLACES = {"k": 3, "hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
"""Powers of ten of units; of percent it is -2."""
_WINDOW = 40  # characters before a number in which its sign stands


class NumberSpan(NamedTuple):
    """A number of a text: its place in the prepared text, sign included, and how it is written; None has no value."""

    start: int
    end: int
    written: str | None


def find_last_number(text: str) -> str | None:
    """Return the last number of a text, written without separators: 1,250 is 1250, 35.0 is 35, 1/2 stays a fraction.

    None if there is none, or if the last one has no value. Digits in words and powers of units do not count.
    """
    plain, last = _prepare(text), None
    for match in _iterate_tokens(plain):
        last = match
    return None if last is None else _read_number(plain, last).written


def parse_number(text: str) -> Fraction | None:
    """Return the exact value of a text that is one number and nothing else; None for other text.

    Up to 40 digits on each side of the point, and exponents of two digits: a text cannot make the arithmetic slow.
    """
    if len(text) > 200:
        return None
    text = text.strip()
    if len(text) > 2 and text[0] == text[-1] == "$":
        text = text[1:-1]
    plain = _prepare(text.strip())
    numbers = [_read_number(plain, match) for match in _iterate_tokens(plain)]
    if len(numbers) != 1 or plain[: numbers[0].start].strip(" +") or plain[numbers[0].end :].strip():
        return None
    digits = numbers[0].written
    return Fraction(digits) if digits is not None and _VALUE.fullmatch(digits) else None


def unify_width(text: str) -> str:
    """Return the text in Unicode's compatible form (NFKC), digits of full width as plain ones; 10² becomes 10^2."""
    return unicodedata.normalize("NFKC", _SUPERSCRIPTS.sub(lambda match: f"^{match.group()}", text))


def unify_powers(text: str) -> str:
    """Return the text with powers in LaTeX for superscripts: x² is x^{2}."""
    return _SUPERSCRIPTS.sub(lambda match: f"^{{{unicodedata.normalize('NFKC', match.group())}}}", unify_dashes(text))


def unify_dashes(text: str) -> str:
    """Return the text with one minus sign for every dash of Unicode."""
    return text.translate(_MINUS)


def _prepare(text: str) -> str:
    """Write LaTeX, characters for fractions, and dashes as plain text; a box as brackets."""
    text = _SUBSCRIPTS.sub(lambda match: f"_{{{unicodedata.normalize('NFKC', match.group())}}}", text)
    text = _REPEATING.sub(_write_repeating, _APOSTROPHE.sub("'", text))
    text = _VULGAR.sub(lambda match: " " * bool(match[1]) + _write_vulgar(match[2]), text)
    text = unify_dashes(unify_width(unify_dashes(text)))
    for pattern, replacement in _LATEX:
        text = pattern.sub(replacement, text)
    text = _FRACTION.sub(lambda match: " " * bool(match[1]) + f"{match[2] or match[4]}/{match[3] or match[5]}", text)
    return _BOX.sub(r"(\1)", text)


def _write_vulgar(character: str) -> str:
    return unicodedata.normalize("NFKC", character).replace("\u2044", "/")


def _write_repeating(match: re.Match[str]) -> str:
    r"""Write a decimal whose last digits repeat as a fraction: 0.1\overline{6} is (16 - 1)/90.

    0.(3) is 1/3 too, but 0.1(6) may be a product, which has no value.
    """
    whole, once, braced, single, bracketed = match.groups()
    if bracketed and once:
        return f"{whole}.{once}_{{{bracketed}}}"
    repeated = braced or single or bracketed
    above = int(whole + once + repeated) - int(whole + once)
    return str(Fraction(above, int("9" * len(repeated) + "0" * len(once))))


def _iterate_tokens(text: str) -> Iterator[re.Match[str]]:
    """Yield the numbers of a prepared text in order, and what has digits but no value."""
    return (match for match in _TOKEN.finditer(text) if match["other"] is not None or match["number"] is not None)


def _read_number(text: str, match: re.Match[str]) -> NumberSpan:
    """Read sign, digits, power of ten and unit of a token."""
    if match["other"] is not None:
        return NumberSpan(match.start(), match.end(), None)
    before = text[max(0, match.start() - _WINDOW) : match.start()]
    start, sign = _read_sign(before, match.start())
    glued = re.search(r"(?<!\.)[.,/:]\Z|/ \Z|_\Z", before) is not None
    glued = glued and re.search(r"[A-Za-z]:\Z|(?:^|\s):\Z", before) is None
    digits = None if glued or sign is None or match["bad"] else _write_digits(match)
    if digits is None:
        return NumberSpan(start, match.end(), None)
    return NumberSpan(start, match.end(), digits if sign == "" or digits == "0" else f"-{digits}")


def _read_sign(before: str, start: int) -> tuple[int, str | None]:
    """Return where a number with its sign starts, and "-", "" or None for a sign that may be a dash or two signs."""
    match = _SIGN.search(before)
    if match is None:
        currency = _CURRENCY.search(before)
        return start - (len(currency.group().lstrip()) if currency else 0), ""
    operand, signs = match["operand"], "".join(match["signs"].split())
    place = start - len(before) + match.start("signs")
    if signs.isalpha():
        return place, "" if operand.isdigit() else "-"
    if "±" in signs or (len(signs) > 1 and not (len(signs) == 2 and operand)):
        return place, None
    spaced = bool(match["space"])
    if len(signs) == 1 and operand:
        if not match["gap"] or (spaced and not operand.isalpha() and "\n" not in match["gap"]):
            return start, ""  # 27-8 and 27 - 8 are differences
        if spaced and "\n" not in match["gap"] and not _BEFORE_MINUS.search(before[: match.start("signs")]):
            return place, None  # "the total - 7" may be a dash
    return place, "-" if signs[-1] == "-" else ""


def _write_digits(match: re.Match[str]) -> str | None:
    """Write the digits of a token; None if they are a date, a ratio, a list, or a fraction of zero."""
    body, power = match["body"], match["ten"]
    if (ratio := _RATIO.fullmatch(body)) is not None:
        return None if power or match["unit"] or not ratio[3].strip("0") else _write_ratio(*ratio.groups())
    body = re.sub("[ '_,]", "", body) if _DECIMAL.fullmatch(body.replace(" ", "'")) else ""
    if not body:
        return None
    if power:
        exponent = power[1:] if power[0] in "eE" else power.partition("^")[2].strip("{() }")
        body = f"{_shorten(body)}e{exponent}"
    if match["unit"] is None:
        return body if power else _shorten(body)
    return _scale(body, _PLACES.get(match["unit"].strip(") ").lower(), -2))


def _write_ratio(whole: str | None, above: str, below: str) -> str | None:
    """Write a fraction, and a mixed number such as 2 1/2 as 5/2."""
    if whole is None:
        return f"{above}/{below}"
    return None if max(len(above), len(below)) > 40 else f"{int(whole) * int(below) + int(above)}/{below}"


def _scale(number: str, places: int) -> str | None:
    """Multiply a number by a power of ten without rounding; None for more than 60 characters."""
    if len(number) > 60:
        return None
    return _shorten(format(Decimal(number).scaleb(places, Context(prec=100)).normalize(Context(prec=100)), "f"))


def _shorten(number: str) -> str:
    """Write a number without leading zeros and without a fractional part of zeros."""
    whole, point, fraction = number.partition(".")
    if point and fraction.strip("0"):
        return number
    return (whole or "0").lstrip("0") or "0"
