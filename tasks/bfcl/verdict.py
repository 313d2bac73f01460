"""Whether calls are right, by the rules of the Berkeley Function-Calling Leaderboard.

Source: Patil et al., "The Berkeley Function Calling Leaderboard (BFCL): From Tool Use to Agentic Evaluation of Large
Language Models", ICML 2025; version 4, part "abstract syntax tree".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Function = Mapping[str, Any]
"""name, description and parameters, whose types are those of Python: dict, float, tuple."""
Answer = Mapping[str, Sequence[Any]]
"""By parameter, the values that are right; "" among them says that it may be left out."""
Call = tuple[str, Mapping[str, Any]]
"""Name and arguments."""

TYPES: Mapping[str, type] = {
    **{"string": str, "integer": int, "float": float, "boolean": bool, "array": list, "tuple": list},
    **{"dict": dict, "any": str},
}
_FREE = re.compile(r"[ ,./\-_*^]")


def judge_calls(calls: Sequence[Call], functions: Sequence[Function], answers: Sequence[tuple[str, Answer]]) -> str:
    """Return what is wrong with calls, "" for nothing. Several calls may stand in any order.

    Args:
        calls: of the answer.
        functions: on offer.
        answers: the right calls.
    """
    if len(calls) != len(answers):
        return "wrong_count"
    by_name = {function["name"]: function for function in functions}
    rest = list(calls)
    for name, answer in answers:
        faults = [judge_call(call, by_name[name], answer) for call in rest]
        if "" not in faults:
            return faults[0] if len(answers) == 1 else "no_match"
        del rest[faults.index("")]
    return ""


def judge_call(call: Call, function: Function, answer: Answer) -> str:
    """Return what is wrong with one call beside one right call, "" for nothing."""
    name, arguments = call
    if name != function["name"]:
        return "wrong_function"
    if any(parameter not in arguments for parameter in function["parameters"].get("required", ())):
        return "missing_parameter"
    for parameter, value in arguments.items():
        if parameter not in function["parameters"]["properties"] or parameter not in answer:
            return "unexpected_parameter"
        if fault := judge_value(value, function["parameters"]["properties"][parameter], answer[parameter]):
            return fault
    left_out = (parameter for parameter in answer if parameter not in arguments)
    return "missing_parameter" if any("" not in answer[parameter] for parameter in left_out) else ""


def judge_value(value: Any, schema: Mapping[str, Any], right: Sequence[Any]) -> str:
    """Return "wrong_type" or "wrong_value" of the value of a parameter, "" if it is right.

    A value has the type of its schema, an integer also where a float is asked for. One that has the type of the right
    values instead stands for a variable, and has to be one of them. Texts are compared without capitals, spaces and
    some marks, at the top, in a list, and as values of a dictionary.

    Args:
        schema: of the parameter.
        right: values that are right.
    """
    kind = TYPES[schema["type"]]
    if schema["type"] == "tuple" and isinstance(value, tuple):
        value = list(value)
    if kind is float and type(value) is int:
        value = float(value)
    right_type = _first_type(right)
    if type(value) is not kind:
        if right_type is None or type(value) is not right_type:
            return "wrong_type"
        return "" if value in right else "wrong_value"
    items = schema.get("items", {}).get("type") if kind is list else None
    if items is not None and not any(_has_items(value, TYPES[items], one) for one in right):
        return "wrong_type"
    if right_type not in (None, kind):
        return "" if value in right else "wrong_value"
    equal: Callable[[Any, Any], bool] = _equal
    if kind is dict:
        equal = _equal_dictionaries
    elif items is not None and TYPES[items] is dict:
        equal = _equal_lists_of_dictionaries
    elif kind is str:
        equal = _equal_texts
    elif kind is list:
        equal = _equal_lists
    return "" if any(equal(value, one) for one in right) else "wrong_value"


def simplify(value: Any) -> Any:
    """Return a text in small letters without spaces and the marks , . / - _ * ^, with double quotes; others as is."""
    return _FREE.sub("", value).lower().replace("'", '"') if isinstance(value, str) else value


def _first_type(right: Sequence[Any]) -> type | None:
    """Type of the first right value that does not stand for a parameter that is left out."""
    return next((type(one) for one in right if one != ""), None)


def _has_items(value: Sequence[Any], kind: type, right: Any) -> bool:
    """Whether the items of a list have a type, or that of the items of a right list."""
    return not isinstance(right, list) or all(type(item) in (kind, _first_type(right)) for item in value)


def _equal(value: Any, right: Any) -> bool:
    return bool(value == right)


def _equal_texts(value: str, right: Any) -> bool:
    return isinstance(right, str) and simplify(value) == simplify(right)


def _equal_lists(value: list[Any], right: Any) -> bool:
    return [simplify(item) for item in value] == [simplify(item) for item in right]  # "" is the empty list


def _equal_dictionaries(value: Any, right: Any) -> bool:
    if not isinstance(value, dict) or right == "":
        return False
    known = all(key in right and simplify(item) in [simplify(one) for one in right[key]] for key, item in value.items())
    return known and all(key in value or "" in ones for key, ones in right.items())


def _equal_lists_of_dictionaries(value: list[Any], right: Any) -> bool:
    return len(value) == len(right) and all(map(_equal_dictionaries, value, right))
