"""Who may import whom, how large a room may get, and what shared code may not know; read from the sources alone."""

from __future__ import annotations

import ast
import functools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mmrl.commands.new.files import MOST_FILES
from mmrl.config.compose import CONF

ROOT = Path(__file__).parent.parent
FILES = sorted(file for name in ("mmrl", "tasks", "sims") for file in (ROOT / name).rglob("*.py"))
FILE_LINES = 300
LONG_FILES = {"mmrl.data.rollout_data", "mmrl.policies.text.policy", "mmrl.policies.vla.chain"}
"""What a reader follows from the top to the bottom; up to 400 lines."""
FUNCTION_LINES = 60

# what the modules of a package may import of this project; the longest prefix that fits counts
ALLOWED = {
    "mmrl.ops": {"mmrl.ops"},
    "mmrl.core.lazy_module": set(),
    "mmrl.core.types": {"mmrl.core.sampling", "mmrl.core.messages", "mmrl.core.lazy_module"},
    "mmrl.core.messages": set(),
    "mmrl.core.sampling": {"mmrl.core.installation"},
    "mmrl.core.installation": {"mmrl.core.errors", "mmrl.core.installation"},
    "mmrl.core.batch": set(),
    "mmrl.core.columns": set(),
    "mmrl.core.rng": {"mmrl.core.lazy_module"},
    "tasks": {
        *(
            "mmrl.core.types",
            "mmrl.core.errors",
            "mmrl.core.rng",
            "mmrl.files.strict_json",
            "mmrl.rewards",
            "mmrl.tools",
            "mmrl.core.games",
            "mmrl.core.installation",
        ),
        *("mmrl.core.text_environment", "mmrl.files.foreign", "mmrl.media", "tasks"),
    },
    "sims": {
        "mmrl.core.types",
        "mmrl.core.errors",
        "mmrl.core.rng",
        "mmrl.rewards",
        "mmrl.distributed.ending",
        "mmrl.distributed.waiting",
        "mmrl.files.pickled",
        "mmrl.core.lazy_module",
        "mmrl.core.installation",
        "mmrl.tools.programs",
        "sims",
    },
}
FORBIDDEN = {
    "mmrl": {"tasks", "sims", "tests"},
    "mmrl.ops": {"numpy", "transformers", "lightning", "gymnasium"},
    **{
        f"mmrl.{name}": {"mmrl.policies", "mmrl.learners", "mmrl.data"}
        for name in ("rollouts", "rewards", "curricula", "transforms", "objectives", "annotators")
    },
    "mmrl.learners.phases": {"mmrl.policies"},
    "mmrl.data": {"mmrl.learners"},
    "mmrl.policies": {
        "mmrl.learners",
        "mmrl.data",
        "mmrl.engines",
        "mmrl.rollouts",
        "mmrl.annotators",
        "mmrl.objectives",
    },
    "mmrl.engines": {"mmrl.learners", "mmrl.data", "mmrl.rollouts", "mmrl.annotators", "mmrl.objectives"},
}
SHARED = (
    *("data", "learners", "rollouts", "annotators", "objectives", "tools", "engines", "transforms", "rewards"),
    *("curricula", "evaluation"),
)
FOLDER_FILES = 15
"""A folder with more modules than that needs rooms of its own."""
ROOT_ENTRIES = 31
THEME_FILES = MOST_FILES
"""Files in a folder of any kind."""


