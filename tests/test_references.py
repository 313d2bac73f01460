"""Paths and import paths that documents, docstrings, comments and messages name exist in the repository."""

import ast
import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_layers import ALLOWED

ROOT = Path(__file__).parents[1]
FOLDERS = ("conf", "docs", "examples", "mmrl", "scripts", "sims", "tasks", "tests")
FORMER = {"docs/corrections.md", "mmrl/config/renamed.yaml", "scripts/restamp.yaml"}
"""Files that say what was called otherwise before."""
KEYS = {
    *("mmrl/seed", "mmrl/sampling"),  # of a request to a policy server
    "mmrl.conf",  # group of entry points
    *("mmrl.elements", "mmrl.expert", "mmrl.proceed", "mmrl.scroll", "mmrl.start"),  # JavaScript of a page
}
"""What looks like a path or an import path, and is none."""
PATH = re.compile(rf"(?<![\w./<>{{}}$*-])(?:{'|'.join(FOLDERS)})/(?:[\w./*<>,-]|\{{[^{{}}\n]*\}})*[\w/*>}}]")
NAME = re.compile(r"(?<![\w./-])(?:mmrl(?:\.\w+)+|(?:tasks|sims|tests)(?:\.\w+)+(?![\w(]))")
PART = re.compile(r"`((?:[\w-]+/)+[\w-]+\.(?:py|yaml|sh))`")  # `text/policy.py`, without the folder above
PLACEHOLDER = re.compile(r"(\*+|<[^>]*>|\{[^}]*\}|(?<![A-Za-z])[A-Z]{2,}(?![A-Za-z]))")
RELEASED = re.compile(r"released code[^\"|\n]*")  # paths in the repository of a paper
IMPORT = re.compile(r"^\s*(?:from [\w.]+ import|import [\w.]+$).*", flags=re.MULTILINE)  # Python checks these
PROSE = re.compile(r'^\s*"""(?=\w)(.*?)"""|(?:^|\s\s)#\s([^\n]*)', flags=re.DOTALL | re.MULTILINE)
TITLE = re.compile(r'title="(.+?)"|^(?:python -m )?mmrl new \w+ (\w+)', flags=re.MULTILINE)


@functools.cache
def entries() -> frozenset[str]:
    """All files and folders of the repository that a text may name."""
    names = set(FOLDERS)
    for folder in FOLDERS:
        for root, folders, files in os.walk(ROOT / folder):
            folders[:] = [name for name in folders if name != "__pycache__"]
            names |= {os.path.relpath(os.path.join(root, name), ROOT) for name in folders + files}
    return frozenset(names)


@functools.cache
def tails() -> frozenset[str]:
    """The last parts of all paths."""
    return frozenset("/".join(entry.split("/")[start:]) for entry in entries() for start in range(entry.count("/") + 1))


def path_exists(path: str) -> bool:
    """Whether a path of the repository exists, or one that fits its *, <placeholder>, NAME, {a,b} or {value}."""
    path = path.rstrip("/")
    if not PLACEHOLDER.search(path):
        return path in entries()
    pattern = ""
    for piece in PLACEHOLDER.split(path):
        if piece.startswith("{") and "," in piece:
            pattern += f"({'|'.join(map(re.escape, piece[1:-1].split(',')))})"
        else:
            pattern += ".*" if PLACEHOLDER.fullmatch(piece) else re.escape(piece)
    return any(map(re.compile(pattern).fullmatch, entries()))


@functools.cache
def members(module: str) -> dict[str, ast.stmt] | None:
    """The names of a module with the statements that bind them; None if there is no such module."""
    place = ROOT / module.replace(".", "/")
    file = next((file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()), None)
    if file is None:
        return {} if place.is_dir() else None
    return dict(bind(ast.parse(file.read_text()).body))


