"""FARE's rejection sampling: which judgements its rounds file keeps, by hand."""

from pathlib import Path

from mmrl.commands.rounds.file import read_rounds
from mmrl.commands.rounds.filters import filter_rows
from mmrl.commands.rounds.schedule import list_steps
from mmrl.commands.rounds.words import build_words


def judgements(key, verdicts):
    """Rows of a problem; the reasons name the sample."""
    return [
        {"key": key, "completion": f"{i}>y", "ended": "done", "reward": right, "scores": {"exact": right}}
        for i, right in enumerate(verdicts)
    ]


def test_one_right_judgement_of_each_problem_is_kept():
    """[ok, bad, ok, bad] keeps one of the two, four bad ones none; half of the problems with four right ones stay."""
    steps = list_steps(read_rounds(["fare"]))
    filters = [step.stage for step in steps if step.stage.kind == "filter"]
    rows = judgements("a", [1, 0, 1, 0]) + judgements("b", [0] * 4)
    rows += [row for number in range(200) for row in judgements(f"c{number}", [1] * 4)]
    assert len(filters) == 3
    for stage in filters:
        first, *solved = [(row["key"], row["completion"]) for row in filter_rows(stage, rows, 0)]
        assert first == ("a", "0>y") and {completion for _, completion in solved} == {"0>y"}
        assert 75 < len({key for key, _ in solved}) == len(solved) < 125


def test_the_verifier_is_the_newest_evaluator_and_the_solver_begins_from_the_weak_one():
    steps = {step.name: step for step in list_steps(read_rounds(["fare"]))}
    other = {step.name: step for step in list_steps(read_rounds(["fare", "stages.verifier.for.score=[plain]"]))}
    words = build_words(read_rounds(["fare"]), steps["1/rl-1"], Path("run"))
    assert any("path: 'run/1/fit-3/policy'" in word for word in words)
    assert steps["1/rl-1"].weights == "0/generator" and steps["1/fit-1"].weights == "0/sft"
    differences = [
        (one, two) for one, two in zip(steps["1/rl-1"].stage.overrides, other["1/rl-1"].stage.overrides) if one != two
    ]
    weights = "data.reward.weights={{exact: null, {}: 1.0}}"
    assert differences == [(weights.format("accepted"), weights.format("plain"))]


def test_every_iteration_takes_the_next_slice_from_the_newest_weights():
    steps = list_steps(read_rounds(["fare"]))
    slices = [(step.stage.offset, step.stage.count) for step in steps if step.stage.kind == "sample"]
    assert slices == [(0, 600), (0, 4000), (4000, 1000), (5000, 1000), (6000, 1000)]
    assert [step.weights for step in steps if step.stage_name == "fit"] == ["0/sft", "1/fit-1", "1/fit-2"]
