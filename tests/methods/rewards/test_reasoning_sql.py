"""Reasoning-SQL: the composed reward by hand, and which queries the judge is asked about."""

import re
from pathlib import Path

import pytest
import yaml

from mmrl.core.errors import ConfigError
from mmrl.methods.rewards.reasoning_sql import WrongAnswers
from mmrl.rewards.judges.base import LanguageJudge, NoAnswer
from mmrl.rewards.judges.pointwise import YesNo
from mmrl.rewards.judges.questions import Reply
from mmrl.rewards.judges.reward import JudgeReward
from mmrl.rewards.scoring import score
from tasks.sql import SQL
from tasks.sql.closeness import Closeness, grade_query
from tests.tasks.replies import reply

ROOT = Path(__file__).resolve().parents[3]
METHOD = yaml.safe_load((ROOT / "conf/method/rewards/reasoning_sql.yaml").read_text())["data"]["reward"]
TASK = SQL(joins=False)


class RightJudge(LanguageJudge):
    """Replies with the right grade, and keeps what it was asked."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def reply(self, questions):
        self.asked += [question.text for question in questions]
        return [Reply(str(grade_query(*question.text.splitlines()[::-1]))) for question in questions]


@pytest.fixture(scope="module")
def prompt():
    """SELECT name FROM driver WHERE age > 41 or alike: eight tokens."""
    prompts = (TASK[index] for index in range(200))
    return next(p for p in prompts if re.fullmatch(r"SELECT name FROM \w+ WHERE \w+ [<>] [0-9]+", p.answer))


def rewards_of(prompt, queries, judge):
    episodes = [reply(prompt, query) for query in queries]
    score(episodes, TASK, JudgeReward(judge, WrongAnswers(Closeness()), METHOD["weights"]))
    return [episode.reward for episode in episodes]


def test_the_reward_by_hand(prompt):
    """The right query has 3 + 2 + 1 + 1 + 1 + 1 = 9.

    Another sign changes 2 of 7 pairs of tokens: 5 common of 9, and one token, so grade 3 of 4. Without its condition
    the query has 3 of 7 pairs, 1 of 2 columns, and lacks four tokens. Text has nothing but pairs, here none.
    """
    sign = " > " if " > " in prompt.answer else " < "
    near = prompt.answer.replace(sign, f"{sign.rstrip()}= ")
    short = prompt.answer.partition(" WHERE")[0]
    judge = RightJudge()
    rewards = rewards_of(prompt, [prompt.answer, near, short, "I do not know", ""], judge)
    assert rewards == pytest.approx([9, 2 * 0.75 + 1 + 1 + 5 / 9 + 1, 0 + 1 + 1 / 2 + 3 / 7 + 1, 0, 0])
    assert len(judge.asked) == 4  # not about the right query


def test_no_wrong_query_earns_what_a_right_one_does(prompt):
    """The best wrong query has judge, syntax, schema, n-grams and format, 6; the worst right one 3 + 2 + 1 + 1 = 7."""
    weights = METHOD["weights"]
    partial = sum(weight for name, weight in weights.items() if name != "exact")
    assert partial == 6 < sum(weights[name] for name in ("exact", "judge", "syntax", "format"))
    equal = f"WITH t AS ({prompt.answer}) SELECT * FROM t"
    assert rewards_of(prompt, [equal], RightJudge())[0] > 7


def test_verdicts_go_to_the_queries_that_were_asked_about(prompt):
    group = [reply(prompt, text) for text in ("a", "b", "c", "d")]
    for episode, exact in zip(group, (0.0, 1.0, 0.0, 0.0)):
        episode.scores = {"exact": exact}
    form, late = WrongAnswers(Closeness()), NoAnswer("late")
    assert [q.text.splitlines()[1] for q in form.ask(group)] == ["a", "c", "d"]
    assert form.combine(group, [4, late, 1]) == [{"judge": 1.0}, {"judge": 1.0}, late, {"judge": 0.25}]


def test_what_cannot_be_asked_is_refused(prompt):
    with pytest.raises(ConfigError, match=r"reward\.form\.form reads log-probs"):
        WrongAnswers(YesNo())
    episode = reply(prompt, "a")
    episode.scores = {"pay": 1.0}
    with pytest.raises(ConfigError, match="no score 'exact' but \\['pay'\\]"):
        WrongAnswers().ask([episode])
    episode.scores = {"exact": 0.0}
    assert prompt.answer in WrongAnswers().ask([episode])[0].text  # the default shows the right query
