"""A stored result stays valid when code changed and no number did, and in no other case."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))  # the two scripts import each other as they do when they are run
import restamp  # noqa: E402
import tiny_runs  # noqa: E402

STORED = {"method": "old"}


def side(content="old", config=None, weights="same"):
    return {"method": {"content": content, "config": config or {"model": 1}, "weights": weights}}


@pytest.mark.parametrize(
    ("before", "now", "reason"),
    [
        (side(), side("new"), None),
        (side("older"), side("new"), "not current"),
        (side(), side("new", config={"model": 2}), "configuration of the method"),
        (side(), side("new", weights="other"), "other weights"),
    ],
)
def test_only_what_was_current_and_computes_the_same_is_kept(before, now, reason):
    message = restamp.reason(STORED, before, now)
    assert (message is None) == (reason is None) and (reason or "") in (message or "")


def test_a_recipe_that_gives_other_numbers_is_named():
    before = {"grpo": {"weights": "a", "metrics": ["0.5"]}, "sac": {"weights": "b", "metrics": []}}
    assert tiny_runs.compare(before, before) == []
    now = {"grpo": {"weights": "a", "metrics": ["0.25"]}, "td3": {"weights": "c", "metrics": []}}
    assert tiny_runs.compare(before, now) == ["grpo: other metrics", "td3: not in the record"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        ("paired_margin", "preference_margin", True),
        ("-(1 - label_smoothing) * logsigmoid", "-logsigmoid(-margin) - logsigmoid", False),
    ],
)
def test_an_operation_with_another_name_keeps_results_and_another_loss_does_not(old, new, kept, tmp_path):
    def run(*words):
        environment = os.environ | {"PYTHONPATH": str(tmp_path / "copy")}
        done = subprocess.run(
            words, cwd=tmp_path / "copy", env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(tmp_path / "copy")], check=True)
    name = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    state = "from mmrl.experiments.stored import plan_of, state; plan = plan_of('bradley_terry'); "
    content = run(sys.executable, "-c", f"{state}print(plan.content()['method'])").strip()
    stored = tmp_path / "copy" / "docs" / "proofs" / "bradley_terry.json"
    stored.write_text(re.sub(r'"method": "[0-9a-f]{16}"', f'"method": "{content}"', stored.read_text()))
    run("git", *name, "commit", "--quiet", "--allow-empty", "-am", "A current result")

    changed = [file for file in (tmp_path / "copy" / "mmrl").rglob("*.py") if old in file.read_text()]
    assert changed
    for file in changed:
        file.write_text(file.read_text().replace(old, new))
    assert run(sys.executable, "-c", f"{state}print(state(plan))").strip() == "stale"
    message = run(sys.executable, "scripts/restamp.py", "HEAD", "bradley_terry")
    assert message.splitlines()[-1].startswith("bradley_terry: kept" if kept else "bradley_terry: run it again")
    assert run(sys.executable, "-c", f"{state}print(state(plan))").strip() == ("current" if kept else "stale")
