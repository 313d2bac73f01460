"""Every public function and class is reached from other code, a configuration or a page, not from its test alone."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("mmrl", "tasks", "sims")
CALLERS = (*PACKAGES, "scripts", "examples")
PAGES = ("docs/*.md", "docs/how-to/**/*.md", "tasks/*/README.md", "sims/*/README.md", "README.md", "CONTRIBUTING.md")
GENERATED = {"corrections.md"}


@cache
def parse(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def count_uses(node: ast.AST) -> Counter[str]:
    """Names, attributes, imported names and words of texts that are no docstrings."""
    docstrings = {
        id(each.body[0].value)
        for each in ast.walk(node)
        if isinstance(each, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and each.body
        and isinstance(each.body[0], ast.Expr)
    }
    uses: Counter[str] = Counter()
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            uses[each.id] += 1
        elif isinstance(each, ast.Attribute):
            uses[each.attr] += 1
        elif isinstance(each, ast.ImportFrom):
            uses.update(alias.name for alias in each.names)
        elif isinstance(each, ast.Constant) and isinstance(each.value, str) and id(each) not in docstrings:
            uses.update(re.findall(r"\w+", each.value))
    return uses


@cache
def count_code(files: tuple[Path, ...]) -> Counter[str]:
    """The uses in all files; not to be changed."""
    total: Counter[str] = Counter()
    for file in files:
        total.update(count_uses(parse(file)))
    return total


AFTER_RUNS = {"AnswerMass", "WeightedVote"}
"""Parts of papers that a reader calls on a run's results, as docs/recipes.md says; no recipe can call them."""


def find_unused(pages: bool = True) -> list[str]:
    """Public functions and classes that nothing names. pages: whether it is enough that a page names one."""
    files = [file for folder in CALLERS for file in sorted((ROOT / folder).rglob("*.py"))]
    total = Counter(count_code(tuple(files)))
    patterns = PAGES if pages else ()
    texts = [file for pattern in patterns for file in ROOT.glob(pattern) if file.name not in GENERATED]
    texts += [*(ROOT / "conf").rglob("*.yaml"), ROOT / "pyproject.toml", *(ROOT / "mmrl").rglob("*.txt")]
    for file in texts:
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if " differs:" not in f" {line}"]
        total.update(set(re.findall(r"\w+", "\n".join(lines))))
    unused = []
    for file in files:
        if file.relative_to(ROOT).parts[0] not in PACKAGES:
            continue
        for node in parse(file).body:
            if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_"):
                continue
            if total[node.name] <= count_uses(node)[node.name]:  # it may name itself
                unused.append(f"{file.relative_to(ROOT)}: {node.name}")
    return unused


def test_every_public_function_and_class_is_used():
    assert find_unused() == []


def test_every_part_of_a_paper_is_called_by_a_recipe_or_other_code():
    methods = [line for line in find_unused(pages=False) if line.startswith("mmrl/methods/")]
    assert {line.rpartition(" ")[2] for line in methods} == AFTER_RUNS
