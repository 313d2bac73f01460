"""Compare predicted tool calls with the right ones: graded scores, and the kind of the error."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

Call = dict[str, Any]
"""{"name": text, "arguments": {name: value}}"""

MAX_CORRECT = 3.0
PENALTIES: Mapping[str, float] = {
    **{"unparsable": -2.0, "unknown_tool": -2.0, "wrong_tool": -1.5},
    **{"unknown_redundant_missing": -1.8, "unknown_and_more": -1.3, "redundant_missing": -1.0, "unknown": -0.8},
    **{"redundant": -0.5, "missing": -0.5, "wrong_value": -0.25, "right": 1.0},
}
"""TL-Training's reward of each kind of error: a parameter is unknown to the tool, redundant (the tool has it and the
right call does not), or missing."""


def match_multisets(ours: Sequence[str], theirs: Sequence[str]) -> float:
    """Jaccard index of two multisets: 1 if they are equal, also if both are empty."""
    if Counter(ours) == Counter(theirs):
        return 1.0
    common = sum((Counter(ours) & Counter(theirs)).values())
    return common / (len(ours) + len(theirs) - common)


def equal_values(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal, with their types: 1 is 1.0, and neither is true or "1"."""
    if isinstance(one, int | float) and isinstance(other, int | float):
        return isinstance(one, bool) == isinstance(other, bool) and one == other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal_values, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal_values(one[key], other[key]) for key in one)
    return type(one) is type(other) and one == other


def equal_calls(ours: Sequence[Call], theirs: Sequence[Call]) -> bool:
    """Whether two lists hold the same calls, in any order."""
    rest = list(theirs)
    for call in ours:
        same = next((other for other in rest if equal_values(call, other)), None)
        if same is None:
            return False
        rest.remove(same)
    return not rest


def match_calls(predicted: Sequence[Call] | None, right: Sequence[Call]) -> tuple[float, float]:
    """Return ToolRL's match score and its maximum; None stands for calls that cannot be parsed.

    score = J(names) + sum over the right calls of [J(parameter names) + number of equal values], each with the best
    prediction of the same name that is not used yet, J the Jaccard index of multisets; the maximum is
    1 + sum(1 + number of parameters).
    """
    most = 1.0 + sum(1 + len(call["arguments"]) for call in right)
    if predicted is None:
        return 0.0, most
    if equal_calls(predicted, right):
        return most, most
    score = match_multisets([c["name"] for c in predicted], [c["name"] for c in right])
    rest = list(predicted)
    for call in right:
        matches = [(_match_arguments(other["arguments"], call["arguments"]), other) for other in rest]
        matches = [(points, other) for points, other in matches if other["name"] == call["name"]]
        if matches:
            points, other = max(matches, key=lambda pair: pair[0])
            score += points
            rest.remove(other)
    return score, most


def measure_correctness(predicted: Sequence[Call] | None, right: Sequence[Call]) -> float:
    """Return ToolRL's correctness reward in [-3, 3]: 6 * score / maximum - 3; 0 where no call is right.

    Source: Qian et al., "ToolRL: Reward is All Tool Learning Needs", arXiv 2504.13958, section 3.3.
    """
    if not right:
        return 0.0
    score, most = match_calls(predicted, right)
    return 2 * MAX_CORRECT * score / most - MAX_CORRECT


def name_error(predicted: Call | None, right: Call, parameters: Mapping[str, Sequence[str]]) -> str:
    """Return the kind of error of one call, a key of PENALTIES.

    Source: Ye et al., "TL-Training: A Task-Feature-Based Framework for Training Large Language Models in Tool Use",
    arXiv 2412.15495, section 4.3.

    Args:
        predicted: None if it cannot be parsed.
        right: the right call.
        parameters: by tool, the names of its parameters.
    """
    if predicted is None:
        return "unparsable"
    if predicted["name"] not in parameters:
        return "unknown_tool"
    if predicted["name"] != right["name"]:
        return "wrong_tool"
    ours, theirs = predicted["arguments"].keys(), right["arguments"].keys()
    names = set(parameters[right["name"]])
    unknown, redundant, missing = bool(ours - names), bool((ours & names) - theirs), bool(theirs - ours)
    if unknown and redundant and missing:
        return "unknown_redundant_missing"
    if unknown:
        return "unknown_and_more" if redundant or missing else "unknown"
    if redundant or missing:
        return "redundant_missing" if redundant and missing else ("redundant" if redundant else "missing")
    return "right" if equal_values(predicted, right) else "wrong_value"


def parse_calls(text: str) -> list[Call] | None:
    """Parse an answer: a call, a list of calls, or [] for none; None for anything else.

    A call has the keys name and arguments alone, and no key twice.
    """
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    calls = value if isinstance(value, list) else [value]
    for call in calls:
        if not isinstance(call, dict) or call.keys() != {"name", "arguments"}:
            return None
        if not isinstance(call["name"], str) or not isinstance(call["arguments"], dict):
            return None
    return calls


def _match_arguments(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> float:
    equal = sum(key in ours and equal_values(ours[key], value) for key, value in theirs.items())
    return match_multisets(list(ours), list(theirs)) + equal


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key stands twice")
    return dict(pairs)


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
