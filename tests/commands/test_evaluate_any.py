"""`mmrl evaluate task=... policy.path=...` measures any checkpoint, under the protocol of a run's evaluation."""

import json

import pytest

from mmrl.__main__ import main
from mmrl.commands.evaluate import evaluate
from mmrl.commands.evaluation.folder import names_no_run
from tests.test_recipes import words_of


def test_a_policy_folder_gives_the_numbers_of_its_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["fit", *words_of("grpo", "run"), "data.max_empty_iterations=100"]) == 0
    of_run = evaluate(["run", "count=6"])
    tokens = of_run["decodes"]["greedy"]["max_tokens"]
    words = ["task=arithmetic", "policy.path=run/policy", f"sampling.max_tokens={tokens}"]
    alone = evaluate([*words, "count=6", "run_dir=alone"])
    assert alone["protocol"] == of_run["protocol"]
    assert alone["metrics"]["policy"] == of_run["metrics"]["last"]
    assert alone["checkpoints"]["policy"]["path"] == str(tmp_path / "run" / "policy")
    rows = [json.loads(line) for line in (tmp_path / "alone" / "episodes.jsonl").read_text().splitlines()]
    before = [json.loads(line) for line in (tmp_path / "run" / "episodes.jsonl").read_text().splitlines()]
    assert [row["sample"]["output"] for row in rows] == [row["sample"]["output"] for row in before]
    assert all(row["sample"]["messages"] and row["sample"]["answer"] is not None for row in rows)
    assert (tmp_path / "alone" / "report.html").stat().st_size < 3_000_000
    assert main(["evaluate", "alone", "count=3"]) == 0  # the folder can be evaluated again


@pytest.mark.parametrize(
    "arguments, expected",
    [
        (["task=arithmetic", "policy.path=x"], True),
        (["policy=tiny_text", "count=3"], True),
        (["runs/mine", "count=3"], False),
        (["count=3"], False),
        (["policy.path=x"], False),
    ],
)
def test_only_groups_without_a_folder_need_no_run(arguments, expected):
    assert names_no_run(arguments) == expected


@pytest.mark.parametrize("option, rate", [("oracle", 1.0), ("random", 1 / 64)])
def test_the_task_answers_in_place_of_a_policy(option, rate, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = evaluate(["task=jigsaw", f"policy={option}", "count=64", "run_dir=here"])
    assert result["metrics"]["policy"]["greedy"]["exact"]["mean"] == rate  # 1 of 24 orders is right
    rows = [json.loads(line) for line in (tmp_path / "here" / "episodes.jsonl").read_text().splitlines()]
    assert len({row["sample"]["output"] for row in rows}) > 10
