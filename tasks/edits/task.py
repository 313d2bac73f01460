"""Change a small configuration file as an instruction says, with search and replace blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.types import Prompt
from tasks.checks import check_range
from tasks.edits.blocks import apply_blocks, compare_changes, parse_blocks, write_block
from tasks.generated import GeneratedTask, ask_user, to_tuples

NAMES = (
    *("port", "host", "width", "height", "depth", "speed", "limit", "retries", "seed", "level", "rate", "delay"),
    *("margin", "users", "pages", "threads", "volume", "angle", "weight", "budget"),
)
KINDS = ("set", "delete", "rename", "insert", "increase")


@dataclass(frozen=True)
class Problem:
    """A file, what to do with it, the lines to replace and what stands in their place ("" deletes them)."""

    file: str
    instruction: str
    old: str
    new: str


@dataclass(frozen=True)
class Edits(GeneratedTask):
    """Edits of files with lines such as port=80; the answer is one or more search and replace blocks.

    Source of the form and of the similarity: Wei et al., "SWE-RL", arXiv 2502.18449, section 2.

    Args:
        lines: fewest and most lines of the file, from 2 to 20.
        kinds: of edits, some of set, delete, rename, insert and increase.
    """

    lines: Sequence[int] = (3, 6)
    kinds: Sequence[str] = KINDS

    name = "edits"

    def __post_init__(self) -> None:
        super().__post_init__()
        to_tuples(self, "lines", "kinds")
        check_range(self.name, "lines", self.lines, 2, len(NAMES) - 1)
        if not self.kinds or not set(self.kinds) <= set(KINDS):
            raise ValueError(f"task {self.name!r}: kinds must be some of {list(KINDS)}, got {list(self.kinds)}")

    def draw(self, rng: np.random.Generator) -> Problem:
        count = int(rng.integers(self.lines[0], self.lines[1] + 1))
        *names, other = (NAMES[i] for i in rng.permutation(len(NAMES))[: count + 1])
        values = [int(value) for value in rng.integers(1, 100, size=count)]
        at, amount = int(rng.integers(count)), int(rng.integers(1, 100))
        name, value = names[at], values[at]
        old = f"{name}={value}"
        new, instruction = {
            "set": (f"{name}={(value + amount) % 200}", f"Set {name} to {(value + amount) % 200}."),
            "delete": ("", f"Delete {name}."),
            "rename": (f"{other}={value}", f"Rename {name} to {other}."),
            "insert": (f"{old}\n{other}={amount}", f"Insert {other}={amount} after {name}."),
            "increase": (f"{name}={value + amount}", f"Increase {name} by {amount}."),
        }[self.kinds[int(rng.integers(len(self.kinds)))]]
        return Problem("\n".join(f"{n}={v}" for n, v in zip(names, values)), instruction, old, new)

    def split_key(self, problem: Problem) -> str:
        return f"{problem.file}\n{problem.instruction}"

    def write_prompt(self, problem: Problem, key: str) -> Prompt:
        right = apply_blocks(problem.file, [(problem.old, problem.new)])
        question = f"{problem.file}\n\n{problem.instruction}"
        return Prompt(key, ask_user(question), answer=right, info={"file": problem.file})

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """exact: the changed file is the right one; similarity: of the patch to the right patch; format: blocks that
        fit the file.
        """
        blocks, file = parse_blocks(answer), prompt.info["file"]
        changed = None if blocks is None else apply_blocks(file, blocks)
        if changed is None:
            return {"exact": 0.0, "similarity": 0.0, "format": 0.0}
        return {
            "exact": float(changed == prompt.answer),
            "similarity": compare_changes(file, changed, prompt.answer),
            "format": 1.0,
        }

    def demonstrate(self, index: int) -> str:
        problem = self.problem(index)
        return self.write_answer(write_block(problem.old, problem.new))

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        lines = prompt.info["file"].splitlines()
        line = lines[int(rng.integers(len(lines)))]
        return self.write_answer(write_block(line, f"{line.partition('=')[0]}={int(rng.integers(100, 300))}"))
