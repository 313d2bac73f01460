"""FARE's rejection sampling: which judgements its rounds file keeps, by hand."""

from mmrl.commands.rounds.file import read_rounds
from mmrl.commands.rounds.filters import filter_rows
from mmrl.commands.rounds.schedule import list_steps


def judgements(key, verdicts):
    """Rows of a problem; the reasons name the sample."""
    return [
        {"key": key, "completion": f"{i}>y", "ended": "done", "reward": right, "scores": {"exact": right}}
        for i, right in enumerate(verdicts)
    ]


def test_one_right_judgement_of_each_problem_is_kept():
    """[ok, bad, ok, bad] keeps one of the two, [bad, bad, bad, bad] none, and four right ones count as one."""
    steps = list_steps(read_rounds(["fare"]))
    filters = [step.stage for step in steps if step.stage.kind == "filter"]
    rows = judgements("a", [1, 0, 1, 0]) + judgements("b", [0] * 4) + judgements("c", [1] * 4)
    assert len(filters) == 3
    for stage in filters:
        assert [(row["key"], row["completion"]) for row in filter_rows(stage, rows, 0)] == [("a", "0>y"), ("c", "0>y")]


def test_every_iteration_takes_the_next_slice_from_the_newest_weights():
    steps = list_steps(read_rounds(["fare"]))
    slices = [(step.stage.offset, step.stage.count) for step in steps if step.stage.kind == "sample"]
    assert slices == [(0, 1000), (1000, 1000), (2000, 1000), (3000, 1000)]
    assert all(step.stage.weights == "newest" for step in steps if step.stage.kind == "fit")
