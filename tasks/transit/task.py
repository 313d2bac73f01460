"""Image questions about transit maps: is a station on a line, how many has it, how does one get from A to B."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.errors import check_at_least, check_interval
from mmrl.core.types import Prompt
from tasks.checks import check_range
from tasks.generated import GeneratedTask, ask_about_images, to_tuples
from tasks.transit.network import COLOURS, LETTERS, Network, draw_network
from tasks.transit.verify import full_points, verify_route, verify_word, write_route

KINDS = ("on_line", "count", "route")


@dataclass(frozen=True)
class TransitProblem:
    """A network, a kind of question, the two things that it names, and the expert's answer."""

    network: Network
    kind: str
    first: str
    second: str
    answer: str


@dataclass(frozen=True)
class Transit(GeneratedTask):
    """Questions about transit maps of coloured lines and lettered stations. No network is in both splits.

    Source: RewardMap, "Tackling Sparse Rewards in Fine-grained Visual Reasoning via Multi-Stage RL", 2025, which trains
    on yes/no questions, then on counts, then on routes.

    Args:
        kinds: on_line ("Is C on the red line?"), count (stations of a line) and route; a problem has one of them.
        lines: number of lines, at most 6.
        stations: stations of each line.
        transfers: fewest and most transfers that a route needs.
        grid: places for stations along each side of the map.
        size: side of the image in pixels.
        route: question about a route; {a} and {b} stand for the stations.
        on_line: question about a station and a line; {a} and {b} stand for them.
        number: question for the stations of a line; {a} stands for the line.
    """

    kinds: Sequence[str] = ("route",)
    lines: int = 3
    stations: int = 4
    transfers: Sequence[int] = (0, 1)
    grid: int = 5
    size: int = 64
    route: str = "How do you get from {a} to {b}? Write each leg as in red A C, blue C F."
    on_line: str = "Does the {b} line stop at {a}? Answer yes or no."
    number: str = "How many stations has the {a} line?"

    name = "transit"

    def __post_init__(self) -> None:
        super().__post_init__()
        to_tuples(self, "kinds", "transfers")
        if not self.kinds or not set(self.kinds) <= set(KINDS):
            raise ValueError(f"task {self.name!r}: kinds must be of {', '.join(KINDS)}, got {list(self.kinds)}")
        check_interval(f"task {self.name!r}:", f"[1, {len(COLOURS)}]", lines=self.lines)
        check_at_least(2, f"task {self.name!r}:", stations=self.stations, grid=self.grid)
        check_range(self.name, "transfers", self.transfers, 0, self.lines - 1)
        if self.size < 8 * self.grid:
            raise ValueError(
                f"task {self.name!r}: letters need 8 pixels for each place of the grid, got size={self.size} for "
                f"grid={self.grid}"
            )

    def draw(self, rng: np.random.Generator) -> TransitProblem | None:
        stations = int(rng.integers(2, self.stations, endpoint=True)) if "count" in self.kinds else self.stations
        network = draw_network(rng, self.grid, self.lines, stations)
        if network is None:
            return None
        kind = self.kinds[int(rng.integers(len(self.kinds)))]
        names = [name for name, _ in network.places]
        line, along = network.lines[int(rng.integers(self.lines))]
        if kind == "count":
            return TransitProblem(network, kind, line, "", str(len(along)))
        first, second = (names[i] for i in rng.permutation(len(names))[:2].tolist())
        if kind == "on_line":
            wants_yes = bool(rng.integers(2))
            fitting = [name for name in names if (name in along) == wants_yes]
            if not fitting:
                return None
            name = fitting[int(rng.integers(len(fitting)))]
            return TransitProblem(network, kind, name, line, "yes" if wants_yes else "no")
        legs = network.route(first, second)
        if legs is None or not self.transfers[0] <= len(legs) - 1 <= self.transfers[1]:
            return None
        return TransitProblem(network, kind, first, second, write_route(legs))

    def split_key(self, problem: TransitProblem) -> str:
        return repr(problem.network)

    def write_prompt(self, problem: TransitProblem, key: str) -> Prompt:
        question = {"route": self.route, "on_line": self.on_line, "count": self.number}[problem.kind]
        question = question.replace("{a}", problem.first).replace("{b}", problem.second)
        transfers, points = 0, 0.0
        if problem.kind == "route":
            transfers = problem.answer.count(",")
            points = full_points(problem.network.route(problem.first, problem.second) or [], problem.network)
        return Prompt(
            key,
            ask_about_images(question),
            images=(problem.network.render(self.size, self.grid),),
            answer=problem.answer,
            info={"problem": problem, "kind": problem.kind, "transfers": transfers, "detail_points": points},
        )

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        problem: TransitProblem = prompt.info["problem"]
        if problem.kind != "route":
            return verify_word(answer, problem.answer, self._words(problem.kind))
        legs = prompt.info["transfers"] + 1
        return verify_route(answer, problem.network, problem.first, problem.second, legs)

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        kind = prompt.info["kind"]
        if kind != "route":
            words = self._words(kind)
            return self.write_answer(words[int(rng.integers(len(words)))])
        count = int(rng.integers(self.transfers[0], self.transfers[1], endpoint=True)) + 1
        stops = [LETTERS[i] for i in rng.integers(len(LETTERS), size=count + 1)]
        lines = [tuple(COLOURS)[i] for i in rng.integers(len(COLOURS), size=count)]
        return self.write_answer(write_route(list(zip(lines, stops, stops[1:]))))

    def demonstrate(self, index: int) -> str:
        return self.write_answer(self.problem(index).answer)

    def _words(self, kind: str) -> tuple[str, ...]:
        return ("yes", "no") if kind == "on_line" else tuple(str(n) for n in range(2, self.stations + 1))
