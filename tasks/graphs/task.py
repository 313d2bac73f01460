"""Arithmetic over dependency graphs, such as "c=b*a;a=3;b=a+2;c?", with verified steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.errors import check_at_least
from mmrl.core.types import Episode, Prompt
from mmrl.rewards.extract import remove_thoughts
from tasks.checks import check_range, final_line, reply_text
from tasks.generated import GeneratedTask, ask_user, to_tuples
from tasks.graphs.data import SYMBOLS, Graph, draw_graph
from tasks.graphs.verify import judge_steps, measure_process, parse_step
from tasks.graphs.wording import WORDS, write_question


@dataclass(frozen=True)
class Problem:
    """A graph and the order in which its definitions are written."""

    graph: Graph
    order: tuple[int, ...]


@dataclass(frozen=True)
class Graphs(GeneratedTask):
    """The value of a quantity that is defined by others: each step of a solution is verified.

    A policy writes one line for each quantity that is needed, as "b=a+2=5"; the last line is the answer. All values are
    modulo `modulus`. The task is as iGSM: Ye et al., "Physics of Language Models: Part 2.1", arXiv 2407.20311.

    Args:
        depth: fewest and most quantities that the answer needs, itself included.
        distractors: quantities that the answer does not need.
        operations: some of "+-*".
        modulus: of all values, from 2 to 1000.
        wording: "symbols" writes equations; "zoo", "shop" and "garden" write sentences.
    """

    depth: Sequence[int] = (2, 4)
    distractors: int = 1
    operations: str = SYMBOLS
    modulus: int = 10
    wording: str = "symbols"

    name = "graphs"

    def __post_init__(self) -> None:
        super().__post_init__()
        to_tuples(self, "depth")
        check_range(self.name, "depth", self.depth, 1)
        check_at_least(0, f"task {self.name!r}:", distractors=self.distractors)
        if self.depth[1] + self.distractors > 26:
            raise ValueError(f"task {self.name!r}: depth and distractors are more than the 26 letters together")
        if not self.operations or not set(self.operations) <= set(SYMBOLS) or not 2 <= self.modulus <= 1000:
            raise ValueError(
                f"task {self.name!r}: needs operations of {SYMBOLS!r} and 2 <= modulus <= 1000, "
                f"got {self.operations!r} and {self.modulus}"
            )
        if self.wording not in ("symbols", *WORDS):
            raise ValueError(
                f"task {self.name!r}: wording must be one of symbols, {', '.join(WORDS)}, got {self.wording!r}"
            )

    def draw(self, rng: np.random.Generator) -> Problem:
        depth = int(rng.integers(self.depth[0], self.depth[1] + 1))
        graph = draw_graph(rng, depth, self.distractors, self.operations, self.modulus)
        return Problem(graph, tuple(int(i) for i in rng.permutation(len(graph.nodes))))

    def split_key(self, problem: Problem) -> str:
        return ";".join(sorted(map(str, problem.graph.nodes))) + f";{problem.graph.asked}"

    def write_prompt(self, problem: Problem, key: str) -> Prompt:
        graph = problem.graph
        question = write_question(graph, list(problem.order), self.wording, self.modulus)
        answer = graph.values(self.modulus)[graph.asked]
        info = {"graph": graph, "depth": len(graph.ancestors()), "modulus": self.modulus}
        return Prompt(key, ask_user(question), answer=answer, info=info)

    def score(self, episode: Episode) -> dict[str, float]:
        """exact: the answer is right; process: 1 less the share of errors in the steps; strict: right and no error;
        steps: share of lines with a right step; format: the last line is a step or a number.
        """
        graph, answer = episode.prompt.info["graph"], self.read_answer(episode) or ""
        text = remove_thoughts(reply_text(episode)) or ""
        lines = [line.strip() for line in text.splitlines() if line.strip()][:200]
        if self.extractor is None:
            answer, steps = final_line(text), lines
            if lines and parse_step(lines[-1]) is None:
                steps = lines[:-1]  # the answer alone after the steps
        else:
            steps = [line for line in lines if parse_step(line)]
        scores = self._verify_answer(answer, graph)
        process, penalty = measure_process(steps, graph, self.modulus, scores["exact"] == 1)
        verdicts = judge_steps(steps, graph, self.modulus)
        episode.info["steps"] = verdicts
        right = verdicts.count("right") / max(1, len(verdicts))
        strict = float(scores["exact"] == 1 and penalty == 0)
        return {**scores, "process": process * scores["exact"], "strict": strict, "steps": right}

    def score_names(self, prompt: Prompt) -> tuple[str, ...]:
        return ("exact", "format", "process", "strict", "steps")

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        return self._verify_answer(answer, prompt.info["graph"])

    def _verify_answer(self, answer: str, graph: Graph) -> dict[str, float]:
        """exact: the answer is the right number, or the step that defines the asked quantity with the right value."""
        answer = final_line(answer)
        step = parse_step(answer)
        value = str(step.value) if step is not None and step.name == graph.asked else answer.strip()
        well_formed = value.isascii() and value.isdigit()
        return {"exact": float(value == str(graph.values(self.modulus)[graph.asked])), "format": float(well_formed)}

    def demonstrate(self, index: int) -> str:
        graph = self.problem(index).graph
        lines = write_solution(graph, self.modulus)
        answer = str(graph.values(self.modulus)[graph.asked])
        return "\n".join([*lines, *([] if self.extractor is None else [self.write_answer(answer)])])

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        return self.write_answer(str(int(rng.integers(self.modulus))))


def write_solution(graph: Graph, modulus: int) -> list[str]:
    """Write the step of each quantity that the answer needs, in order: a=3, b=a+2=5."""
    values = graph.values(modulus)
    return [f"{node}={values[node.name]}" if node.symbol else str(node) for node in graph.ancestors()]
