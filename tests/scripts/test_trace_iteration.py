"""The map of an iteration that docs/design.md names, as it is started there."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.quick_python import quick_python

ROOT = Path(__file__).parents[2]
COUNTS = re.findall(
    r"\| (?:GRPO on text|`(recipe=.+)`) \| (\d+) \| (\d+) \|", (ROOT / "docs" / "design.md").read_text()
)


def trace(words: str) -> list[str]:
    command = [quick_python(), "scripts/trace_iteration.py", *words.split()]
    return subprocess.run(command, cwd=ROOT, check=True, text=True, capture_output=True).stdout.splitlines()


def test_an_iteration_that_learns_is_traced():
    files = {line.split()[1].rstrip(":"): line for line in trace("") if line[:3].strip().isdigit() and ": " in line}
    assert "ClippedSurrogate" in files["mmrl/objectives/policy.py"] and "mmrl/ops/policy_gradient.py" in files
    assert "mmrl/rewards/scoring.py" in files and "mmrl/annotators/group_advantage.py" in files
    assert not any(file.startswith("mmrl/callbacks/") for file in files)


@pytest.mark.parametrize(("words", "files", "ours"), COUNTS)
def test_the_counts_of_the_page_are_those_of_the_trace(words, files, ours):
    assert len(COUNTS) == 3
    assert trace(words)[-1].startswith(f"{files} files: {ours} of mmrl/")