def bind(body: list[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    """Every name that a body of statements binds, with its statement."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name, node) for alias in node.names)
        elif isinstance(node, ast.If | ast.Try):
            yield from bind(node.body)
        else:
            stored = (child for child in ast.walk(node) if isinstance(child, ast.Name | ast.Attribute))
            yield from ((getattr(child, "id", getattr(child, "attr", "")), node) for child in stored)


@functools.cache
def name_exists(name: str) -> bool:
    """Whether a module, or a name of a module, or a member of a class of a module is in the repository."""
    parts = name.split(".")
    if any(part.isupper() or part.startswith("__") for part in parts[1:2]):  # mmrl.NAME, mmrl.__file__
        return True
    end = next(count for count in range(len(parts), -1, -1) if members(".".join(parts[:count])) is not None)
    if end == len(parts):
        return True
    node = (members(".".join(parts[:end])) or {}).get(parts[end])
    if not isinstance(node, ast.ClassDef) or len(parts) == end + 1:
        return node is not None
    fields = {*dict(bind(node.body)), *(item.attr for item in ast.walk(node) if isinstance(item, ast.Attribute))}
    return bool(node.bases) or parts[end + 1] in fields


def read(file: str) -> str:
    """The text of a file that speaks of the repository: of a test the comments and docstrings alone."""
    text = RELEASED.sub("", (ROOT / file).read_text())
    if file.startswith("tests/"):
        return "\n".join(docstring or comment for docstring, comment in PROSE.findall(text))
    return IMPORT.sub("", text) if file.endswith(".py") else text


def find_missing(text: str) -> list[str]:
    """The paths and import paths of a text that are not in the repository, and that its blocks do not write."""
    written = {title or name for title, name in TITLE.findall(text)}
    missing = {path for path in PATH.findall(text) if not path_exists(path)}
    missing |= {name for name in NAME.findall(text) if not name.endswith(".py") and not name_exists(name)}
    parts = {part for part in PART.findall(text) if not PLACEHOLDER.search(part)}
    return sorted(name for name in (missing | (parts - tails())) - KEYS if not any(title in name for title in written))


def test_what_texts_name_exists():
    files = {entry for entry in entries() if entry.endswith((".md", ".py", ".yaml", ".sh"))} - FORMER
    missing = {file: find_missing(read(file)) for file in sorted(files | {"README.md", "CONTRIBUTING.md"})}
    assert {file: names for file, names in missing.items() if names} == {}


def test_the_rooms_of_design_are_those_of_mmrl():
    section = (ROOT / "docs" / "design.md").read_text().split("\n## The rooms of `mmrl/`")[1].split("\n## ")[0]
    rooms = re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE)
    assert rooms == sorted(entry.split("/")[1] for entry in entries() if re.fullmatch(r"mmrl/[a-z]\w*", entry))


def test_design_names_what_tasks_and_simulators_may_import():
    section = (ROOT / "docs" / "design.md").read_text().split("\n## Who may import whom")[1].split("\n## ")[0]
    assert set(re.findall(r"`(mmrl\.[\w.]+)`", section)) == (ALLOWED["tasks"] | ALLOWED["sims"]) - {"tasks", "sims"}


@functools.cache
def anchors(page: str) -> set[str]:
    """The anchors of a page: its headings, and ids that its HTML gives."""
    text = (ROOT / page).read_text()
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    slugs = {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'(?:id="|\{ ?#)([\w-]+)', text))


def test_links_lead_somewhere():
    """Pages of the reference are written when the site is built, which checks links to them."""
    wrong = []
    for page in sorted({entry for entry in entries() if entry.endswith(".md")} | {"README.md", "CONTRIBUTING.md"}):
        text = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.DOTALL)
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)", text):
            file = os.path.normpath(os.path.join(os.path.dirname(page), target)) if target else page
            if file.startswith("docs/reference/"):
                continue
            exists = (ROOT / file).exists()
            if not exists or (anchor and file.endswith(".md") and anchor not in anchors(file)):
                wrong.append(f"{page}: {target}#{anchor}")
    assert wrong == []


@pytest.mark.parametrize(
    "text",
    [
        "see mmrl/core/types.py, `mmrl.core.types.Prompt.nothing`",
        "`mmrl/rows`",
        "mmrl.ops.advantage.no_function",
        "mmrl.data.rollout_data.RolloutData2",
        "conf/recipe/losses/{grpo,no_recipe}.yaml and tests/no_*.py",
        "conf/method/<theme>/no_method.yaml",
        "tasks.arithmetic.task.NoTask",
        "`engines/vllm/client.py`",
    ],
)
def test_a_wrong_name_is_noticed(text):
    assert find_missing(text)


@pytest.mark.parametrize(
    "text",
    [
        "mmrl/core/types.py:12, `mmrl.core.batch.Batch` and mmrl.fit",
        "conf/method/<theme>/<paper>.yaml, tests/test_*.py, tasks/NAME/task.py",
        "scripts/{reproduce,restamp}.py",
        "`vllm/servers/client.py` under https://github.com/a/b/tasks/other.py",
        "tasks.items() and self.tasks.values",
    ],
)
def test_a_right_name_is_none_of_them(text):
    assert not find_missing(text)
