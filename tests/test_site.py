"""The site builds strictly, needs no network, and describes every part with its arguments."""

import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mmrl.commands.catalogue import PARTS, classes, plural

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "scripts" / "site"))
reference = importlib.import_module("reference")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
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


@pytest.fixture(scope="module")
def pages():
    return reference.pages()


@pytest.mark.parametrize("kind", sorted(PARTS))
def test_every_part_is_on_its_page_with_every_argument(kind, pages):
    page = pages[f"reference/{plural(kind)}.md"]
    for part in classes(kind):
        entry = re.split(r"^## ", page.split(f"\n## {part.__name__}\n")[1], flags=re.MULTILINE)[0]
        assert f"`{part.__module__}.{part.__qualname__}`" in entry
        for name, parameter in inspect.signature(part).parameters.items():
            if (
                parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
                and "lightning" not in part.__init__.__module__
            ):
                assert f"\n| `{name}` | " in entry, (part, name)


def test_every_argument_has_a_meaning(pages):
    rows = [(path, row) for path, page in pages.items() for row in page.splitlines() if re.match(r"\| `\w+` \| ", row)]
    assert len(rows) > 300
    assert not [entry for entry in rows if entry[1].endswith("|  |")]
