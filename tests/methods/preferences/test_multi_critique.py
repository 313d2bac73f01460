"""MultiCritique: merged critiques, preferences by revisions and their pairs by hand, and its rounds at a tiny size."""

import json
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest

from mmrl.commands.rounds.file import read_rounds
from mmrl.commands.rounds.filters import filter_rows
from mmrl.commands.rounds.receipts import read_receipt
from mmrl.commands.rounds.rows import build_row
from mmrl.commands.rounds.schedule import list_steps
from mmrl.core.errors import ConfigError
from mmrl.methods.preferences.multi_critique import MetaCritique, RevisionGradeReward, merge_units
from mmrl.rewards.critiques import CritiqueForm, Unit
from mmrl.rewards.judges.base import NoAnswer
from mmrl.rewards.judges.scripted import ScriptedJudge
from mmrl.rewards.scoring import score
from tasks.arithmetic import Arithmetic
from tasks.worksheets import Worksheets
from tasks.worksheets.critiques import WorksheetCritique
from tasks.worksheets.task import Worksheet
from tests.commands.rounds.tiny import run_rounds
from tests.runs.processes import start
from tests.tasks.replies import reply

TASK = Arithmetic()
GRADES = {"good": (8, 6, 7), "poor": (5, 6, 4), "fair": (7, 7, 7), "near": (6, 7, 7)}
"""Grades of the revisions that three revisers write under a critique: means 7, 5, 7 and 6.67."""


def revise_first(text: str) -> str:
    return str(GRADES[text][0])


def revise_second(text: str) -> str:
    return str(GRADES[text][1])


def revise_third(text: str) -> str:
    return str(GRADES[text][2])


def follow(text: str) -> str:
    """A reviser of worksheets that follows every suggestion: 347.75_./34..752x; becomes 347.752.

    Where it cannot read the critique the answer stays as it is.
    """
    judged, flaws = ([each[i : i + 4] for i in range(0, len(each), 4)] for each in text.rstrip(";").split("/"))
    if len(flaws) != len(judged):
        return "".join(judged)
    rows = zip(judged, flaws)
    return "".join(line[:2] + (flaw[2] if flaw[3] == "x" else line[2]) + "." for line, flaw in rows)


@dataclass(frozen=True)
class Graded(CritiqueForm):
    """Critiques whose revisions are their grades."""

    def read(self, critique, prompt):
        return []

    def write(self, units, prompt):
        return ""

    def is_right(self, unit, prompt):
        return True

    def write_revision(self, prompt, critique):
        return critique

    def grade(self, revision, prompt):
        return float(revision)


def judges(*names):
    return {name: ScriptedJudge(f"tests.methods.preferences.test_multi_critique:{name}") for name in names}


def scored(*critiques, reward=None):
    """Scored critiques of one answer."""
    episodes = [replace(reply(TASK[0], each), sample_index=i) for i, each in enumerate(critiques)]
    reward = reward or RevisionGradeReward(judges("revise_first", "revise_second", "revise_third"), Graded())
    score(episodes, TASK, reward)
    return episodes


def pairs_of(episodes):
    """The pairs that the filter of the rounds file makes of critiques."""
    (stage,) = [step.stage for step in list_steps(read_rounds(["multi_critique"])) if step.name == "1/pairs"]
    return filter_rows(stage, [build_row(e, str(e.output)) for e in episodes], 0)


def test_the_correct_units_of_all_critics_are_merged():
    """Of the first line two suggestions, 3, which is false, and 4; of the third line a flaw that it does not have."""
    right = {Unit("0", "w", "4"), Unit("1", "m", "2")}
    critiques = [
        [Unit("1", "m", "2"), Unit("0", "w", "3")],
        [Unit("0", "w", "4")],
        [Unit("1", "m", "2"), Unit("2", "w", "9")],
    ]
    assert merge_units(critiques, right.__contains__) == [Unit("0", "w", "4"), Unit("1", "m", "2")]
    assert merge_units([], right.__contains__) == [] == merge_units([[Unit("2", "w", "9")]], right.__contains__)


def test_the_first_right_unit_of_a_quote_counts():
    first, second = Unit("0", "w", "4"), Unit("0", "w", "5")
    assert merge_units([[first], [second]], lambda unit: True) == [first]


def test_the_share_of_right_revisions_by_hand():
    """Grades 10, 6 and 8: the mean 8, and one of three is right."""
    reward = RevisionGradeReward(judges("revise_first"), Graded())
    assert reward._combine([10.0, 6.0, 8.0]) == {"revision": 8.0, "fixed": pytest.approx(1 / 3)}
    lost = NoAnswer("late")
    assert reward._combine([10.0, lost]) == lost


@pytest.mark.parametrize(("of_run", "foreign"), [((False, False), True), ((True, False), False), ((True,), False)])
def test_a_reward_is_of_the_run_if_one_reviser_is(of_run, foreign):
    revisers = {str(number): SimpleNamespace(of_run=each) for number, each in enumerate(of_run)}
    assert RevisionGradeReward(revisers, Graded()).foreign is foreign


def test_pairs_of_the_rounds_are_those_with_a_margin():
    """(8 + 6 + 7) / 3 - (5 + 6 + 4) / 3 = 7 - 5 = 2."""
    episodes = scored("poor", "good")
    assert [e.reward for e in episodes] == [5, 7] == [e.scores["revision"] for e in episodes]
    (pair,) = pairs_of(episodes)
    assert (pair["chosen"], pair["rejected"]) == ("good", "poor")
    assert pair["chosen_score"] - pair["rejected_score"] == 2.0
    assert pairs_of(scored("good", "fair")) == []  # equal means
    assert pairs_of(scored("good", "near")) == []  # a margin of 1/3, below the file's 1


