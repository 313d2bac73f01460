"""The map of an iteration that docs/design.md names, as it is started there."""

import subprocess
from pathlib import Path

from tests.quick_python import quick_python

ROOT = Path(__file__).parents[2]


def test_an_iteration_that_learns_is_traced():
    words = [quick_python(), "scripts/trace_iteration.py"]
    lines = subprocess.run(words, cwd=ROOT, check=True, text=True, capture_output=True).stdout.splitlines()
    files = {line.split()[1].rstrip(":"): line for line in lines if line[:3].strip().isdigit() and ": " in line}
    assert lines[-1] == f"{len(files)} files"
    assert f"and {len(files)} with the callbacks" in (ROOT / "docs" / "design.md").read_text()
    assert "ClippedSurrogate" in files["mmrl/objectives/policy.py"] and "mmrl/ops/policy_gradient.py" in files
    assert "mmrl/rewards/scoring.py" in files and "mmrl/annotators/group_advantage.py" in files
