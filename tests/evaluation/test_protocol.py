"""What is frozen, what its hash depends on, and what a comparison says when it may not be made."""

import io
import json
import os
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from mmrl.core.types import Episode, Prompt, Sampling
from mmrl.evaluation.held_out import HeldOut
from mmrl.evaluation.metrics.by_task import get_task, group_by_task
from mmrl.evaluation.metrics.success_rate import SuccessRate
from mmrl.evaluation.protocol import Protocol, describe_evaluation, digest_instructions
from mmrl.evaluation.report.checkpoint_metrics import compute_task_metrics
from mmrl.evaluation.report.result import EvaluationResult
from mmrl.evaluation.statistics.paired import compare_checkpoints
from mmrl.files.contract import differences, warn
from mmrl.rewards.base import Reward
from mmrl.rollouts.env.episodic import EpisodicRollout
from mmrl.rollouts.text.environment import EnvironmentRollout
from mmrl.rollouts.text.single_turn import SingleTurn
from mmrl.rollouts.text.tools import ToolUse
from sims.tabletop import Reach
from sims.task import SimTask
from tasks.arithmetic import Arithmetic
from tasks.mixture.task import Mixture
from tests.rollouts.env.test_episodic import Guess, play
from tests.tiny_recipes import Counting
from tests.tools.examples import Always, Echo

SIM = Reach(image_size=16, threads=1)
TASK = SimTask(SIM, count=64)


def held_out(**changes) -> HeldOut:
    given = {
        "sampling": {"mean": Sampling(decode="mean")},
        "evaluators": {"success": SuccessRate("success")},
        "count": 8,
    }
    return HeldOut(EpisodicRollout(), **{**given, **changes})


def protocol(task=TASK, **changes) -> Protocol:
    return Protocol(json.loads(json.dumps(describe_evaluation(task, held_out(**changes)))))


def test_the_hash_is_short_and_a_function_of_the_contest_alone():
    first = protocol()
    assert len(first.hash) == 12 and int(first.hash, 16) >= 0
    assert protocol().hash == first.hash
    assert replace(first, policy={"image": "flipped"}, environment={"torch": "0.1"}).hash == first.hash
    shuffled = dict(reversed(first.entries.items()))
    assert Protocol(shuffled).hash == first.hash
    more_threads = replace(SIM, threads=2)  # results do not depend on it
    assert protocol(replace(TASK, sim=more_threads)).hash == first.hash
    assert protocol(TASK.on("held_out")).hash == first.hash  # the evaluation chooses the split


def test_settings_of_a_verifier_belong_to_the_contest_and_those_of_the_class_do_not():
    plain, other = Arithmetic(), Arithmetic(extract={"tags": {"tag": "final"}})
    assert "settings" not in protocol(plain).entries["suite"]
    assert protocol(other).entries["suite"]["settings"] == {"extract": {"tags": {"tag": "final"}}}
    assert protocol(plain).hash != protocol(other).hash
    mixture = Mixture({"sums": other})
    assert protocol(mixture).entries["suite"]["settings"]["parts"]["sums"]["extract"] == {"tags": {"tag": "final"}}
    assert "settings" not in protocol().entries["suite"]  # a simulator has a contract


@pytest.mark.parametrize(
    ("other", "entry"),
    [
        (protocol(count=9), "problems.count"),
        (protocol(offset=8), "problems.digest"),
        (protocol(split="train"), "problems.split"),
        (protocol(replace(TASK, seed=1)), "problems.stream"),
        (protocol(num_samples=2), "num_samples"),
        (protocol(seed=1), "draws"),
        (protocol(sampling={"mean": Sampling(decode="mean", temperature=2.0)}), "decodes.mean.temperature"),
        (protocol(evaluators={"success": SuccessRate("success", 0.9)}), "evaluators.success.level"),
        (protocol(replace(TASK, sim=replace(SIM, max_decisions=5))), "suite.tasks.reach.max_decisions"),
        (protocol(replace(TASK, sim=replace(SIM, chunk=4))), "suite.chunk"),
        (protocol(replace(TASK, sim=replace(SIM, colours=("red", "blue")))), "suite.tasks.reach.scene"),
    ],
)
def test_every_part_of_the_contest_changes_the_hash_and_is_named(other, entry):
    first = protocol()
    assert other.hash != first.hash
    assert entry in [line.split(":")[0] for line in first.incompatible_entries(other)]


