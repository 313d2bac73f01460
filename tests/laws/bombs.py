"""Answers whose scoring takes hours, or fills the memory, in a verifier without limits."""

from __future__ import annotations

_DEEP = 100_000
_WORD = "a" * 60_000
_TEXTS = "WITH RECURSIVE t(x, n) AS (SELECT 'ab', 1 UNION ALL SELECT x || x, n + 1 FROM t WHERE n < 16) SELECT"
_OF_LONG = "FROM t, t AS u, t AS v WHERE length(t.x) > 60000"
_LAUGHS = "".join(f"<!ENTITY e{n + 1} '{f'&e{n};' * 10}'>" for n in range(9))

BOMBS: dict[str, str] = {
    "brackets": "(" * _DEEP,
    "nested JSON lists": "[" * _DEEP + "]" * _DEEP,
    "nested JSON objects": '{"answer":' * _DEEP,
    "nested boxes": "\\boxed{" * _DEEP,
    "nested fractions": "\\boxed{" + "\\frac{1}{" * 5_000 + "2" + "}" * 5_000 + "}",
    "power tower": "\\boxed{9**9**9**9**9}",
    "factorials": "(((9!)!)!)!",
    "many digits": "9" * 200_000,
    "large exponent": "1e999999999",
    "small exponent": "0." + "0" * 100_000 + "1",
    "opened tags": "<answer>" * 16_000,
    "opened and closed thoughts": "<think>" * 16_000 + "</think>" * 16_000,
    "opened tool calls": "<tool_call>" * 16_000,
    "code fences": "```\n" * 50_000,
    "a word for nested repetition": _WORD + "!",
    "spaces before a letter": " " * 150_000 + "x",
    "blank lines": "\n" * 200_000,
    "numbers": "1 " * 80_000,
    "commas": "1," * 80_000,
    "signs": "-" * 200_000 + "1",
    "quotes": "'\"" * 60_000,
    "marks over a letter": "e" + "\u0301" * 200_000,
    "ligatures that grow": "\ufdfa" * 100_000,
    "broken surrogates": "\ud800" * 100_000,
    "wide table": "|" + "1|" * 100_000 + "\n|" + "-|" * 50_000,
    "picture in base64": "data:image/png;base64," + "iVBORw0KGgo" * 50_000,
    "XML entities": f'<?xml version="1.0"?><!DOCTYPE s [<!ENTITY e0 "ha">{_LAUGHS}]><svg>&e9;</svg>',
    "SVG arc": "<svg viewBox='0 0 8 8'>" + "<path d='M0 0A1 1 0 0 1 1e30 1e30'/>" * 23 + "</svg>",
    "SVG circle": '<svg viewBox="0 0 8 8"><circle r="1e38" stroke="red"/><circle r="1e-38"/></svg>',
    "SVG arcs at a large scale": "<svg viewBox='0 0 .01 .01'><path d='M0 0"
    + "a9 1 0 0 1 9999 1" * 90
    + "' stroke='red'/></svg>",
    "SQL recursion": "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT COUNT(*) FROM t",
    "SQL plan": "WITH a0 AS (SELECT 1 AS x)"
    + "".join(f", a{i} AS (SELECT p.x FROM a{i - 1} AS p, a{i - 1} AS q)" for i in range(1, 40))
    + " SELECT COUNT(*) FROM a39",
    "SQL trim": f"{_TEXTS} SUM(length(trim(t.x || u.n, u.x || 'b' || v.n))) {_OF_LONG}",
    "SQL pattern": f"{_TEXTS} COUNT(t.x LIKE '{'%a' * 40}_c') {_OF_LONG}",
    "Python loop": "```python\nwhile True:\n    pass\n```",
    "Python constant": "```python\ndef solve(*a): return 9**9**9**9\n```",
    "nested Python": "```python\nx = " + "(" * 5_000 + "1" + ")" * 5_000 + "\n```",
    "search blocks": "<<<<<<< SEARCH\na\n=======\n" * 5_000,
    "found": "find cat sits: 1\n" * 20_000 + "nothing",
    "tag that does not end": "</think><answer>" + "a</answer " * 20_000,
    "a fence and blanks": "```" + " " * 90_000,
    "a fence and a word": "```" + "a" * 90_000,
    "an answer after blanks": "answer" + " " * 90_000 + "!",
    "words of a search": "<search>" * 16_000 + "[TOOL_CALLS]" * 8_000 + "<|python_tag|>" * 4_000,
    "legs of a route": ", ".join(["red A B"] * 50_000),
}
"""By kind. Each is a text that a policy can write."""