def test_a_right_critique_leads_to_a_right_revision():
    """34 is 7, 75 is 2 and open, 26 is 8 and wrong: the second critique names one of two flaws, the third misleads."""
    task = Worksheets(questions=("criticise",), lines=3)
    prompt = task.write_prompt(Worksheet(("34", "75", "26"), "728", "7_3", (None,) * 3), "worksheets/train/0")
    episodes = [reply(prompt, text) for text in ("347.752x268x", "347.752x263.", "341x752x268x", "nothing")]
    reward = RevisionGradeReward(judges("follow"), WorksheetCritique(), {"fixed": 1.0})
    score(episodes, task, reward)
    assert [e.reward for e in episodes] == [1, 0, 0, 0]
    assert [e.scores["revision"] for e in episodes] == pytest.approx([10, 20 / 3, 20 / 3, 10 / 3])


def test_without_a_revision_there_is_no_score():
    """The revisers fail on a critique that they do not know; with more than half of them the run ends."""
    known, unknown = scored("good", "unknown")
    assert (known.ended, unknown.ended) == ("done", "error") and "KeyError" in unknown.info["error"]
    with pytest.raises(RuntimeError, match="revision of every reviser"):
        scored("unknown")


def write_critiques(path, texts):
    """A file of a critic with critiques of the first worksheets."""
    task = Worksheets(questions=("criticise",), lines=2)
    rows = [{"key": task[i].key, "completion": text} for i, text in enumerate(texts)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_the_meta_critique_joins_the_files_of_critics(tmp_path):
    task = Worksheets(questions=("criticise",), lines=2, wrong=1.0, missing=0.0)
    prompt, form = task[0], WorksheetCritique()
    (first, second), right, results = (prompt.info[name] for name in ("sums", "right", "results"))
    one = write_critiques(tmp_path / "one.jsonl", [f"{first}{right[0]}x{second}{results[1]}."])
    # the other critic is wrong about the first line, and right about the second one
    wrong = str((int(right[0]) + 1) % 10)
    two = write_critiques(tmp_path / "two.jsonl", [f"{first}{wrong}x{second}{right[1]}x"])
    assert MetaCritique([two, one], form).answer(prompt, None, None) == prompt.answer
    unreadable = write_critiques(tmp_path / "three.jsonl", ["nothing"])
    assert MetaCritique([unreadable], form).answer(prompt, None, None) == f"{first}{results[0]}.{second}{results[1]}."
    with pytest.raises(ConfigError, match=r"two\.jsonl has no critique for 'worksheets/train/1'"):
        MetaCritique([one, two][::-1], form).answer(task[1], None, None)
    with pytest.raises(ConfigError, match=r"absent\.jsonl: no such file"):
        MetaCritique([str(tmp_path / "absent.jsonl")], form).answer(prompt, None, None)


def test_wrong_arguments_are_refused():
    with pytest.raises(ConfigError, match=r"rollout\.critics"):
        MetaCritique([], WorksheetCritique())
    with pytest.raises(ConfigError, match=r"reward\.revisers"):
        RevisionGradeReward({}, WorksheetCritique())


def test_the_reviser_of_the_metric_trains_nothing():
    steps = {step.name: step for step in list_steps(read_rounds(["multi_critique"]))}
    assert steps["1/revise"].folders == ("0/reviser_a", "0/reviser_b")
    assert steps["0/begin"].folders == ("0/reviser",) == steps["1/measure"].folders
    assert steps["0/merged"].folders == ("0/wrong", "0/missing") and steps["0/sft"].reads == ("0/merged",)
    assert steps["1/ppo"].weights == "0/sft" and steps["1/ppo"].folders == ("1/reward_model",)
    # the critiques that are compared are of other answers than those that the critic was fine-tuned on
    assert steps["0/merged"].stage.count <= steps["1/grow"].stage.offset


@pytest.mark.slow
def test_the_rounds_run_at_a_tiny_size(tmp_path):
    """From random weights; random critiques and a reviser that follows them stand in for what these cannot do."""
    words = ["multi_critique", *(f"start.{name}.count=4" for name in ("wrong", "missing", "merged", "begin"))]
    words += ["stages.grow.count=4", "stages.grow.offset=4", "stages.measure.count=4", "start.sft.passes=1"]
    words += ["data.num_prompts=8", "data.num_minibatches=1", "trainer.max_epochs=1", "stages.reward_model.passes=1"]
    words += ['stages.grow.overrides=["evaluation.rollout={_target_: mmrl.rollouts.text.scripted.Guess}"]']
    steps = {step.stage_name: step for step in list_steps(read_rounds(words[:1]))}
    revise = [
        "+data.reward.revisers={follow: {_target_: mmrl.rewards.judges.scripted.ScriptedJudge, "
        "function: 'tests.methods.preferences.test_multi_critique:follow'}}"
        if "revisers" in word
        else word
        for word in steps["revise"].stage.overrides
    ]
    words += [f"stages.revise.overrides={json.dumps(revise)}"]
    process = start(run_rounds, [*words, "trainer.accelerator=cpu", f"run_dir={tmp_path / 'run'}"], tmp_path / "log")
    process.join(900)
    assert process.exitcode == 0, (tmp_path / "log").read_text()[-3000:]
    receipts = {step.name: read_receipt(tmp_path / "run" / step.name) for step in steps.values()}
    assert all(receipts.values()) and not any(receipt.note for receipt in receipts.values())
    assert receipts["1/grow"].result["rows"] == 16 and receipts["1/pairs"].result["rows"] > 0
