"""RLPT: the prefix rule by hand, which answers a judge is asked about, and how its verdict is read."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from mmrl.core.types import Prompt
from mmrl.methods.rewards.rlpt import PrefixVerdict
from mmrl.rewards.judges.base import NoAnswer
from mmrl.rewards.judges.questions import Reply, Unreadable
from tasks.passages.ledgers import Continuations, ContinuationVerdict, Ledgers, continues
from tests.tasks.replies import reply

FOLLOWING = ["Now 7.", "Add 2.", "It is 9."]
PROMPT = Prompt("p", ({"role": "user", "content": "Now 4. Add 3. [...]"},), info={"following": FOLLOWING})


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("Now 7.", True),
        ("It is 7.", True),  # the meaning counts
        ("It is 7. Add 2.", True),
        ("Now 7. Add 2. Now 9.", True),
        ("Now 7. Add 2. Now 9. Add 1.", False),  # goes beyond
        ("Now 7. Take 2.", False),
        ("Add 2.", False),  # no beginning
        ("Now 7", True),  # full stops at the end are free
        ("Now 7..", True),
        ("Now 7.. Add 2.", False),
        ("Now 07.", False),
        ("", False),
    ],
)
def test_the_prefix_rule_by_hand(text, right):
    assert continues(text, FOLLOWING) == right
    assert Ledgers().score(reply(PROMPT, text))["exact"] == right


def test_words_are_those_of_the_text():
    scores = [Ledgers().score(reply(PROMPT, text))["words"] for text in ("Now 7.", "It is 7.", "Now 7. Add 2.")]
    assert scores == [1, 0, 1]


def test_an_empty_answer_is_not_asked_about():
    group = [reply(PROMPT, text) for text in ("", "Now 7.", " \n", "Now 8.")]
    for form, yes, no in ((PrefixVerdict(), 1.0, 0.0), (PrefixVerdict(ContinuationVerdict()), 2.5, -0.1)):
        assert len(form.ask(group)) == 2
        assert form.combine(group, [yes, no]) == [{"judge": 0.0}, {"judge": 1.0}, {"judge": 0.0}, {"judge": 0.0}]
        assert form.combine(group[:2], [yes]) == [{"judge": 0.0}, {"judge": 1.0}]
        late = NoAnswer("late")
        assert form.combine(group, [late, yes])[1] is late


def test_the_verdict_is_read_from_the_marked_line():
    (question,) = PrefixVerdict().ask([reply(PROMPT, "Now 7. prefix-0: 1")])
    mark = question.text.partition("end in -")[2][:8]
    assert question.read(Reply(f"It is.\nprefix-{mark}: 1")) == 1.0 and question.read(Reply(f"prefix-{mark}: 0")) == 0.0
    assert question.read(Reply(f"prefix-{mark}: 0.5")) == 1.0 and question.read(Reply(f"prefix-{mark}: 0.4")) == 0.0
    assert all(segment in question.text for segment in FOLLOWING)
    with pytest.raises(Unreadable):
        question.read(Reply("prefix-0: 1"))
    with pytest.raises(ValueError, match="no info 'following'"):
        PrefixVerdict().ask([reply(Prompt("q", ()), "a")])


def test_both_kinds_of_prompts_are_mixed_and_follow_from_what_is_shown():
    task = Ledgers(middle=0.25)
    prompts = [task[index] for index in range(400)]
    middle = [prompt for prompt in prompts if prompt.info["kind"] == "middle"]
    assert 70 < len(middle) < 130  # 100, standard deviation 8.7
    for prompt in prompts[:100]:
        numbers = [int(word) for word in prompt.messages[0]["content"].replace(".", "").split() if word.isdigit()]
        added = "Take" not in f"{prompt.messages[0]['content']}{prompt.answer}"
        right = int(prompt.answer.rstrip(".").split()[-1])
        if prompt.info["kind"] == "middle":
            assert right == abs(numbers[-1] - numbers[-2])
        else:
            assert right == numbers[-2] + (numbers[-1] if added else -numbers[-1])


def test_the_judge_s_task_has_both_labels_and_its_own_split():
    task = Continuations(count=200, held_out=50)
    labels = [task[index].answer for index in range(200)]
    assert 60 < labels.count("y") < 140
    rights = [{t[i].messages[0]["content"] for i in range(50)} for t in (task, task.on("held_out"))]
    assert not rights[0] & rights[1]
    (question,) = ContinuationVerdict().ask([reply(PROMPT, "Now\n7.")])
    assert question.text == "Now 7.|Now 7. Add 2. It is 9.?"
    assert question.read(SimpleNamespace(options={"y": -1.0, "n": -3.0})) == 2.0


def test_the_judge_of_each_recipe_learns_its_own_task():
    """A stage of a warm start takes the task of the run unless it names its own."""
    for recipe, task in (("rlpt", "continuations"), ("reasoning_sql", "query_grades")):
        text = (Path(__file__).resolve().parents[3] / f"conf/recipe/rewards/{recipe}.yaml").read_text()
        stages = yaml.safe_load(text)["trainer"]["callbacks"]["warm_start"]["stages"]
        assert stages["judge"] == [f"start={task}", f"task={task}"]


def test_another_form_combines_the_answers_that_were_asked_about():
    group = [reply(PROMPT, text) for text in ("", "Now 7.", "Now 8.")]
    form = SimpleNamespace(combine=lambda asked, verdicts: [{"judge": float(len(asked))} for _ in verdicts])
    assert PrefixVerdict(form).combine(group, [1.0, 0.0]) == [{"judge": 0.0}, {"judge": 2.0}, {"judge": 2.0}]
