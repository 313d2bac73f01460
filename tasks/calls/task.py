"""Answer a request with tool calls as JSON, or with "no call" where no tool fits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.errors import check_at_least, check_interval
from mmrl.core.types import Episode, Prompt
from tasks.calls.match import Call, equal_calls, match_calls, match_multisets, name_error, parse_calls
from tasks.calls.tools import TOOLS, ToolSpec, draw_request, show_tools
from tasks.generated import GeneratedTask, ask_user, choose_split, to_tuples

NO_CALL = "no call"
_DRAWS = 100  # of a further call until it is of the split of the first one


@dataclass(frozen=True)
class Problem:
    """Tools that are offered, a request, and the right calls as JSON: [] where no tool fits."""

    tools: tuple[ToolSpec, ...]
    request: str
    calls: str


@dataclass(frozen=True)
class Calls(GeneratedTask):
    """Requests that are answered by tool calls; a call of the held-out split is never trained on, alone or in a list.

    Args:
        offered: tools in a prompt, from 2 to 11.
        parallel: share of the requests that need two calls.
        irrelevant: share of the requests that no offered tool fits; "no call" is the right answer.
        style: how tools are shown: "signatures" or "schemas" (JSON).
        tools: names of the tools that problems are made of; None for all 12.
    """

    offered: int = 3
    parallel: float = 0.0
    irrelevant: float = 0.2
    style: str = "signatures"
    tools: Sequence[str] | None = None

    name = "calls"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tools is not None:
            to_tuples(self, "tools")
        names = [tool.name for tool in TOOLS]
        if self.tools is not None and (unknown := sorted(set(self.tools) - set(names))):
            raise ValueError(f"task {self.name!r}: unknown tools {unknown}; it has {', '.join(names)}")
        check_interval(f"task {self.name!r}:", f"[2, {len(self.specs)})", offered=self.offered)
        check_at_least(0, f"task {self.name!r}:", parallel=self.parallel, irrelevant=self.irrelevant)
        if self.parallel + self.irrelevant >= 1:
            raise ValueError(f"task {self.name!r}: parallel and irrelevant must be less than 1 together")
        if self.style not in ("signatures", "schemas"):
            raise ValueError(f"task {self.name!r}: style must be signatures or schemas, got {self.style!r}")

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools that problems are made of."""
        return tuple(tool for tool in TOOLS if self.tools is None or tool.name in self.tools)

    def draw(self, rng: np.random.Generator) -> Problem | None:
        order = [self.specs[i] for i in rng.permutation(len(self.specs))[: self.offered + 1]]
        offered, other = order[:-1], order[-1]
        kind = rng.random()
        if kind < self.irrelevant:
            request, _ = draw_request(rng, other)
            return Problem(tuple(offered), f"{request}.", "[]")
        needed = offered[: 2 if kind < self.irrelevant + self.parallel else 1]
        requests = self._draw_requests(rng, needed)
        if requests is None:
            return None
        tools = tuple(offered[i] for i in rng.permutation(len(offered)))
        return Problem(tools, ". ".join(text for text, _ in requests) + ".", json.dumps([call for _, call in requests]))

    def _draw_requests(self, rng: np.random.Generator, tools: Sequence[ToolSpec]) -> list[tuple[str, Call]] | None:
        """Draw a request for each tool, all with calls of one split; None if the tools have too few calls for that."""
        requests = [draw_request(rng, tools[0])]
        for tool in tools[1:]:
            tries = (draw_request(rng, tool) for _ in range(_DRAWS))
            same = (one for one in tries if self._split_of_call(one[1]) == self._split_of_call(requests[0][1]))
            if (request := next(same, None)) is None:
                return None
            requests.append(request)
        return requests

    def _split_of_call(self, call: Call) -> str:
        return choose_split(self.name, self.seed, json.dumps([call]), self.held_out_fraction)

    def split_key(self, problem: Problem) -> str:
        """The first call, whose split is that of the others too; the request where no tool fits."""
        calls = json.loads(problem.calls)
        return json.dumps(calls[:1]) if calls else problem.request

    def write_prompt(self, problem: Problem, key: str) -> Prompt:
        lines = [*show_tools(problem.tools, self.style), problem.request]
        parameters = {tool.name: [name for name, _ in tool.parameters] for tool in problem.tools}
        info = {"right": json.loads(problem.calls), "parameters": parameters}
        if self.extract is not None:
            info["extract"] = self.extract  # the functions of rewards.py read it
        return Prompt(key, ask_user("\n".join(lines)), answer=write_calls(info["right"]), info=info)

    def score(self, episode: Episode) -> dict[str, float]:
        answer, info = self.read_answer(episode) or "", episode.prompt.info
        episode.info["outcome"] = name_outcome(read_calls(answer), info["right"], info["parameters"])
        return self.verify(answer, episode.prompt)

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """exact: the right calls, in any order; match: ToolRL's match score as a share of its maximum; names: Jaccard
        index of the called tools; format: a call, a list of calls, or "no call".
        """
        calls, right = read_calls(answer), prompt.info["right"]
        valid = calls is not None
        score, most = match_calls(calls, right)
        return {
            "exact": float(calls is not None and equal_calls(calls, right)),
            "match": score / most,
            "names": match_multisets([c["name"] for c in calls or ()], [c["name"] for c in right]) if valid else 0.0,
            "format": float(valid),
        }

    def demonstrate(self, index: int) -> str:
        return self.write_answer(write_calls(json.loads(self.problem(index).calls)))

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        if rng.random() < self.irrelevant:
            return self.write_answer(NO_CALL)
        return self.write_answer(write_calls([draw_request(rng, self.specs[int(rng.integers(len(self.specs)))])[1]]))


def write_calls(calls: Sequence[Call]) -> str:
    """Write calls as an answer: one as an object, several as a list, none as "no call"."""
    return (json.dumps(calls[0]) if len(calls) == 1 else json.dumps(list(calls))) if calls else NO_CALL


def read_calls(answer: str) -> list[Call] | None:
    """Read an answer; [] for "no call", None where it is neither that nor calls."""
    return [] if answer.strip() == NO_CALL else (parse_calls(answer) or None)


def name_outcome(calls: list[Call] | None, right: Sequence[Call], parameters: dict[str, list[str]]) -> str:
    """Name what is right or wrong about an answer; several calls are compared as a whole."""
    if calls is None:
        return "unparsable"
    if equal_calls(calls, right):
        return "right"
    if not right:
        return "needless_call"
    if not calls:
        return "no_call"
    if len(calls) > 1 or len(right) > 1:
        return "wrong_calls"
    return name_error(calls[0], right[0], parameters)
