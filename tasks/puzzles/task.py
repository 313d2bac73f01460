"""Base of puzzles whose demonstrations are search traces with a chosen number of backtracks."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from itertools import islice
from typing import Any

from mmrl.core.errors import check_interval
from mmrl.core.rng import derive_rng
from mmrl.core.types import Episode
from tasks.checks import reply_text
from tasks.countdown.search import count_backtracks
from tasks.generated import GeneratedTask
from tasks.puzzles.search import Path, SearchTree, draw_failures

MOST = 10  # dead ends that every problem has
_LISTED = 200  # dead ends of a problem among which some are drawn


@dataclass(frozen=True, kw_only=True)
class SearchTask(GeneratedTask):
    """Puzzle with one answer; a demonstration is a search and the answer, whatever the number of its dead ends.

    Source: Cai et al., "How Much Backtracking is Enough? Exploring the Interplay of SFT and RL in Enhancing LLM
    Reasoning", arXiv 2505.24273.

    Args:
        steps: demonstrations write the steps of the solution, one a line, before the answer.
        backtracks: dead ends that a demonstration shows among the steps, from 0 to 10.
        mismatched: a demonstration is that of the following problem, so that its structure is all that is right in it.
    """

    steps: bool = True
    backtracks: int = 0
    mismatched: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval(f"task {self.name!r}:", f"[0, {MOST}]", backtracks=self.backtracks)
        if self.backtracks and not self.steps:
            raise ValueError(
                f"task {self.name!r}: backtracks={self.backtracks} needs steps=true, among which they stand"
            )

    @abstractmethod
    def build_search(self, problem: Any) -> SearchTree:
        """Return the tree of a problem."""

    @abstractmethod
    def write_solution(self, problem: Any, solution: Path) -> str:
        """Write the answer that a path of the search gives."""

    def find_solution(self, problem: Any) -> Path | None:
        """Return the solution of a problem; None if it has none, or fewer dead ends than `MOST`."""
        search = self.build_search(problem)
        solution = search.solve()
        if solution is None or len(list(islice(search.list_failures(solution), MOST))) < MOST:
            return None
        return solution

    def score(self, episode: Episode) -> dict[str, float]:
        """Score an answer; info["counts"] has its number of `backtracks`, lines that begin with the word back."""
        counts = {**episode.info.get("counts", {}), "backtracks": count_backtracks(reply_text(episode))}
        episode.info["counts"] = counts
        return super().score(episode)

    def demonstrate(self, index: int) -> str:
        position = (index + 1) % len(self) if self.mismatched else index
        problem = self.problem(position)
        search, solution = self.build_search(problem), self.find_solution(problem)
        assert solution is not None
        answer = self.write_answer(self.write_solution(problem, solution))
        if not self.steps:
            return answer
        rng = derive_rng(self.name, "backtracks", self.split, self.seed, position)
        failures = draw_failures(rng, list(islice(search.list_failures(solution), _LISTED)), self.backtracks)
        return f"{search.write_trace(solution, failures)}\n{answer}"
