"""The scripted expert and random actions play a simulator's held-out states in place of a policy."""

import json

import pytest

from mmrl.commands.evaluate import evaluate


@pytest.mark.parametrize(("policy", "least", "most"), [("expert", 1.0, 1.0), ("random", 0.0, 0.0)])
def test_evaluation_of_a_simulator_without_a_policy(policy, least, most, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["sim=reach", "sim.image_size=8", "sim.level=easy", f"policy={policy}"]
    result = evaluate([*words, "count=2", "run_dir=run"])
    success = result["metrics"]["policy"]["sampled"]["success"]
    assert list(result["metrics"]["policy"]) == ["sampled"]
    assert least <= success["mean"] <= most
    assert json.loads((tmp_path / "run" / "evaluation.json").read_text())["count"] == 2
