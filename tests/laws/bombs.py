"""Answers whose scoring takes hours, or fills the memory, in a verifier without limits."""

from __future__ import annotations

_DEEP = 100_000
_WORD = "a" * 60_000
_SERIES = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t LIMIT 100000) SELECT"
_LAUGHS = "".join(f'<!ENTITY e{n + 1} "{f"&e{n};" * 10}">' for n in range(9))

BOMBS: dict[str, str] = {
    "brackets": "(" * _DEEP,
    "nested JSON lists": "[" * _DEEP + "]" * _DEEP,
    "nested JSON objects": '{"answer":' * _DEEP,
    "nested boxes": "\\boxed{" * _DEEP,
    "nested fractions": "\\boxed{" + "\\frac{1}{" * 5_000 + "2" + "}" * 5_000 + "}",
    "power tower": "\\boxed{9**9**9**9**9}",
    "factorials": "(((9!)!)!)!",
    "many digits": "9" * 1_000_000,
    "large exponent": "1e999999999",
    "small exponent": "0." + "0" * 500_000 + "1",
    "opened tags": "<answer>" * 16_000,
    "opened and closed thoughts": "<think>" * 16_000 + "</think>" * 16_000,
    "opened tool calls": "<tool_call>" * 16_000,
    "code fences": "```\n" * 50_000,
    "a word for nested repetition": _WORD + "!",
    "spaces before a letter": " " * 300_000 + "x",
    "blank lines": "\n" * 500_000,
    "numbers": "1 " * 200_000,
    "commas": "1," * 200_000,
    "signs": "-" * 200_000 + "1",
    "quotes": "'\"" * 100_000,
    "marks over a letter": "e" + "\u0301" * 200_000,
    "ligatures that grow": "\ufdfa" * 100_000,
    "broken surrogates": "\ud800" * 100_000,
    "wide table": "|" + "1|" * 100_000 + "\n|" + "-|" * 100_000,
    "picture in base64": "data:image/png;base64," + "iVBORw0KGgo" * 50_000,
    "XML entities": f'<?xml version="1.0"?><!DOCTYPE s [<!ENTITY e0 "ha">{_LAUGHS}]><svg>&e9;</svg>',
    "SVG arc": '<svg viewBox="0 0 8 8">' + '<path d="M0 0A1 1 0 0 1 1e30 1e30"/>' * 23 + "</svg>",
    "SVG circle": '<svg viewBox="0 0 8 8"><circle r="1e38" stroke="red"/><circle r="1e-38"/></svg>',
    "SVG of small steps": f'<svg viewBox="0 0 1e-30 1e-30"><path stroke="red" d="M0 0{"l1e9 1" * 200}"/></svg>',
    "SQL recursion": _SERIES.replace(" LIMIT 100000", "") + " COUNT(*) FROM t",
    "SQL trim": f"{_SERIES} SUM(length(trim(x, x || 'b'))) FROM t, (SELECT replace(hex(n), '0', '{'ab' * 2_000}') AS x)",
    "SQL trim of one text": f"SELECT trim('{'a' * 9_000}', '{'b' * 400}') || replace('{'a' * 300}', 'a', '{'b' * 300}')",
    "SQL pattern": f"SELECT '{'a' * 8_000}' LIKE '{'%a' * 45}b'",
    "Python loop": "```python\nwhile True:\n    pass\n```",
    "Python constant": "```python\ndef solve(*a): return 9**9**9**9\n```",
    "nested Python": "```python\nx = " + "(" * 5_000 + "1" + ")" * 5_000 + "\n```",
    "search blocks": "<<<<<<< SEARCH\na\n=======\n" * 5_000,
    "found": "find cat sits: 1\n" * 20_000 + "sits",
    "legs of a route": ", ".join(["red A B"] * 50_000),
}
"""By kind. Each is a text that a policy can write."""
