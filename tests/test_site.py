"""The site builds strictly, needs no network, and describes every part with its arguments."""

import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.quick_python import quick_python

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "scripts" / "site"))
reference = importlib.import_module("reference")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [quick_python(), "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


def test_pages_load_nothing_from_the_network(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        loaded = re.findall(r'<(?:script|img|iframe|source)[^>]*\bsrc="(https?:)?//', page.read_text())
        loaded += re.findall(r'<link[^>]*\bhref="https?://[^"]*"', page.read_text())
        assert not loaded, page
    assert (site / "search" / "search_index.js").exists()  # the search of a site that is read from a folder


def test_the_page_of_a_task_shows_problems_with_their_picture_and_the_floor(site):
    page = (site / "tasks" / "jigsaw.html").read_text()
    assert "Held-out problems of" in page and "commonest" in page and "2 4 1 3" in page
    assert (site / "tasks" / re.findall(r'src="(\.\./assets/tasks/jigsaw\.png)"', page)[0]).stat().st_size > 1000
    for readme in ROOT.glob("tasks/*/README.md"):
        assert f"tasks/{readme.parent.name}.html" in (site / "index.html").read_text()


def test_formulas_and_types_of_docstrings_stand_as_they_are_written(site):
    """Underscores, braces and bars of docstrings are no marks of Markdown: DQO's loss, and a type of two types."""
    terms = (site / "reference" / "terms.html").read_text()
    assert "V_{t+1} - V_t" in terms and "<code>str | None</code>" in terms
    for page in (site / "reference").glob("*.html"):
        assert "\\|" not in page.read_text() and "<em>" not in page.read_text(), page


def test_long_keys_of_tables_may_go_on_in_a_new_line_and_read_the_same(site):
    """A long key has places to break, short keys and blocks of code have none."""
    page = (site / "coming-from.html").read_text()
    assert "<code>objective.<wbr>terms.<wbr>policy.<wbr>clip_low</code>" in page
    assert "<code>ckpt_path</code>" in page and "<code>data.group_size</code>" in page
    assert all("<wbr>" not in block for block in re.findall(r"<pre>.*?</pre>", page, flags=re.DOTALL))


@pytest.fixture(scope="module")
def pages():
    return reference.pages()


@pytest.mark.parametrize("slot", reference.SLOTS, ids=lambda slot: slot.name)
def test_every_part_is_on_its_page_with_every_argument(slot, pages):
    page = pages[f"reference/{slot.name}.md"]
    bases = tuple(
        getattr(importlib.import_module(path.rpartition(".")[0]), path.rpartition(".")[2]) for path in slot.bases
    )
    parts = set()
    for package in slot.packages:
        for module in _modules(package):
            parts |= {
                part for part in vars(module).values() if inspect.isclass(part) and part.__module__ == module.__name__
            }
    parts = {part for part in parts if issubclass(part, bases) and part not in bases and not inspect.isabstract(part)}
    assert parts
    for part in parts:
        if part.__name__.startswith("_"):
            continue
        entry = re.split(r"^## ", page.split(f"\n## {part.__name__}\n")[1], flags=re.MULTILINE)[0]
        assert f"`{part.__module__}.{part.__qualname__}`" in entry
        takes = next(base for base in part.__mro__ if "__init__" in vars(base))
        if not takes.__module__.startswith(("mmrl.", "tasks.", "sims.")):
            continue  # arguments of another library, or none
        for name, parameter in inspect.signature(part).parameters.items():
            if parameter.kind not in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL):
                assert f"\n| `{name}` | " in entry, (part, name)


def _modules(package):
    """The modules of a package, but for those that run inside of vLLM or the sandbox alone."""
    root = importlib.import_module(package)
    for module in pkgutil.walk_packages(root.__path__, f"{package}."):
        if not module.name.startswith(("mmrl.__main__", "mmrl.tools.sandbox.worker")):
            try:
                yield importlib.import_module(module.name)
            except ModuleNotFoundError as error:
                if (error.name or "").partition(".")[0] != "vllm":
                    raise


def test_every_argument_has_a_meaning(pages):
    rows = [(path, row) for path, page in pages.items() for row in page.splitlines() if re.match(r"\| `\w+` \| ", row)]
    assert len(rows) > 300
    assert not [entry for entry in rows if entry[1].endswith("|  |")]
