"""Iterations that leave nothing to learn from: what stops, what is said, and what does not move."""

import csv

import pytest
import torch

from mmrl.__main__ import main
from mmrl.core.types import Episode, Prompt
from mmrl.data.checks.empty_iterations import EmptyIterations, NothingToLearn, find_extract_key
from mmrl.methods.guidance.trapo import SelectByTrajectory
from mmrl.methods.problems.model_task_alignment import WrongMajority
from mmrl.methods.vision.ttrv import Agreement
from mmrl.rollouts.text.environment import EnvironmentRollout
from mmrl.runs.checkpoint_file import read_checkpoint
from mmrl.transforms.dynamic_sampling import DynamicSampling
from mmrl.transforms.filter import DropZeroVariance
from tasks.arithmetic.task import Arithmetic
from tasks.mixture.task import Mixture
from tasks.preferences.task import Preferences
from tests.text_environments import Count
from tests.tiny_recipes import Alternating, Counting, words


def groups(*rewards: list[float]) -> list[Episode]:
    return [
        Episode(Prompt(f"sums/train/{g}"), g, a, reward=r, scores={"exact": r}, info={"answer": "7" if r else "none"})
        for g, episodes in enumerate(rewards)
        for a, r in enumerate(episodes)
    ]


def test_a_stuck_run_names_groups_scores_the_commonest_answers_and_remedies():
    empty = EmptyIterations(3)
    assert not empty.observe(groups([0.0, 1.0]), 2, 0)
    wrong = groups([0.0, 0.0, 0.0], [0.0, 0.0, 0.0])
    assert not empty.observe(wrong, 0, 1) and not empty.observe(wrong, 0, 2)
    with pytest.raises(NothingToLearn) as stopped:
        empty.observe(wrong, 0, 3)
    for words_of_it in (
        "3 iterations in a row, up to iteration 3",
        "2 groups with 6 episodes",
        "in 2 groups all episodes earned the same",
        "rewards 0 (6 times)",
        "mean score exact 0",
        "the commonest answers are 'none' (6 of 6)",
        "data.group_size",
        "data.max_empty_iterations",
    ):
        assert words_of_it in str(stopped.value)


def test_the_first_empty_iteration_says_why_no_group_differs(caplog):
    """Of four completions three are truncated, and in three no answer was found."""
    episodes = groups([0.0, 0.0], [0.0, 0.0])
    for episode, found, ended in zip(episodes, (None, None, None, "12"), ("length", "length", "length", "done")):
        episode.info["extracted"], episode.ended = found, ended
    assert not EmptyIterations(5).observe(episodes, 0, 7)
    (message,) = caplog.messages
    for part in (
        "iteration 7 left no episode to learn from",
        "3 of 4 completions were cut off at sampling.max_tokens",
        "in 3 of 4 completions task.extract found no answer",
        "the commonest answers are '12' (1 of 1)",
        "What to try: longer completions (sampling.max_tokens); another task.extract, task.state_form=true, or a",
        "sampling.temperature",
        "data.group_size",
    ):
        assert part in message


def test_sentences_that_are_compared_as_a_whole_point_to_extractors(caplog):
    episodes = groups([0.0, 0.0])
    for episode in episodes:
        episode.info["answer"] = "The sum is 12."
    assert not EmptyIterations(5).observe(episodes, 0, 0)
    assert "What to try: task.extract=answer (or last_number, boxed, ...)" in caplog.text


def test_the_key_is_that_of_the_task_or_of_the_rollout(caplog):
    episodes = groups([0.0, 0.0])
    for episode in episodes:
        episode.info |= {"answer": "I go north.", "turns": 4, "counts": {"environment/unparsable": 3}}
    key = find_extract_key(Count(), EnvironmentRollout())
    assert key == "rollout.extract" and not EmptyIterations(5, key).observe(episodes, 0, 0)
    assert "in 6 of 8 turns rollout.extract found no action" in caplog.text
    assert "What to try: another rollout.extract; read what" in caplog.text and "task." not in caplog.text


@pytest.mark.parametrize(
    ("task", "key"),
    [
        (Arithmetic(), "task.extract"),
        (Mixture({"sums": Arithmetic()}), "task.parts.NAME.extract"),
        (Preferences(), None),
        (Counting(), None),
    ],
)
def test_a_key_that_the_task_does_not_have_is_not_proposed(task, key, caplog):
    assert find_extract_key(task, None) == key
    for info in ({"answer": "The sum is 12."}, {"extracted": None}):
        episodes = groups([0.0, 0.0])
        for episode in episodes:
            episode.info |= info
        EmptyIterations(5, key).observe(episodes, 0, 0)
    assert ("task.state_form" in caplog.text) == ("task.system" in caplog.text) == (key == "task.extract")
    assert ("task.extract" in caplog.text) == (key == "task.extract")
    assert f"{key} found no answer" in caplog.text or "in 2 of 2 completions no answer was found" in caplog.text