def test_how_problems_become_episodes_belongs_to_the_contest_and_throughput_does_not():
    def rollout(made):
        measured = held_out()
        measured.rollout = made
        return json.loads(json.dumps(describe_evaluation(TASK, measured)))

    assert "rollout" not in rollout(EpisodicRollout(max_envs=3)) and "rollout" not in rollout(SingleTurn())
    two = rollout(ToolUse({"echo": Echo()}, Always(), max_turns=2))
    assert two["rollout"]["max_turns"] == 2 and list(two["rollout"]["tools"]) == ["echo"]
    assert two != rollout(ToolUse({"echo": Echo()}, Always(), max_turns=8))
    assert two == rollout(ToolUse({"echo": Echo()}, Always(), max_turns=2, max_concurrent=1))
    plain = rollout(EnvironmentRollout())
    assert plain != rollout(EnvironmentRollout(extract="boxed")) and plain == rollout(EnvironmentRollout(threads=1))


def test_the_problems_are_those_that_are_played_not_only_their_number():
    """The digest is of the seeds and of all that a text prompt says."""
    assert protocol(offset=0).entries["problems"]["digest"] != protocol(offset=1).entries["problems"]["digest"]
    one, two = (describe_evaluation(Counting(image=p), held_out()) for p in (False, True))
    assert one["problems"]["digest"] != two["problems"]["digest"]


def test_a_written_protocol_is_read_back_and_an_edited_one_is_refused(tmp_path):
    first = replace(protocol(), policy={"bins": 256}, environment={"torch": "2"})
    first.write(tmp_path)
    assert Protocol.read(tmp_path) == first
    path = tmp_path / "protocol.json"
    path.write_text(path.read_text().replace('"count": 8', '"count": 9'))
    with pytest.raises(ValueError, match="it was edited"):
        Protocol.read(tmp_path)


def test_policy_and_place_are_said_apart():
    first = replace(protocol(), policy={"bins": 256}, environment={"torch": "2.9", "device": "cpu"})
    other = replace(first, policy={"bins": 128}, environment={"torch": "2.8", "device": "cpu"})
    assert first.incompatible_entries(other) == []
    assert first.other_differences(other) == [
        "policy.bins: 128 there, 256 here",
        'environment.torch: "2.8" there, "2.9" here',
    ]


def test_what_the_policy_was_told_is_frozen_too():
    task = TASK.on("held_out")
    episodes = play(task, Guess(), range(8), group_size=1)
    reported = digest_instructions({"mean": episodes})
    assert reported["different"] == len({e.info["instruction"] for e in episodes}) > 1
    assert digest_instructions({"mean": episodes, "argmax": list(reversed(episodes))}) == reported
    other = replace(task, sim=replace(SIM, templates=("touch the {colour} cube",)))
    assert digest_instructions({"mean": play(other, Guess(), range(8), group_size=1)})["digest"] != reported["digest"]
    assert digest_instructions({"greedy": [Episode(Prompt("t/0"), 0, 0)]})["different"] == 0


def test_differences_name_nested_entries_and_are_red_on_a_terminal_only():
    lines = differences({"a": {"b": 1, "c": [1, 2]}, "d": None}, {"a": {"b": 2, "c": (1, 2)}})
    assert lines == ["a.b: 1 in training, 2 here", "d: null in training, not stated here"]
    shown = io.StringIO()
    warn("other [simulator]:", lines, Console(file=shown, force_terminal=True, color_system="standard"))
    assert "\x1b[1;31mother [simulator]:" in shown.getvalue() and "\x1b[31m  a.b: 1" in shown.getvalue()
    plain = io.StringIO()
    warn("other [simulator]:", lines, Console(file=plain, width=20))
    assert plain.getvalue().splitlines() == ["other [simulator]:", *(f"  {line}" for line in lines)]


def episode(i: int, task: str, success: float, ended: str = "done", where: str = "prompt") -> Episode:
    info = {"task": task}
    prompt = Prompt(f"suite/held_out/{i}", info={"seed": i, **(info if where == "prompt" else {})})
    scores = {} if ended == "error" else {"success": success}
    return Episode(prompt, i, 0, ended=ended, scores=scores, info={} if where == "prompt" else info)


