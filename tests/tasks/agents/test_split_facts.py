"""Split facts: problems that no agent can answer alone, and the dialogues that demonstrate how they are answered."""

import pytest

from mmrl.core.errors import ConfigError
from tasks.split_facts.task import FactDialogues, Problem, SplitFacts, tell

FACTS = ((("a", 3), ("b", 7)), (("f", 5), ("c", 1)))


def test_a_problem_by_hand():
    problem = Problem(FACTS, ("b", "f"))
    prompt = SplitFacts().write_prompt(problem, "split_facts/train/0")
    assert prompt.messages[0]["content"] == "b f" and prompt.answer == "7 5"
    assert prompt.info["facts"] == ["a3 b7", "f5 c1"]


def test_each_agent_knows_one_of_the_names_and_splits_are_disjoint():
    task = SplitFacts(count=200, held_out=60)
    for index in range(50):
        problem = task.problem(index)
        names = [{name for name, _ in part} for part in problem.facts]
        assert not names[0] & names[1] and [name in part for name, part in zip(problem.asked, names)] == [True, True]
    keys = [{each.split_key(each.problem(i)) for i in range(len(each))} for each in (task, task.on("held_out"))]
    assert not keys[0] & keys[1]


def test_answers_are_verified():
    task = SplitFacts()
    prompt = task.write_prompt(Problem(FACTS, ("b", "f")), "split_facts/train/0")
    # one of two words on both sides: 2 * 1 / 4; words in another order are the same words, and not the same answer
    answers = {"7 5": (1, 1), " 7  5": (1, 1), "7 1": (0, 0.5), "5 7": (0, 1), "": (0, 0), "75": (0, 0)}
    assert {a: tuple(task.verify(a, prompt).values()) for a in answers} == answers


def test_messages_in_three_styles():
    assert [tell(FACTS[0], "b", style) for style in ("sentence", "all", "asked")] == [
        "a is 3 and b is 7", "a3 b7", "b7",
    ]  # fmt: skip


def test_a_demonstrated_dialogue_ends_with_the_right_answer_twice():
    task = FactDialogues(styles=["asked"], long=1.0)
    problem, (decisions,) = task.problem(4), task.demonstrations([task[4]])
    (first, second), facts = problem.asked, [dict(part) for part in problem.facts]
    texts = [text for _, text in decisions]
    assert texts == [f"{first}{facts[0][first]}", f"{second}{facts[1][second]}", *[f"={problem.answer}"] * 2]
    known = task[4].info["facts"]
    views = [raw["messages"][0]["content"] for raw, _ in decisions]
    assert views == [f"{known[n % 2]}|{first} {second}|{'/'.join(texts[:n])}" for n in range(4)]
    short = FactDialogues(styles=["asked"], long=0.0)
    assert [text for _, text in short.demonstrations([short[4]])[0]] == [texts[0], *texts[2:]]


def test_the_language_is_one_message_of_a_dialogue():
    task = FactDialogues(language="~")
    for index in range(20):
        ((raw, message),) = task.demonstrations([task[index]])[0:1][0]
        assert raw["messages"][0]["content"] == "~" and message in task.dialogue(index)


@pytest.mark.parametrize("options", [{"known": 6}, {"styles": ["loud"]}, {"styles": []}])
def test_what_cannot_be_is_refused(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        FactDialogues(**options)