@pytest.mark.parametrize(
    ("build", "key"),
    [
        (lambda: Agreement({}, extract="boxxed"), "data.reward.extract"),
        (lambda: WrongMajority({}, extract="boxxed"), "data.reward.extract"),
        (lambda: SelectByTrajectory(extract="boxxed"), "select_by_trajectory.extract"),
        (lambda: EnvironmentRollout(extract="boxxed"), "rollout.extract"),
    ],
)
def test_an_extractor_that_does_not_exist_is_named_by_the_key_of_its_part(build, key):
    with pytest.raises(ValueError, match=rf"^{key}='boxxed' is no extractor"):
        build()


def test_rows_in_between_begin_the_count_again_and_a_resume_does_not():
    empty = EmptyIterations(2)
    wrong = groups([0.0, 0.0])
    assert not empty.observe(wrong, 0, 0)
    assert not empty.observe(groups([0.0, 1.0]), 2, 1)
    assert not empty.observe(wrong, 0, 2)
    resumed = EmptyIterations(2)
    resumed.load_state_dict(empty.state_dict())
    with pytest.raises(NothingToLearn):
        resumed.observe(wrong, 0, 3)


def test_a_run_that_solves_every_problem_is_finished_and_one_that_always_earned_the_same_is_stuck():
    solved = groups([1.0, 1.0])
    finished = EmptyIterations(2)
    assert not finished.observe(groups([0.0, 1.0]), 2, 0)
    assert not finished.observe(solved, 0, 1)
    assert finished.observe(solved, 0, 2)
    constant = EmptyIterations(1)
    with pytest.raises(NothingToLearn, match=r"rewards 1 \(2 times\)"):
        constant.observe(solved, 0, 0)


def run_words(folder, *more: str) -> list[str]:
    return ["fit", *words(folder, "data.evaluation=null", *more)]


def test_a_run_without_a_difference_between_episodes_ends_with_an_error_and_no_policy(tmp_path, capfd):
    none = "data.transforms.none={_target_: tests.tiny_recipes.DropFrom, iteration: 0}"
    more = (none, "trainer.max_epochs=9", "data.max_empty_iterations=2", "data.num_minibatches=1")
    assert main(run_words(tmp_path, *more)) == 1
    reported = capfd.readouterr().err
    assert "2 iterations in a row, up to iteration 1, left no episode" in reported and "Traceback" not in reported
    assert not (tmp_path / "policy").exists()


def test_iterations_without_rows_leave_weights_moments_and_schedule_alone(tmp_path):
    none = "data.transforms.none={_target_: tests.tiny_recipes.DropFrom, iteration: 2}"
    schedule = "model.scheduler.total_iters=20"
    assert main(run_words(tmp_path / "short", "trainer.max_epochs=2", schedule)) == 0
    assert main(run_words(tmp_path / "long", none, "trainer.max_epochs=4", schedule)) == 0
    short, long = (
        torch.load(tmp_path / name / "record" / "rank0.pt", weights_only=False) for name in ("short", "long")
    )
    for name, value in short["weights"].items():
        assert torch.equal(value, long["weights"][name]), name
    one, other = short["optimizer"][0], long["optimizer"][0]
    assert one["param_groups"] == other["param_groups"]
    for key, state in one["state"].items():
        assert all(torch.equal(value, other["state"][key][name]) for name, value in state.items())


@pytest.mark.parametrize("transform", [DropZeroVariance(), DynamicSampling()])
def test_transforms_that_compare_episodes_need_two_of_them(transform, tmp_path, capfd):
    name = f"{type(transform).__module__}.{type(transform).__name__}"
    more = (f"data.transforms.drop_zero_variance._target_={name}", "data.group_size=1")
    assert main(run_words(tmp_path, *more)) in (1, 2)
    reported = capfd.readouterr().err
    assert "data.transforms.drop_zero_variance" in reported and "data.group_size=1" in reported


class SolvedAfter(Alternating):
    """Pays the first groups of training 0 and 1 in turn, and all later ones 1."""

    def __init__(self, groups: int, weights: dict):
        self.groups = groups

    def __call__(self, group):
        self.groups -= "/train/" in group[0].prompt.key  # problems of an evaluation do not count
        return super().__call__(group) if self.groups >= 0 else [1.0] * len(group)


def test_a_run_that_has_solved_every_problem_is_measured_and_saved_as_after_its_last_iteration(tmp_path):
    words_of_it = (
        "data.num_prompts=2",
        "data.reward={_target_: tests.data.checks.test_empty_iterations.SolvedAfter, groups: 2}",
        "data.transforms.drop={_target_: tests.tiny_recipes.DropFrom, iteration: 1}",
        "data.max_empty_iterations=2",
        "trainer.max_epochs=9",
        "trainer.check_val_every_n_epoch=9",
        "trainer.callbacks.last.every_n_epochs=9",
    )
    assert main(["fit", *(word for word in words(tmp_path, *words_of_it) if word != "trainer.logger=false")]) == 0
    with (tmp_path / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    measured = [float(row["iterations"]) for row in rows if row["val/greedy/exact/mean"]]
    assert measured == [0, 3] and float(rows[-1]["rollout/reward"]) == 1
    last = read_checkpoint(str(tmp_path / "checkpoints" / "last.ckpt"), False)
    assert last["loops"]["fit_loop"]["epoch_progress"]["current"]["processed"] == 3
