"""Requests whose recorded answers begin with a call that fails at times: an error, and then the right call."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmrl.core.errors import check_fraction
from mmrl.core.rng import derive_rng
from mmrl.core.types import Prompt
from tasks.calls.match import Call
from tasks.calls.task import Calls


@dataclass(frozen=True)
class CallTrajectories(Calls):
    """`Calls` with demonstrations of which some have two turns: a call that ends in an error, and the right one.

    The first call names a tool or a parameter that is not offered, or lacks a parameter; the reply is
    "error: unknown tool x". Problems and scores are those of `Calls`.
    Source of the form: Ye et al., "TL-Training", arXiv 2412.15495, section 4.1, whose trajectories a model wrote.

    Args:
        failed: share of the requests with one right call whose demonstration has a failed call.
    """

    failed: float = 0.5

    name = "call_trajectories"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fraction(f"task {self.name!r}:", failed=self.failed)

    def demonstrations(self, prompts: Sequence[Prompt]) -> list[list[tuple[Mapping[str, Any], Any]]]:
        return [self._demonstrate_turns(prompt) for prompt in prompts]

    def _demonstrate_turns(self, prompt: Prompt) -> list[tuple[Mapping[str, Any], Any]]:
        answer, rng = self.demonstrate(prompt.index), derive_rng(self.name, "failed", self.seed, prompt.key)
        right = prompt.info["right"]
        if len(right) != 1 or rng.random() >= self.failed:
            return [(prompt.observation, answer)]
        tools = {tool.name: tool for tool in self.problem(prompt.index).tools}
        optional = {name for name, _ in tools[right[0]["name"]].options}
        call, error = break_call(rng, right[0], optional)
        first = self.write_answer(json.dumps(call))
        turns = ({"role": "assistant", "content": first}, {"role": "user", "content": error})
        return [
            (prompt.observation, first),
            ({**prompt.observation, "messages": (*prompt.messages, *turns)}, answer),
        ]


def break_call(rng: np.random.Generator, call: Call, optional: Collection[str]) -> tuple[Call, str]:
    """Draw a call that fails in place of a right one, and the error that it earns; optional parameters may lack."""
    arguments = dict(call["arguments"])
    kind = int(rng.integers(3))
    if kind == 0:
        name = f"{call['name']}s"
        return {"name": name, "arguments": arguments}, f"error: unknown tool {name}"
    keys = [key for key in arguments if kind == 1 or key not in optional]
    key = keys[int(rng.integers(len(keys)))]
    if kind == 1:
        renamed = {f"{k}s" if k == key else k: value for k, value in arguments.items()}
        return {"name": call["name"], "arguments": renamed}, f"error: unknown parameter {key}s"
    del arguments[key]
    return {"name": call["name"], "arguments": arguments}, f"error: missing parameter {key}"