def test_tasks_are_told_by_the_prompt_or_by_the_simulator_or_by_the_key():
    assert get_task(episode(0, "push", 1)) == get_task(episode(0, "push", 1, where="info")) == "push"
    assert get_task(Episode(Prompt("tests/Walk-v0/held_out/3"), 0, 0)) == "tests/Walk-v0"
    assert list(group_by_task([episode(0, "push", 1), episode(1, "lift", 1)])) == ["lift", "push"]


def test_rates_and_pairs_of_each_task_with_errors_beside():
    before = [episode(i, "push" if i < 6 else "lift", 0) for i in range(10)]
    after = [episode(i, "push" if i < 6 else "lift", float(i > 1), "error" if i == 0 else "done") for i in range(10)]
    rates = {"success": SuccessRate("success")}
    actual = compute_task_metrics(held_out(), {"mean": after})["mean"]
    assert actual["push"]["success"]["n"] == 5 and actual["push"]["success"]["errors"] == 1
    assert actual["push"]["success"]["mean"] == 0.8 and actual["lift"]["success"]["mean"] == 1
    assert compute_task_metrics(held_out(), {"mean": after[:6]}) == {}
    lift, push, total = compare_checkpoints({"mean": before}, {"mean": after, "more": after}, rates)["success"]
    assert [part.comparison.label for part in (lift, push, total)] == ["mean, lift", "mean, push", "mean"]
    assert (lift.won, lift.lost, lift.pairs, lift.p_value) == (4, 0, 4, 2 / 2**4)
    assert (push.won, push.pairs, push.p_value, push.comparison.after.errors) == (4, 5, 2 / 2**4, 1)
    assert (total.won, total.pairs, total.p_value) == (8, 9, 2 / 2**8)


def test_a_written_result_pairs_as_the_one_that_was_played(tmp_path):
    task = TASK.on("held_out")
    episodes = [e.light() for e in play(task, Guess(), range(8), group_size=1)]
    for one in episodes:
        one.scores = {"success": one.info["scores"]["success"], "return": 0.0}
    episodes[3].ended, episodes[3].scores = "error", {}
    EvaluationResult(protocol(), {"last": {"mean": episodes}}).write(tmp_path)
    (again,) = EvaluationResult.read(tmp_path).episodes["last"].values()
    rates = {"success": SuccessRate("success")}
    (same,) = compare_checkpoints({"mean": episodes}, {"mean": again}, rates)["success"]
    assert (same.pairs, same.won, same.lost, same.comparison.after.errors) == (7, 0, 0, 1)
    for one, other in zip(episodes, again):
        kept = ("instruction", "decisions", "tokens")
        assert [one.info[name] for name in kept] == [other.info[name] for name in kept]
        assert (one.prompt.key, one.prompt.info["seed"]) == (other.prompt.key, other.prompt.info["seed"])
    with pytest.raises(ValueError, match="holds no measurement"):
        EvaluationResult.read(tmp_path / "nowhere")
    (tmp_path / "episodes.jsonl").unlink()
    os.mkfifo(tmp_path / "episodes.jsonl")
    with pytest.raises(ValueError, match="it is a pipe, not a file"):
        EvaluationResult.read(tmp_path)


def test_some_states_play_as_they_do_among_all():
    """Videos of a few slots show the evaluated episodes."""
    from tests.rollouts.env.test_episodic import context

    evaluation = held_out(sampling={"sample": Sampling()})
    everyone = evaluation.play(TASK.on("held_out"), _Nothing(), context(TASK, Guess()), Sampling())
    evaluation.only = [6, 1]
    some = evaluation.play(TASK.on("held_out"), _Nothing(), context(TASK, Guess()), Sampling())
    assert [e.group for e in some] == [6, 1]
    for one in some:
        twin = everyone[one.group]
        assert (one.prompt, one.info) == (twin.prompt, twin.info)
        for a, b in zip(one.turns, twin.turns):
            assert np.array_equal(a.completion.output, b.completion.output)


class _Nothing(Reward):
    def __call__(self, group):
        return [0.0] * len(group)
