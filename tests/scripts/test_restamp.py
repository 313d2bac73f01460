"""A stored result stays valid when only names changed, and in no other case."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mmrl.experiments import results
from mmrl.experiments.renames import ConfigComparison

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))  # the two scripts import each other as they do when they are run
import restamp  # noqa: E402
import tiny_runs  # noqa: E402

STORED = {"content": {"method": "old"}}


def side(content="old", config=None, weights="same", metrics=("0.5",)):
    runs = [{"weights": "start", "metrics": []}, {"weights": weights, "metrics": list(metrics)}]
    return {"method": {"content": content, "config": config or {"lr": 1}, "runs": runs}}


@pytest.mark.parametrize(
    ("before", "now", "reason"),
    [
        (side(), side("new"), None),
        (side(), side("new", config={"learning_rate": 1}), None),
        (side("older"), side("new"), "not current"),
        (side(), side("new") | {"baseline": {}}, "sides were"),
        (side(), side("new", config={"lr": 2}), "configuration of the method has changed: lr was 1, lr is 2"),
        (side(), side("new", weights="other"), "other weights"),
        (side(), side("new", metrics=("0.25",)), "other metrics"),
    ],
)
def test_only_what_was_current_and_computes_the_same_is_kept(before, now, reason):
    for result in (STORED, {"content": {"method": "restamped"}, "measured_content": {"method": "old"}}):
        message = restamp.find_reason(result, before, now, ConfigComparison())
        assert (message is None) == (reason is None) and (reason or "") in (message or "")


def test_a_cell_of_a_comparison_keeps_the_hash_of_its_runs(tmp_path, monkeypatch):
    cells = results.FOLDER / "comparisons" / "credit.json"
    (tmp_path / "comparisons").mkdir()
    copy = tmp_path / "comparisons" / "credit.json"
    copy.write_text(cells.read_text())
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    assert restamp.list_sides("credit/sums/GRPO")["method"][0] == "recipe=grpo"
    one, other = list(json.loads(cells.read_text())["cells"]["sums"])[:2]  # any two that are stored
    name = f"credit/sums/{one}"
    before = restamp.read_hashes(name)
    measured = before.get("measured_content", before["content"])
    for new in ("first", "second"):
        restamp.write_hashes(name, {"method": new})
        assert restamp.read_hashes(name) == {"content": {"method": new}, "measured_content": measured}
    old, stored = (json.loads(file.read_text())["cells"]["sums"] for file in (cells, copy))
    assert stored[other] == old[other] and stored[one]["seeds"] == old[one]["seeds"]


def test_a_recipe_that_gives_other_numbers_is_named():
    before = {"grpo": {"weights": "a", "metrics": ["0.5"]}, "sac": {"weights": "b", "metrics": []}}
    assert tiny_runs.compare(before, before) == []
    now = {"grpo": {"weights": "a", "metrics": ["0.25"]}, "td3": {"weights": "c", "metrics": []}}
    assert tiny_runs.compare(before, now) == ["grpo: other metrics", "td3: not in the record"]


RENAMES = {
    "paired_margin": "preference_margin",  # an operation
    "num_minibatches": "minibatch_count",  # a configuration key
    "episode_reward": "total_reward",  # a column
    "mmrl.objectives.preference": "mmrl.objectives.pairwise",  # a module
}
READ = (
    "from mmrl.experiments.experiment import read_experiment; from mmrl.experiments.results import result_state; "
    "one = read_experiment('bradley_terry'); "
)


@pytest.fixture
def checkout(tmp_path):
    """A clone whose result of bradley_terry is current, as a folder and a function that runs a command in it."""
    folder = tmp_path / "copy"
    environment = os.environ | {"PYTHONPATH": str(folder), "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def run(*words):
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0 or "run it again" in done.stdout, done.stderr[-3000:]
        return done.stdout

    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
    current = json.loads(run(sys.executable, "-c", f"{READ}import json; print(json.dumps(one.hash_sides()))"))
    stored = folder / "docs" / "results" / "recipes" / "preferences" / "bradley_terry.json"
    stored.write_text(re.sub(r'"method": "[0-9a-f]{16}"', f'"method": "{current["method"]}"', stored.read_text()))
    author = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    run("git", *author, "commit", "--quiet", "--allow-empty", "-am", "A current result")
    return folder, run


def edit(folder: Path, old: str, new: str) -> None:
    """Replace a text in all code and configuration."""
    files = [file for end in ("*.py", "*.yaml") for file in folder.rglob(end)]
    changed = [file for file in files if old in file.read_text()]
    assert changed, f"no file has {old!r}"
    for file in changed:
        file.write_text(file.read_text().replace(old, new))


@pytest.mark.slow
def test_new_names_keep_a_result_and_new_numbers_do_not(checkout):
    folder, run = checkout

    def restamped() -> str:
        assert run(sys.executable, "-c", f"{READ}print(result_state(one))").strip() == "stale"
        message = run(sys.executable, "scripts/restamp.py", "HEAD", "bradley_terry")
        state = run(sys.executable, "-c", f"{READ}print(result_state(one))").strip()
        assert state == ("current" if "bradley_terry: kept" in message else "stale"), message
        return message

    (folder / "mmrl" / "objectives" / "preference.py").rename(folder / "mmrl" / "objectives" / "pairwise.py")
    for old, new in RENAMES.items():
        edit(folder, old, new)
    assert "kept" in restamped()

    run("git", "checkout", "--quiet", "docs")  # the result of the commit again
    setting = folder / "conf" / "setting" / "text" / "reward_model.yaml"
    text = setting.read_text()
    setting.write_text(re.sub(r"num_prompts: \d+", "num_prompts: 7", text))
    assert "data.num_prompts was" in restamped()

    setting.write_text(text)
    edit(folder, "-(1 - label_smoothing) * logsigmoid", "-logsigmoid(-margin) - logsigmoid")
    assert "a tiny run of the method gives other weights" in restamped()
