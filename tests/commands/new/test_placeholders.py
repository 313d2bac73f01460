"""Nothing that `mmrl new` leaves to be written is left in a file of mmrl."""

from pathlib import Path

import pytest
import yaml

from mmrl.commands.new.files import PLACEHOLDER, TEMPLATES
from mmrl.commands.new.method import SLOTS
from mmrl.config.option_files import CONF, find_options
from mmrl.experiments.papers import STATUS

ROOT = Path(__file__).parents[3]
HEADER = {"title", "year", "source", "status", "differs"}
OPTIONAL = {"acts", "idle"}
METHODS = {name: file.path for name, file in find_options()["method"].items()}


def test_no_placeholder_is_left():
    """Where this fails, write what stands after the word: title, source, equation, numbers."""
    files = [*METHODS.values(), *ROOT.glob("mmrl/methods/**/*.py"), *ROOT.glob("tests/methods/**/*.py")]
    assert not [str(file.relative_to(ROOT)) for file in files if has_placeholder(file.read_text())]


def test_every_part_that_is_to_be_written_has_a_placeholder():
    names = ["method.yaml", *(f"{slot}{end}" for slot in SLOTS for end in (".py", "_test.py"))]
    assert all(has_placeholder((TEMPLATES / f"{name}.txt").read_text()) for name in names)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_a_header_and_a_theme(name):
    keys = yaml.safe_load(METHODS[name].read_text())
    header = keys["paper"]
    assert header.keys() - OPTIONAL == HEADER and all(header[key] for key in header.keys() - {"year"})
    assert keys["paper"]["status"] in STATUS
    assert METHODS[name].parent.parent == CONF / "method"
    assert keys.get("paper_setting", {"place": "of none"})["place"]


def has_placeholder(text: str) -> bool:
    return PLACEHOLDER in text or "???" in text
