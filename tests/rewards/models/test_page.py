"""The page on reward models: pairs, a reward model of them, and a policy that it makes better."""

import json
import re
import shlex
from pathlib import Path

import pytest

import mmrl
from mmrl.__main__ import main

PAGE = Path(mmrl.__file__).parents[1] / "docs" / "how-to" / "reward-models.md"


@pytest.mark.slow  # two minutes of a core
def test_the_policy_of_the_page_becomes_better(tmp_path, monkeypatch):
    """As the page says: from about a fifth of the held-out requests to about a half."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```(python|sh)\n(.*?)```", PAGE.read_text().replace("\\\n", " "), flags=re.DOTALL)
    exec(next(text for language, text in blocks if language == "python"), {})
    fits = [shlex.split(text) for language, text in blocks if language == "sh" and "run_dir=" in text]
    for words in fits[:2]:  # the reward model and the policy
        assert main(words[1:]) == 0
    assert main(["evaluate", "runs/policy", "compare=start"]) == 0
    metrics = json.loads(Path("runs/policy/evaluation.json").read_text())["metrics"]
    before, after = (metrics[name]["greedy"]["exact"]["mean"] for name in ("before", "after"))
    assert before < 0.3 and after > 0.4
