"""Change one or more of several small configuration files, with search and replace blocks under their paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mmrl.core.types import Prompt
from mmrl.rewards.measures import sequence_similarity
from tasks.checks import check_range
from tasks.edits.blocks import LONGEST, apply_blocks, compare_changes, parse_blocks, write_block, write_patch
from tasks.edits.task import Edits, Problem
from tasks.generated import ask_user, to_tuples

PATHS = ("a.cfg", "b.cfg", "c.cfg", "d.cfg")
_HEAD = "### "
Files = Mapping[str, str]
"""Contents by path."""


@dataclass(frozen=True)
class ManyFiles:
    """Files by path with the edit of each, and the paths of those that are to be changed."""

    files: tuple[tuple[str, Problem], ...]
    changed: tuple[str, ...]


@dataclass(frozen=True)
class FileEdits(Edits):
    """Edits of several files; an answer names the path of each file above its search and replace blocks.

    Source of the form and of the similarities: Wei et al., "SWE-RL", arXiv 2502.18449, section 2, and its released
    reward.

    Args:
        files: fewest and most files that are shown, from 1 to 4.
        changed: fewest and most files that are to be changed.
    """

    files: Sequence[int] = (2, 3)
    changed: Sequence[int] = (1, 2)

    name = "file_edits"

    def __post_init__(self) -> None:
        super().__post_init__()
        to_tuples(self, "files", "changed")
        check_range(self.name, "files", self.files, 1, len(PATHS))
        check_range(self.name, "changed", self.changed, 1, self.files[0])

    def draw(self, rng: np.random.Generator) -> ManyFiles:  # type: ignore[override]
        paths = PATHS[: int(rng.integers(self.files[0], self.files[1] + 1))]
        count = int(rng.integers(self.changed[0], self.changed[1] + 1))
        changed = sorted(paths[i] for i in rng.permutation(len(paths))[:count])
        return ManyFiles(tuple((path, super(FileEdits, self).draw(rng)) for path in paths), tuple(changed))

    def split_key(self, problem: ManyFiles) -> str:  # type: ignore[override]
        return f"{_show(_contents(problem))}\n{_instruct(problem)}"

    def write_prompt(self, problem: ManyFiles, key: str) -> Prompt:  # type: ignore[override]
        files = _contents(problem)
        right = apply_edits(files, {p: [(e.old, e.new)] for p, e in problem.files if p in problem.changed})
        return Prompt(key, ask_user(self.split_key(problem)), answer=right, info={"files": files})

    def verify(self, answer: str, prompt: Prompt) -> dict[str, float]:
        """exact: all files are right; similarity: of the whole patch to the right one; files: mean of the similarities
        of the patches of all files that either changes, 0 where only one does; format: blocks that fit the files.
        """
        before, right, edits = prompt.info["files"], prompt.answer, parse_edits(answer)
        after = None if edits is None else apply_edits(before, edits)
        if after is None:
            return dict.fromkeys(("exact", "similarity", "files", "format"), 0.0)
        return {
            "exact": float(after == right),
            "similarity": sequence_similarity(join_patches(before, after), join_patches(before, right)),
            "files": compare_files(before, after, right),
            "format": 1.0,
        }

    def demonstrate(self, index: int) -> str:
        problem = self.problem(index)
        edits = {path: edit for path, edit in problem.files if path in problem.changed}
        return self.write_answer("\n".join(f"{_HEAD}{p}\n{write_block(e.old, e.new)}" for p, e in edits.items()))

    def guess(self, prompt: Prompt, rng: np.random.Generator) -> str:
        path = list(prompt.info["files"])[int(rng.integers(len(prompt.info["files"])))]
        lines = prompt.info["files"][path].splitlines()
        line = lines[int(rng.integers(len(lines)))]
        block = write_block(line, f"{line.partition('=')[0]}={int(rng.integers(100, 300))}")
        return self.write_answer(f"{_HEAD}{path}\n{block}")


def parse_edits(text: str) -> dict[str, list[tuple[str, str]]] | None:
    """Parse an answer that is paths with blocks below them, as the blocks of each path; None for other text."""
    edits: dict[str, list[tuple[str, str]]] = {}
    first, *sections = f"\n{text.strip()}\n".split(f"\n{_HEAD}")
    if len(text) > LONGEST or first:
        return None
    for section in sections:
        path, _, body = section.partition("\n")
        if (blocks := parse_blocks(body)) is None:
            return None
        edits.setdefault(path, []).extend(blocks)
    return edits or None


def apply_edits(files: Files, edits: Mapping[str, Sequence[tuple[str, str]]]) -> dict[str, str] | None:
    """Apply the blocks of each path to its file; None if there is no such file, or a block does not fit."""
    after = dict(files)
    for path, blocks in edits.items():
        changed = apply_blocks(files[path], blocks) if path in files else None
        if changed is None:
            return None
        after[path] = changed
    return after


def join_patches(before: Files, after: Files) -> str:
    """The patch of all changed files, each below its path."""
    changed = [path for path in before if after[path] != before[path]]
    return "\n".join(f"{path}\n{write_patch(before[path], after[path])}" for path in changed)


def compare_files(before: Files, after: Files, right: Files) -> float:
    """Mean similarity of the patches of the files that are changed in `after` or `right`; 0 where only one changes."""
    changed = [path for path in before if before[path] not in (after[path], right[path])]
    either = sum(after[path] != before[path] or right[path] != before[path] for path in before)
    return sum(compare_changes(before[path], after[path], right[path]) for path in changed) / max(either, 1)


def _contents(problem: ManyFiles) -> dict[str, str]:
    return {path: edit.file for path, edit in problem.files}


def _show(files: Files) -> str:
    return "\n".join(f"{_HEAD}{path}\n{text}" for path, text in files.items()) + "\n"


def _instruct(problem: ManyFiles) -> str:
    return "\n".join(f"{path}: {edit.instruction}" for path, edit in problem.files if path in problem.changed)
