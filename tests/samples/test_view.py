"""Rows are classified by the score of success, filtered, and sorted within and between groups."""

from mmrl.samples.view import classify_row, count_choices, mean_advantage, message_text, select_failures, sort_groups


def row(reward, **more):
    return {"sample_index": 0, "reward": reward, "scores": {}, "ended": "done", **more}


def test_success_is_the_score_that_is_named_else_a_positive_reward():
    assert classify_row(row(0.1, scores={"exact": 0.0}), "exact") == "failure"
    assert classify_row(row(-1, scores={"exact": 1.0}), "exact") == "success"
    assert classify_row(row(0.1), None) == "success" and classify_row(row(0), "exact") == "failure"
    assert classify_row(row(1, ended="error"), None) == "error"


def test_groups_without_failures_are_left_out():
    groups = [{"group": 0, "episodes": [row(1), row(0)]}, {"group": 1, "episodes": [row(1)]}]
    assert [(group["group"], len(group["episodes"])) for group in select_failures(groups)] == [(0, 1)]


def test_sorting_is_within_and_between_groups():
    groups = [{"group": 0, "episodes": [row(3), row(1)]}, {"group": 1, "episodes": [row(1), row(2)]}]
    up, down = sort_groups(groups, "reward"), sort_groups(groups, "-reward")
    assert [[each["reward"] for each in group["episodes"]] for group in up] == [[1, 2], [1, 3]]
    assert [[each["reward"] for each in group["episodes"]] for group in down] == [[3, 1], [2, 1]]


def test_only_chosen_tokens_count():
    turn = {"tokens": list("abc"), "chosen": [1, 0, 1], "advantages": [1.0, 0.0, 2.0], "omitted": {"tokens": 5}}
    assert mean_advantage(row(0, turns=[turn])) == 1.5 and count_choices(row(0, turns=[turn])) == 7
    assert mean_advantage(row(0)) is None and count_choices(row(0, decisions=4)) == 4


def test_parts_of_a_message_are_joined():
    parts = [{"type": "image"}, {"type": "text", "text": "Digit?"}]
    assert message_text({"role": "user", "content": parts}) == "[image]Digit?"
    assert message_text({"role": "user", "content": "x"}) == "x" and message_text({"role": "assistant"}) == ""
