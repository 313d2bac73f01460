import json
import time

import pytest
import torch

from mmrl.core.types import Completion, Episode, Prompt, Turn
from mmrl.rewards.function import FunctionReward
from mmrl.rewards.scoring import score
from tasks.dataset import DatasetTask
from tests.tiny_recipes import Counting

HERE = "tests.rewards.functions"


def episode(output: str, answer: object, group: int = 0, **columns: object) -> Episode:
    mask = torch.ones(len(output), dtype=torch.bool)
    prompt = Prompt(f"mine/train/{group}", ({"role": "user", "content": "Spell it."},), answer=answer, info=columns)
    turn = Turn(Completion({}, torch.zeros(0), torch.zeros(0), mask, output))
    return Episode(prompt, group, 0, [turn], ended="length" if len(output) > 3 else "done")


GROUPS = [episode("four", 4), episode("x", 4), episode("ab", 1, group=1)]


def make(*names: str, **options: object) -> FunctionReward:
    return FunctionReward([f"{HERE}:{name}" for name in names], **options)


@pytest.mark.parametrize("in_process", [False, True], ids=["worker", "in process"])
def test_the_reward_is_the_weighted_sum_of_named_scores(in_process):
    reward = make("length_error", "rank", "parts", "async_length", weights={"rank": 0.5, "tokens": 0, "exact": 2},
                  in_process=in_process)  # fmt: skip
    scores = reward.scores(GROUPS)
    assert scores == [
        {"length_error": 0, "rank": 0, "tokens": 4, "truncated": 1, "async_length": 4},
        {"length_error": -3, "rank": 1, "tokens": 1, "truncated": 0, "async_length": 1},
        {"length_error": -1, "rank": 0, "tokens": 2, "truncated": 0, "async_length": 2},
    ]
    group = [episode("four", 4), episode("x", 4)]
    for one, found in zip(group, scores):
        one.scores = {"exact": 0.25, **found}
    assert reward(group) == [0 + 0 + 1 + 4 + 0.5, -3 + 0.5 + 0 + 1 + 0.5]


def test_scores_of_functions_are_scores_of_the_episode_beside_those_of_the_task():
    episodes = [episode("1", "1"), episode("12", "1")]
    score(episodes, Counting(), make("length_error_of_text"))
    assert [one.reward for one in episodes] == [-0.0, -1.0]
    assert all({"digits", "length_error_of_text"} <= set(one.scores) for one in episodes)


def test_a_name_that_the_task_gives_too_is_refused():
    with pytest.raises(ValueError, match=r"data\.reward gives a score 'digits', and so does task"):
        score([episode("1", "1")], Counting(), make("digits"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("divide", r"divide raised ZeroDivisionError: division by zero \(functions.py, line \d+: return 1 / .*"
                   "'four' and the answer 4 of 'mine/train/0'"),
        ("hang", r"hang took longer than 1 s and was killed \(reward.timeout_s changes .*'four'"),
        ("hang_in_c", "hang_in_c took longer than 1 s and was killed"),
        ("hang_async", "hang_async took longer than 1 s .*3 completions"),
        ("die", "die ended its process: .*exit status 9; it was given the completion 'four'"),
        ("parse_json", r"parse_json raised JSONDecodeError: .*functions.py, line \d+: return json.loads.*; where a "
                       "judge fails now and then, reward.max_failures=8"),
        ("nan", "nan returned nan, which is not a finite number; it was given the completion 'x'"),
    ],
)  # fmt: skip
def test_what_gives_no_score_ends_the_run_by_function_and_completion(name, message):
    before = time.monotonic()
    with pytest.raises(RuntimeError, match=f"reward function {HERE}:{message}"):
        make(name, timeout_s=1.0).scores(GROUPS)
    assert time.monotonic() - before < 30


@pytest.mark.parametrize("name", ["sometimes", "sometimes_async", "sometimes_hangs", "sometimes_waits"])
def test_calls_that_may_fail_leave_their_episodes_out(name):
    group = [episode("fine", 1), episode("dead judge", 2), episode("good", 3)]
    reward = make(name, timeout_s=1.0, max_failures=1)
    score(group, Counting(), reward)
    assert [each.ended == "error" for each in group] == [False, True, False]
    assert [each.reward for each in group] == [4.0, 0.0, 4.0] and group[1].scores == {}
    assert "sometimes" in group[1].info["error"]
    with pytest.raises(RuntimeError, match=r"2 calls failed, reward.max_failures=1"):
        score([episode("dead", 1), episode("fine", 2), episode("dead", 3)], Counting(), reward)


def test_many_failures_of_an_iteration_are_few_lines(caplog):
    reward = make("sometimes", max_failures=40)
    reward.scores([episode("dead", number) for number in range(30)])
    assert len(caplog.records) == 4 and "27 further calls failed (30 of at most 40)" in caplog.text


def test_the_number_of_failures_is_not_negative():
    with pytest.raises(ValueError, match=r"reward\.max_failures must be at least 0"):
        make("divide", max_failures=-1)


def test_a_column_is_an_argument_and_a_missing_one_is_refused():
    assert make("needs_level").scores([episode("x", 1, level=7)]) == [{"needs_level": 7.0}]
    with pytest.raises(
        ValueError,
        match=r"needs_level has a parameter 'level', and 'mine/train/0' has no such column; there are prompt,",
    ):
        make("needs_level").scores(GROUPS)


def test_a_dict_has_the_same_names_every_time():
    with pytest.raises(ValueError, match=r"varies returned the scores \['x'\] after \['four'\]"):
        make("varies").scores(GROUPS)


def test_two_scores_of_one_name_are_refused():
    with pytest.raises(ValueError, match="two functions are called 'rank'"):
        make("rank", "rank")


def test_a_weight_of_a_score_that_nobody_gives_is_refused():
    reward = make("rank", weights={"exact": 1.0})
    group = GROUPS[:2]
    for one, found in zip(group, reward.scores(group)):
        one.scores = found
    with pytest.raises(KeyError, match="names 'exact', but 'mine/train/0' was scored with"):
        reward(group)


@pytest.mark.parametrize("in_process", [False, True], ids=["worker", "in process"])
@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nope.reward", "No module named 'nope'"),
        ("math.nope", "has no 'nope'"),
        ("math.pi", "pi is float, not a function"),
    ],
)
def test_a_path_without_a_function_is_refused_before_a_run(path, message, in_process):
    with pytest.raises(ValueError, match=message):
        FunctionReward([path], in_process=in_process)


def test_every_row_has_the_columns_of_a_function_before_the_first_step(tmp_path):
    rows = [{"question": f"{i}?", "answer": "a", "level": i} for i in range(40)]
    del rows[30]["level"]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    reward = make("needs_level")
    for split in ("train", "held_out"):
        task = DatasetTask(str(path), split=split, held_out_fraction=0.5, seed=0)
        places = {prompt.place for prompt in task.prompts_to_check()}
        if not any(place.endswith(":31") for place in places):
            reward.check_task(task)
            continue
        with pytest.raises(ValueError, match=r"needs_level has a parameter 'level', .*to the row .*a\.jsonl:31"):
            reward.check_task(task)
    make("rank").check_task(DatasetTask(str(path)))
