"""Answer a request with function calls: the single turns of the Berkeley Function-Calling Leaderboard."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

from mmrl.core.errors import check_interval
from mmrl.core.types import Episode, Prompt
from tasks.answers import AnswerTask
from tasks.bfcl.files import PARTS, WITHOUT_ANSWERS, CallRequest, find_folder, read_part
from tasks.bfcl.forms import read_calls, write_calls
from tasks.bfcl.verdict import Answer, Call, Function, judge_calls, judge_value
from tasks.checks import check_index, check_split
from tasks.generated import choose_split, to_tuples

INSTRUCTION = """You answer requests with function calls. The functions on offer, as JSON:
{functions}

Write the calls as a list in Python's syntax and nothing else, with every argument named:
[name(parameter=value, other=value), name(parameter=value)]
Where no function on offer can do what is asked, or a value that it needs was not given, say so in a sentence."""
"""System turn of style "prompt"."""
REFUSAL = "None of the functions can do that."
SCHEMA_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}
"""JSON Schema's names of Python's types; the others are the same."""
STYLES = ("prompt", "template")


@dataclass(frozen=True, kw_only=True)
class Bfcl(AnswerTask):
    """Requests with functions on offer, of the Berkeley Function-Calling Leaderboard, version 4.

    Source: Patil et al., "The Berkeley Function Calling Leaderboard (BFCL)", ICML 2025. Its rules of right calls are in
    `tasks.bfcl.verdict`; the instruction is our own, so that scores are not those of its table.

    Args:
        path: folder with BFCL_v4_simple_python.json and others; None for that of the installed package bfcl-eval.
        parts: of `tasks.bfcl.files.PARTS`.
        style: "prompt" writes the functions into a system turn and asks for Python's syntax; "template" hands them to
            the model's chat template as tools.
        split: "train" or "held_out".
        held_out_fraction: share of what decides the split: the first function that is right to call, or the request
            where none is. 1 holds out everything, to measure a model that is not trained on it.
        seed: of the split; part of the task, not of the run.
    """

    path: str | None = None
    parts: Sequence[str] = PARTS[:5]
    style: str = "prompt"
    split: str = "train"
    held_out_fraction: float = 0.2
    seed: int = 0

    name = "bfcl"

    def __post_init__(self) -> None:
        super().__post_init__()
        to_tuples(self, "parts")
        check_split(self.name, self.split)
        check_interval(f"task {self.name!r}:", "(0, 1]", held_out_fraction=self.held_out_fraction)
        if unknown := sorted(set(self.parts) - set(PARTS)):
            raise ValueError(f"task {self.name!r}: unknown parts {unknown}; it has {', '.join(PARTS)}")
        if not self.parts or len(set(self.parts)) < len(self.parts):
            raise ValueError(f"task {self.name!r}: parts must name one or more of {', '.join(PARTS)}, each once")
        if self.style not in STYLES:
            raise ValueError(f"task {self.name!r}: style must be {' or '.join(STYLES)}, got {self.style!r}")

    @cached_property
    def requests(self) -> tuple[CallRequest, ...]:
        """Those of this split, part by part."""
        folder = find_folder(self.path)
        every = [request for part in self.parts for request in read_part(folder, part)]
        return tuple(request for request in every if self.split_of(request) == self.split)

    def split_of(self, request: CallRequest) -> str:
        """Return the split that a request belongs to."""
        key = request.answers[0][0] if request.answers else request.messages[-1]["content"]
        return choose_split(self.name, self.seed, key, self.held_out_fraction)

    def __len__(self) -> int:
        return len(self.requests)

    def __getitem__(self, index: int) -> Prompt:
        check_index(self, index)
        request = self.requests[index]
        messages, tools = request.messages, ()
        if self.style == "template":
            tools = tuple({"type": "function", "function": _to_schema(one)} for one in request.functions)
        else:
            instruction = INSTRUCTION.replace("{functions}", json.dumps(request.functions))
            first, *others = messages
            if first["role"] == "system":
                instruction, messages = f"{instruction}\n\n{first['content']}", tuple(others)
            messages = ({"role": "system", "content": instruction}, *messages)
        return Prompt(
            f"{self.name}/{self.split}/{index}",
            messages,
            answer=self.demonstrate(index),
            info={"task": request.part, "request": request},
            place=request.place,
            tools=tools,
        )

    def on(self, split: str) -> Self:
        return replace(self, split=split)

    def score(self, episode: Episode) -> dict[str, float]:
        answer, request = self.read_answer(episode) or "", episode.prompt.info["request"]
        episode.info["outcome"] = name_outcome(read_calls(answer), request)
        return {**self.score_format(answer), **self.verify(answer, episode.prompt)}

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """exact: right by the leaderboard's rules; arguments: share of what the right calls consist of, names and
        parameters, that is right; called: whether the answer holds calls.
        """
        request, calls = prompt.info["request"], read_calls(answer)
        right = float(name_outcome(calls, request) == "right")
        return {
            "exact": right,
            "arguments": measure_arguments(calls, request) if request.answers else right,
            "called": float(bool(calls)),
        }

    def demonstrate(self, index: int) -> str:
        """The right calls, each parameter with the first right value; a sentence where none is right.

        A request of `live_relevance` has a call of the first function with empty arguments, which counts as right.
        """
        request = self.requests[index]
        if request.part.endswith("irrelevance"):
            return self.write_answer(REFUSAL)
        required = {function["name"]: _list_required(function) for function in request.functions}
        calls = [(name, choose_arguments(answer, required[name])) for name, answer in request.answers]
        return self.write_answer(write_calls(calls or [(request.functions[0]["name"], {})], self.style))


def name_outcome(calls: Sequence[Call], request: CallRequest) -> str:
    """Name what is right or wrong about the calls of an answer."""
    if request.part.endswith("irrelevance"):
        return "needless_call" if calls else "right"
    if not calls:
        return "no_call"
    return (
        "right"
        if request.part in WITHOUT_ANSWERS
        else judge_calls(calls, request.functions, request.answers) or "right"
    )


def measure_arguments(calls: Sequence[Call], request: CallRequest) -> float:
    """Share of the names and parameters of the right calls that an answer has, between 0 and 1.

    Each right call counts 1 for its name and 1 for every parameter that has to be given or is given. The pairs of a
    right call and a call of the answer with its name are taken in the order of what they have in common, each call
    once; calls beyond the right ones count as wrong.
    """
    by_name = {function["name"]: function for function in request.functions}
    pairs = [
        (*_count_arguments(call, by_name[name], answer), i, j)
        for i, (name, answer) in enumerate(request.answers)
        for j, call in enumerate(calls)
        if call[0] == name
    ]
    sizes = [1.0 + len(_list_needed(answer, _list_required(by_name[name]))) for name, answer in request.answers]
    missing, unused, points = set(range(len(sizes))), set(range(len(calls))), 0.0
    for right, size, i, j in sorted(pairs, key=lambda pair: pair[0] / pair[1], reverse=True):
        if i in missing and j in unused:
            missing.remove(i)
            unused.remove(j)
            points, sizes[i] = points + right, size
    return points / (sum(sizes) + len(unused))


def choose_arguments(answer: Answer, required: Sequence[str]) -> dict[str, Any]:
    """The first right value of every parameter that has to be given."""
    return {name: _choose(answer[name]) for name in _list_needed(answer, required) if name in answer}


def _list_required(function: Function) -> Sequence[str]:
    required: Sequence[str] = function["parameters"].get("required", ())
    return required


def _list_needed(answer: Answer, required: Sequence[str]) -> list[str]:
    """Parameters that have to be given: those that the function requires, and those that may not be left out."""
    return [*required, *(name for name, values in answer.items() if "" not in values and name not in required)]


def _count_arguments(call: Call, function: Function, answer: Answer) -> tuple[float, float]:
    """Right parts of a call of the right name, and those that it has or needs; its name is one of them."""
    properties, arguments = function["parameters"]["properties"], call[1]
    names = {*arguments, *_list_needed(answer, _list_required(function))}
    known = [name for name in names if name in arguments and name in answer and name in properties]
    right = sum(not judge_value(arguments[name], properties[name], answer[name]) for name in known)
    return 1.0 + right, 1.0 + len(names)


def _choose(values: Sequence[Any]) -> Any:
    """The first right value; dictionaries, alone or in a list, have a list of right values by key."""
    value = _choose_first(values)
    if isinstance(value, dict):
        return {key: _choose_first(ones) for key, ones in value.items() if "" not in ones}
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return [_choose([item]) for item in value]
    return value


def _choose_first(values: Sequence[Any]) -> Any:
    return next((one for one in values if one != ""), "")


def _to_schema(value: Any) -> Any:
    """A function in JSON Schema's words."""
    if isinstance(value, list | tuple):
        return [_to_schema(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    kind = value.get("type")
    renamed = {"type": SCHEMA_TYPES[kind]} if isinstance(kind, str) and kind in SCHEMA_TYPES else {}
    return {key: _to_schema(item) for key, item in value.items()} | renamed