def module(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@functools.cache
def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


@pytest.fixture(scope="module", autouse=True)
def forgotten() -> Iterator[None]:
    """Files are parsed once for all tests of this module, and not kept for others."""
    yield
    tree.cache_clear()
    imports.cache_clear()


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


@functools.cache
def imports(file: Path) -> list[str]:
    """Modules imported at run time, in functions too; those under `if TYPE_CHECKING` are for reading only."""
    parsed = tree(file)
    typing_only = {
        inner
        for node in ast.walk(parsed)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    names: list[str] = []
    for node in ast.walk(parsed):
        if node in typing_only:
            continue
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module(file)}: write imports in full"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def functions(file: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_imports_run_one_way():
    wrong = []
    for file in FILES:
        name = module(file)
        for imported in imports(file):
            own = imported.split(".")[0] in ("mmrl", "tasks", "sims", "tests")
            for package, allowed in ALLOWED.items():
                if own and within(name, package) and not any(within(imported, entry) for entry in allowed):
                    wrong.append(f"{name} imports {imported}")
            for package, forbidden in FORBIDDEN.items():
                if within(name, package) and any(within(imported, entry) for entry in forbidden):
                    wrong.append(f"{name} imports {imported}")
    assert not wrong


def room(name: str) -> str:
    """The folder below mmrl/ that a module is in, or the module itself at the top."""
    parts = name.split(".")
    return ".".join(parts[:2]) if (ROOT / "mmrl" / parts[1]).is_dir() else name


def test_no_two_folders_import_each_other():
    """Neither directly nor in a longer circle, imports inside functions included; the command line is above all."""
    modules = {module(file) for file in FILES if within(module(file), "mmrl")}
    edges: dict[str, set[str]] = {}
    for file in FILES:
        name = module(file)
        if name == "mmrl" or not within(name, "mmrl") or name == "mmrl.__main__":
            continue
        for imported in imports(file):
            target = imported if imported in modules else imported.rpartition(".")[0]
            if target in modules and target != "mmrl" and room(target) != room(name):
                edges.setdefault(room(name), set()).add(room(target))

    def reach(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for target in edges.get(waiting.pop(), set()) - seen:
                seen.add(target)
                waiting.append(target)
        return seen

    circles = sorted(name for name in edges if name in reach(name))
    assert not circles, f"folders that import each other in a circle: {circles}"


def test_parts_of_a_paper_are_used_by_configuration_alone():
    """What two papers need is in the folder of its kind, under the name of what it computes."""
    wrong = []
    for file in FILES:
        name = module(file)
        paper = ".".join(name.split(".")[:4]) if within(name, "mmrl.methods") else None
        for imported in imports(file):
            if within(imported, "mmrl.methods") and not (paper and within(imported, paper)):
                wrong.append(f"{name} imports {imported}")
    assert not wrong


def test_folders_hold_about_a_dozen_files():
    for folder in {file.parent for file in FILES if within(module(file), "mmrl")}:
        files = [file.name for file in folder.glob("*.py") if file.name != "__init__.py"]
        assert len(files) <= FOLDER_FILES, f"{folder.relative_to(ROOT)} holds {len(files)} modules"


def test_no_folder_of_the_repository_holds_more_than_25_files():
    """Files directly in it, those of tests, configuration, scripts and results too."""
    folders = {}
    for name in ("conf", "docs", "examples", "mmrl", "scripts", "sims", "tasks", "tests"):
        for folder, _, files in os.walk(ROOT / name):
            folders[Path(folder).relative_to(ROOT).as_posix()] = sum(not file.endswith(".pyc") for file in files)
    assert not {folder for folder, count in folders.items() if count > THEME_FILES}, "these need rooms"


def test_the_root_of_the_package_can_be_read_at_a_glance():
    package = ROOT / "mmrl"
    entries = {file.relative_to(package).parts[0] for file in package.rglob("*.py")}
    assert len(entries) <= ROOT_ENTRIES, sorted(entries)


def test_methods_are_in_themes():
    """Configurations, code and tests of a paper have the same theme; a theme has at most 25 papers."""
    themes = {file.stem: file.parent.name for file in (CONF / "method").rglob("*.yaml")}
    for parent in (CONF / "method", ROOT / "mmrl" / "methods", ROOT / "tests" / "methods"):
        loose = [file.name for file in parent.glob("*.*") if file.name != "__init__.py"]
        assert not loose, f"{parent.relative_to(ROOT)}: {loose} are in no theme"
        for entry in parent.glob("*/*"):
            name = entry.stem.removeprefix("test_")
            assert themes.get(name, entry.parent.name) == entry.parent.name, f"{name} is of {themes.get(name)}"
        for theme in parent.glob("[!_]*"):
            assert len(list(theme.glob("*.*"))) <= THEME_FILES, f"{theme.relative_to(ROOT)} needs another theme"


def test_tensor_functions_need_torch_alone():
    allowed = {"torch", "mmrl", "math", "typing", "collections", "dataclasses", "__future__", "functools", "itertools"}
    for file in FILES:
        if within(module(file), "mmrl.ops"):
            assert {imported.split(".")[0] for imported in imports(file)} <= allowed, file


@pytest.mark.parametrize("file", FILES, ids=module)
def test_rooms_are_small(file):
    lines = len(file.read_text().splitlines())
    assert lines <= (400 if module(file) in LONG_FILES else FILE_LINES), f"{lines} lines"
    for node in functions(file):
        assert node.end_lineno - node.lineno + 1 <= FUNCTION_LINES, f"{node.name} has too many lines"


def test_the_trainers_hardware_is_read_in_one_place():
    """trainer.precision, .accelerator and .strategy (also *_plugin) are Lightning's matter, and parallel.py's."""
    names = {"precision", "accelerator", "strategy", "precision_plugin"}
    for file in FILES:
        if module(file) == "mmrl.distributed.parallel":
            continue
        for node in ast.walk(tree(file)):
            if isinstance(node, ast.Attribute) and node.attr in names and "trainer" in ast.unparse(node.value):
                raise AssertionError(f"{module(file)}:{node.lineno} reads {ast.unparse(node)}")


def test_shared_code_compares_with_no_method_and_no_policy():
    """No branch on a method's, a setting's, a recipe's, a policy's, a task's or a policy class's name."""
    slots = ("method", "setting", "recipe", "start", "policy", "task", "sim")
    names = {file.stem for slot in slots for file in (CONF / slot).rglob("*.yaml")}
    classes = {
        node.name
        for file in FILES
        if within(module(file), "mmrl.policies")
        for node in ast.walk(tree(file))
        if isinstance(node, ast.ClassDef) and node.name.endswith("Policy") and node.name != "Policy"
    }
    for file in FILES:
        if not any(within(module(file), f"mmrl.{part}") for part in SHARED):
            continue
        for node in ast.walk(tree(file)):
            if isinstance(node, ast.Compare):
                result = {inner.value for inner in ast.walk(node) if isinstance(inner, ast.Constant)} & names
                assert not result, f"{module(file)}:{node.lineno} compares with {result}"
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
                result = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)} & classes
                assert not result, f"{module(file)}:{node.lineno} asks for {result}"


def test_every_public_part_says_what_it_is():
    """Modules, classes and functions that are not private have a docstring; methods of a documented class may not."""
    bare = []
    for file in FILES:
        parsed = tree(file)
        if parsed.body and not ast.get_docstring(parsed):
            bare.append(module(file))
        for node in parsed.body:
            public = isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
            if public and not ast.get_docstring(node):
                bare.append(f"{module(file)}.{node.name}")
    assert not bare


def test_there_is_one_loop():
    """Only what plays an iteration asks a rollout to collect for training; evaluation plays by itself. Rollouts may
    build on each other."""
    callers = {
        module(file)
        for file in FILES
        for node in ast.walk(tree(file))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "collect"
    }
    others = {
        caller for caller in callers if not any(within(caller, f"mmrl.{name}") for name in ("rollouts", "methods"))
    }
    assert others <= {"mmrl.data.collector", "mmrl.evaluation.held_out"}
