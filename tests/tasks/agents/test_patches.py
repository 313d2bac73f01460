"""Patches: issues, what tools show of the files, guidance, and the weak agent that is demonstrated."""

import pytest

from mmrl.core.errors import ConfigError
from mmrl.core.types import Prompt
from tasks.patches.task import FILES, GuidedPatches, Issue, NoFile, OpenFile, Patches, write_guidance
from tasks.split_facts.task import SplitFacts
from tests.tasks.replies import reply

TASK = Patches(files=4)
ISSUE = Issue(file=2, wanted=9, values=(5, 1, 4, 0))
PROMPT = TASK.write_prompt(ISSUE, "patches/train/0")


def test_an_issue_by_hand():
    symptom = TASK.symptoms[2]
    assert sorted(TASK.symptoms) == list("ABCD") and PROMPT.messages[0]["content"] == f"{symptom}>9"
    assert PROMPT.answer == "c9"
    answers = {"c9": (1, 1, 1), " c9\n": (1, 1, 1), "c8": (0, 1, 0), "d9": (0, 0, 1), "9c": (0, 0, 0), "": (0, 0, 0)}
    assert {answer: tuple(TASK.verify(answer, PROMPT).values()) for answer in answers} == answers


def test_a_file_shows_its_value_and_its_symptom():
    tool = OpenFile(TASK).start(PROMPT)
    assert [tool.run(file) for file in "abcd"] == [f"{v}{s}" for v, s in zip((5, 1, 4, 0), TASK.symptoms)]
    for wrong in ("e", "ab", ""):
        with pytest.raises(NoFile):
            tool.run(wrong)
    with pytest.raises(ValueError, match="patches"):
        OpenFile(SplitFacts())


def test_wanted_values_differ_from_those_of_the_file_and_splits_are_disjoint():
    task = Patches(count=150, held_out=50)
    assert all(issue.values[issue.file] != issue.wanted for issue in map(task.problem, range(50)))
    keys = [{each.split_key(each.problem(i)) for i in range(len(each))} for each in (task, task.on("held_out"))]
    assert not keys[0] & keys[1] and task.symptoms == task.on("held_out").symptoms


def test_guidance_names_a_file_whose_patch_failed_and_the_one_to_open():
    attempts = {("x", "c1", "a9"): "a-c", ("c1",): "c", ("", "open"): "c"}  # c1 is the right file
    for outputs, guidance in attempts.items():
        assert TASK.guide(PROMPT, [reply(PROMPT, output) for output in outputs]) == guidance
    assert write_guidance("", "c") == "c" and write_guidance("a", "c") == "a-c"


def test_the_weak_agent_opens_any_file_and_follows_guidance():
    weak, task = GuidedPatches(guided=0.5), Patches()
    shares = {True: [], False: []}
    for index in range(300):
        prompt, right = weak[index], task[index].answer
        call, patch = weak.script(index)
        assert call == f"?{patch[0]};" and patch[1] == right[1]
        issue, bar, guidance = prompt.messages[0]["content"].partition("|")
        assert issue == task[index].messages[0]["content"] and (not bar or guidance[-1] == right[0])
        shares[bool(bar)].append(patch == right)
    assert all(shares[True]) and 100 < len(shares[True]) < 200
    assert sum(shares[False]) / len(shares[False]) < 0.25  # one of ten files
    assert "|" in GuidedPatches(guided=1.0)[0].messages[0]["content"]


@pytest.mark.parametrize("options", [{"files": 1}, {"files": len(FILES) + 1}, {"guided": 2.0}])
def test_what_cannot_be_is_refused(options):
    with pytest.raises((ConfigError, ValueError), match=next(iter(options))):
        GuidedPatches(**options)


def test_the_expert_solves_every_issue():
    for index in range(20):
        prompt: Prompt = TASK[index]
        assert TASK.verify(TASK.script(index)[-1], prompt)["exact"] == 1
