"""RLRF: which candidates are refined and which pairs follow, by hand, and its rounds at a tiny size."""

from dataclasses import dataclass, replace

import pytest
import torch

from mmrl.commands.rounds.file import read_rounds
from mmrl.commands.rounds.filters import filter_rows
from mmrl.commands.rounds.receipts import read_receipt
from mmrl.commands.rounds.rows import build_row, read_rows
from mmrl.commands.rounds.schedule import list_steps
from mmrl.core.errors import ConfigError
from mmrl.core.types import Completion, Context, Sampling
from mmrl.methods.preferences.rlrf import AspectFeedback, Reflections, select_best
from mmrl.rewards.critiques import FeedbackForm, FineGrainedFeedback, SheetFeedback
from mmrl.rewards.judges.questions import Question, Reply, Unreadable, question_of
from mmrl.rewards.judges.reward import JudgeReward
from mmrl.rewards.judges.scripted import ScriptedJudge
from mmrl.rewards.scoring import score
from tasks.arithmetic import Arithmetic
from tests.commands.rounds.tiny import run_rounds
from tests.runs.processes import start
from tests.tasks.replies import reply

TASK = Arithmetic()
DRAFTS = ["2220", "2210", "1220", "1110"]
"""Answers that are their own levels on four aspects, with the totals 6, 5, 5 and 3."""


def repeat(text: str) -> str:
    """A feedback model for answers that are their own levels."""
    return text


@dataclass(frozen=True)
class Levels(FeedbackForm):
    """Feedback whose reason is the place of the lowest level."""

    def ask(self, episode, answer):
        return Question(answer, self._read)

    def _read(self, reply):
        if not reply.text.isdecimal():
            raise Unreadable("no levels")
        return FineGrainedFeedback(
            {f"aspect{i}": float(x) for i, x in enumerate(reply.text)}, str(reply.text.find(min(reply.text)))
        )

    def write_refinement(self, episode, answer, feedback):
        return f"{question_of(episode)} {answer} {feedback.reason}"


class Refiner:
    """An engine that gives drafts in turn, and raises the level that the feedback names by one, if it can."""

    def __init__(self, drafts):
        self.drafts, self.asked = list(drafts), []

    def sample(self, requests, sampling):
        return [self._answer(request.observation["messages"][-1]["content"]) for request in requests]

    def _answer(self, text):
        self.asked.append(text)
        *_, answer, place = text.split(" ") if text.count(" ") > 1 else (text, "", "")
        if place:
            i = int(place)
            written = answer[:i] + str(min(int(answer[i]) + 1, 2)) + answer[i + 1 :]
        else:
            written = self.drafts.pop(0)
        one = torch.zeros(1)
        return Completion({}, one.long(), one, one.bool(), written)


