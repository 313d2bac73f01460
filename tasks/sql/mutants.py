"""Near misses of a query: one operator, number, column, word, function or clause changed, or a condition added."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.sql.generator import WORDS, Schema
from tasks.sql.verify import tokenize

_COMPARISONS = (">", "<", ">=", "<=", "=", "<>")
_AGGREGATES = ("avg", "sum", "max", "min", "count")
_CLAUSES = ("where", "group", "having", "order", "limit")
_ORDER = {"asc": "desc", "desc": "asc"}
_CONDITIONS = ((">", "1"), ("<", "9"))
"""Further conditions on the id, which leave out a row or two of most tables."""
_FEW = ("5", "9")  # rows that a query without a limit may be cut to


def mutate_query(query: str, schema: Schema) -> list[str]:
    """Return distinct queries that differ from one of `draw_question` in one place; some may mean the same."""
    tokens = tokenize(query)
    changed = [tokens[:start] + list(new) + tokens[end:] for start, end, new in _list_changes(tokens, schema)]
    return list(dict.fromkeys(" ".join(each) for each in changed))


def _list_changes(tokens: list[str], schema: Schema) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """Yield (start, end, tokens in place of those from start to end)."""
    for place, token in enumerate(tokens):
        following = tokens[place + 1] if place + 1 < len(tokens) else ""
        for others in _list_replacements(token, following, schema):
            yield place, place + 1, others
        if token == "select":
            yield (
                (place, place + 2, ("select",)) if following == "distinct" else (place, place + 1, (token, "distinct"))
            )
        if token == "not":
            yield place, place + 1, ()
        if token == "where":
            column = f"{schema.entity}.id" if "join" in tokens[:place] else "id"
            yield from ((place + 1, place + 1, (column, *each, "and")) for each in _CONDITIONS)
        if token == "avg" and tokens[place + 3 : place + 4] == [")"]:
            yield place, place + 4, ("round", "(", *tokens[place : place + 4], ")")
        if token in _CLAUSES:
            yield place, _find_end(tokens, place), ()
        if tokens[place : place + 3] == ["(", "*", ")"]:
            yield from ((place + 1, place + 2, ("distinct", c)) for c in ("name", *schema.numbers, *schema.texts))
            yield from ((place + 1, place + 2, ("distinct", c)) for c in (f"{schema.entity}.id", *schema.amounts))
        elif following == "(" and token in _AGGREGATES:
            yield place + 1, place + 2, ("(", "distinct")
        if token == "," and tokens[place + 1 : place + 2] == ["id"]:
            yield place, place + 2, ()
            yield place + 2, place + 2, ("desc",)
    if tokens[-2:-1] != ["limit"]:
        yield from ((len(tokens), len(tokens), ("limit", count)) for count in _FEW)


def _list_replacements(token: str, following: str, schema: Schema) -> list[tuple[str, ...]]:
    """Tokens that may stand in place of one token."""
    others: list[str] = []
    if token in _COMPARISONS:
        others = [sign for sign in _COMPARISONS if sign != token]
    elif token.isdigit():
        others = [str(int(token) + 1), str(int(token) - 1)]
    elif token in _AGGREGATES and following == "(":
        others = [name for name in _AGGREGATES if name != token]
    elif token in _ORDER:
        others = [_ORDER[token]]
    elif token == "join":
        return [("left", "join"), ("cross", "join"), ("full", "join")]
    elif token.startswith("'"):
        others = [f"'{word}'" for column in schema.texts for word in WORDS[column]]
    else:
        for columns in (("id", *schema.numbers), ("name", *schema.texts), schema.amounts):
            others += [column for column in columns if token in columns]
    return [(other,) for other in others if other != token]


def _find_end(tokens: list[str], start: int) -> int:
    """Place of the next clause of the same brackets, of their end, or of the end of the query."""
    depth = 0
    for place in range(start + 1, len(tokens)):
        depth += {"(": 1, ")": -1}.get(tokens[place], 0)
        if depth < 0 or (depth == 0 and tokens[place] in _CLAUSES):
            return place
    return len(tokens)