def play(drafts, samples, best=1, slots=(0,)):
    """Scored candidates of prompts that have as many drafts as are given for each."""
    engine = Refiner(drafts)
    judge = ScriptedJudge("tests.methods.preferences.test_rlrf:repeat")
    rollout = Reflections(judge, Levels(), len(drafts) // len(slots), best)
    context = Context(TASK, engine, None, Sampling(max_tokens=4), seed=0, iteration=0, group_size=samples)
    episodes = rollout.collect([(slot, TASK[slot]) for slot in slots], context)
    score(episodes, TASK, JudgeReward(judge, AspectFeedback(Levels()), {"total": 1.0}, max_failed=1.0))
    return episodes, engine


def test_a_draft_that_failed_is_not_refined():
    """Of the drafts 2220, an error, and 1110 the second one is refined, although its total is lower."""

    class Failing(Refiner):
        def _answer(self, text):
            done = super()._answer(text)
            return replace(done, ended="error") if done.output == "2220" else done

    judge = ScriptedJudge("tests.methods.preferences.test_rlrf:repeat")
    context = Context(TASK, Failing(["2220", "1110"]), None, Sampling(max_tokens=4), 0, 0, group_size=3)
    episodes = Reflections(judge, Levels(), 2, 1).collect([(0, TASK[0])], context)
    assert [e.ended for e in episodes] == ["error", "done", "done"]
    assert episodes[2].info["refines"] == 1 and episodes[2].output == "1111"
    assert isinstance(Reflections(judge).feedback, SheetFeedback)


def pairs_of(episodes):
    """The pairs that the filter of the rounds file makes of candidates."""
    (stage,) = [step.stage for step in list_steps(read_rounds(["rlrf"])) if step.name == "1/pairs"]
    return filter_rows(stage, [build_row(e, str(e.output)) for e in episodes], 0)


def test_the_best_drafts_are_selected():
    assert select_best([6, 5, 5, 3], 3) == [0, 1, 2] and select_best([3, 5, 6, 5], 2) == [2, 1]
    assert select_best([None, 0, None], 2) == [1] and select_best([None], 1) == []


def test_the_refined_answer_is_chosen():
    """Totals 6, 5, 5, 3; the refinement of the best one, whose last level goes from 0 to 1, has 7."""
    episodes, engine = play(DRAFTS, samples=5)
    assert [e.scores["total"] for e in episodes] == [6, 5, 5, 3, 7]
    assert [e.info.get("refines") for e in episodes] == [None] * 4 + [0]
    assert engine.asked[-1] == f"{TASK[0].messages[0]['content']} 2220 3"  # question, draft, and the reason
    (pair,) = pairs_of(episodes)
    assert pair["chosen"] == "2221" and pair["chosen_score"] == 7 and pair["rejected_score"] in (6, 5, 3)
    assert pair["prompt"] == list(TASK[0].messages)  # the question, without draft and feedback


def test_the_best_drafts_are_refined_in_turn():
    """Five refinements of the best two: 2220 becomes 2221, and 2210, whose lowest level is the last one, 2211."""
    episodes, _ = play(DRAFTS, samples=9, best=2)
    assert [e.info["refines"] for e in episodes[4:]] == [0, 1, 0, 1, 0]
    assert [e.output for e in episodes[4:]] == ["2221", "2211", "2221", "2211", "2221"]


def test_no_pair_has_equal_totals_and_ties_give_none():
    """The first prompt's candidates all have 8, which no refinement raises; the second one has 6 and 7."""
    episodes, _ = play(["2222"] * 2 + ["2220"] * 2, samples=3, slots=(0, 1))
    assert [e.scores["total"] for e in episodes] == [8, 8, 8, 6, 6, 7]
    (pair,) = pairs_of(episodes)
    assert pair["key"] == TASK[1].key and (pair["chosen_score"], pair["rejected_score"]) == (7, 6)


def test_as_many_drafts_as_samples_are_plain_samples():
    episodes, engine = play(DRAFTS, samples=4)
    assert [e.output for e in episodes] == DRAFTS and len(engine.asked) == 4
    (pair,) = pairs_of(episodes)
    assert pair["chosen"] == "2220"


def test_a_draft_without_feedback_is_not_refined():
    episodes, _ = play(["none", "1110"], samples=3)
    assert [e.ended for e in episodes] == ["error", "done", "done"] and episodes[2].info["refines"] == 1
    episodes, engine = play(["none", "none"], samples=3)
    assert {e.ended for e in episodes} == {"error"} and len(engine.asked) == 2
    assert pairs_of(episodes) == []


def test_wrong_arguments_are_refused():
    judge = ScriptedJudge("tests.methods.preferences.test_rlrf:repeat")
    with pytest.raises(ConfigError, match=r"rollout\.best=3.*rollout\.drafts=2"):
        Reflections(judge, drafts=2, best=3)
    with pytest.raises(ValueError, match=r"rollout.*drafts"):
        Reflections(judge, drafts=0)
    with pytest.raises(ConfigError, match=r"rollout\.drafts=4.*3 samples"):
        play(DRAFTS, samples=3)
    for aspects in ({}, {"two words": "0"}):
        with pytest.raises(ConfigError, match=r"sheet_feedback\.aspects"):
            SheetFeedback(aspects)


def test_a_language_model_is_asked_for_a_reason_and_levels():
    form = SheetFeedback({"factuality": "0: false; 1: in part; 2: true", "logic": "0: none; 1: some; 2: all"})
    episode = reply(TASK[0], "seven")
    question = form.ask(episode, "seven")
    mark = question.text.split("<answer-")[1].split(">")[0]
    assert "seven" in question.text and f"factuality-{mark}: N" in question.text
    feedback = question.read(Reply(f"It is no number.\nfactuality-{mark}: 0\nlogic-{mark}: 2"))
    assert (
        feedback == FineGrainedFeedback({"factuality": 0.0, "logic": 2.0}, "It is no number.") and feedback.total == 2
    )
    text = form.write_refinement(episode, "seven", feedback)
    assert "It is no number.\nfactuality 0 of 2, logic 2 of 2" in text and question_of(episode) in text
    for levels in ("1.5", "3", "good"):
        with pytest.raises(Unreadable):
            question.read(Reply(f"factuality-{mark}: {levels}\nlogic-{mark}: 1"))


def test_a_round_learns_from_new_problems_against_the_policy_before():
    file = read_rounds(["rlrf"])
    steps = {step.name: step for step in list_steps(file)}
    assert [steps[f"{n}/dpo"].weights for n in (1, 2)] == ["0/sft", "1/dpo"]
    assert [steps[f"{n}/grow-1"].weights for n in (1, 2)] == ["0/sft", "1/dpo"]
    assert [(steps[f"{n}/grow-1"].stage.offset, steps[f"{n}/grow-1"].stage.count) for n in (1, 2)] == [
        (1000, 500),
        (2000, 500),
    ]  # the start learned the first 1000
    assert steps["2/grow-1"].folders == ("0/feedback", "0/feedback")
    baseline = {s.name: s for s in list_steps(read_rounds(["rlrf", *file.values["baselines"]["samples"]]))}
    overrides = [each["1/grow-1"].stage.overrides for each in (steps, baseline)]
    assert [[word.replace("drafts: 8", "drafts: 4") for word in words] for words in overrides] == [overrides[0]] * 2
    assert replace(steps["1/grow-1"].stage, overrides=[]) == replace(baseline["1/grow-1"].stage, overrides=[])


@pytest.mark.slow
def test_the_rounds_run_at_a_tiny_size(tmp_path):
    """From random weights, so no draft is readable; every stage ends, and all candidates are there."""
    words = ["rlrf", "rounds=1", "stages.candidates.stages.grow.count=4", "start.begin.count=4"]
    words += ["stages.measure.count=4", "data.num_prompts=8", "data.num_minibatches=1", "trainer.max_epochs=1"]
    process = start(run_rounds, [*words, "trainer.accelerator=cpu", f"run_dir={tmp_path / 'run'}"], tmp_path / "log")
    process.join(600)
    assert process.exitcode == 0, (tmp_path / "log").read_text()[-3000:]
    assert all(read_receipt(tmp_path / "run" / step.name) for step in list_steps(read_rounds(words[:2])))
    rows = read_rows(tmp_path / "run/1/grow-1/rows.jsonl")
    assert [row["sample_index"] for row in rows] == [*range(8)] * 4
