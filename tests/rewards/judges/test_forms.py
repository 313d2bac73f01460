"""What verdicts say about the episodes of a group, by hand and by closed form."""

import itertools
import math
import random
import re

import pytest

from mmrl.rewards.judges.base import LanguageJudge, NoAnswer
from mmrl.rewards.judges.comparisons import Listwise, Pairwise
from mmrl.rewards.judges.pointwise import Pointwise, YesNo
from mmrl.rewards.judges.questions import Reply
from mmrl.rewards.judges.rubric import Criterion, Rubric
from tests.rewards.judges.episodes import group_of


class Reader(LanguageJudge):
    """A judge that answers by a function of the mark and the texts between tags."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def reply(self, questions):
        return [self._reply(question) for question in questions]

    def _reply(self, question):
        texts = dict(re.findall(r"<([\w.]+)-[0-9a-f]{8}>\n(.*?)\n</", question.text, re.DOTALL))
        value = self.answer(texts)
        if value is None:
            return Reply("I cannot say.")
        mark = re.search(r"end in -([0-9a-f]{8}) ", question.text)[1]
        return Reply("", options=value) if question.options else Reply(value.replace("MARK", mark))


def judge(form, group, answer):
    questions = form.ask(group)
    verdicts = Reader(answer).judge(questions)
    return form.combine(group, verdicts), verdicts


def test_a_grade_is_scaled_to_one():
    form = Pointwise(low=1, high=5)
    scores, _ = judge(form, group_of(["1", "5", "2"]), lambda texts: f"grade-MARK: {texts['answer']}")
    assert scores == [{"judge": 0.0}, {"judge": 1.0}, {"judge": 0.25}]


def test_the_reference_is_shown_where_asked_for():
    texts = []
    judge(Pointwise(reference=True), group_of(["1"]), lambda text: texts.append(text) or "grade-MARK: 1")
    assert texts == [{"question": "What is 2 + 2?", "reference": "4", "answer": "1"}]
    with pytest.raises(ValueError, match="'sums/train/0' has none"):
        Pointwise(reference=True).ask(group_of(["1"], answer=None))


def test_log_odds():
    options = {"yes": math.log(0.6), "no": math.log(0.2)}
    assert judge(YesNo(), group_of(["1"]), lambda texts: options)[0][0]["judge"] == pytest.approx(math.log(3))
    assert judge(YesNo(probability=True), group_of(["1"]), lambda texts: options)[0][0]["judge"] == pytest.approx(0.75)


def better(texts):
    """The larger number is better."""
    first, second = float(texts["answer.1"]), float(texts["answer.2"])
    return f"better-MARK: {'tie' if first == second else 1 if first > second else 2}"


def test_rates_of_wins_are_those_of_all_pairs():
    numbers = [3, 1, 2, 2, 5]
    scores, verdicts = judge(Pairwise(), group_of(list(map(str, numbers))), better)
    wins = [sum((a > b) + (a == b) / 2 for j, b in enumerate(numbers) if j != i) / 4 for i, a in enumerate(numbers)]
    assert [score["judge"] for score in scores] == wins
    assert len(verdicts) == 2 * 10 and Pairwise().count(verdicts) == {"inconsistent": 0}


def test_a_judge_that_prefers_a_place_says_nothing():
    scores, verdicts = judge(Pairwise(), group_of(["1", "2", "3"]), lambda texts: "better-MARK: 1")
    assert scores == [{"judge": 0.5}] * 3 and Pairwise().count(verdicts) == {"inconsistent": 3}


@pytest.mark.parametrize("size, opponents, count", [(6, 1, 6), (6, 2, 12), (6, None, 15), (2, 1, 1), (6, 9, 15)])
def test_each_answer_has_its_opponents(size, opponents, count):
    pairs = Pairwise(opponents=opponents).pairs(size)
    assert len(set(pairs)) == len(pairs) == count
    if size > 2 and opponents in (1, 2):
        assert all(sum(i in pair for pair in pairs) == 2 * opponents for i in range(size))


def test_against_the_right_answer():
    scores, verdicts = judge(Pairwise(against="answer"), group_of(["3", "4", "9"]), better)
    assert scores == [{"judge": 0.0}, {"judge": 0.5}, {"judge": 1.0}] and len(verdicts) == 6


def test_an_only_answer_equals_itself():
    assert judge(Pairwise(), group_of(["1"]), better)[0] == [{"judge": 0.5}]
    assert judge(Listwise(), group_of(["1"]), better)[0] == [{"judge": 0.5}]


def test_a_comparison_without_verdict_does_not_count():
    """The pair of 1 and 3 is not judged: 2 has both of its comparisons, the others one each."""
    silent = {"1", "3"}
    answer = lambda texts: None if {texts["answer.1"], texts["answer.2"]} == silent else better(texts)  # noqa: E731
    scores, _ = judge(Pairwise(), group_of(["1", "2", "3"]), answer)
    assert scores == [{"judge": 0.0}, {"judge": 0.5}, {"judge": 1.0}]
    scores, _ = judge(Pairwise(), group_of(["1", "3"]), answer)
    assert all(isinstance(score, NoAnswer) and "cannot be read" in score.reason for score in scores)


def rank(texts):
    places = sorted((name for name in texts if name.startswith("answer")), key=lambda name: -float(texts[name]))
    pieces = [places[0]]
    for before, name in itertools.pairwise(places):
        pieces += ["=" if texts[name] == texts[before] else ">", name]
    return "ranking-MARK: " + " ".join(pieces).replace("answer.", "")


def test_ranks_are_mean_ranks_with_ties():
    random.seed(0)
    for _ in range(20):
        numbers = [random.randint(0, 4) for _ in range(random.randint(2, 6))]
        scores, _ = judge(Listwise(), group_of(list(map(str, numbers))), rank)
        expected = [
            sum((a > b) + (a == b) / 2 for j, b in enumerate(numbers) if j != i) / (len(numbers) - 1)
            for i, a in enumerate(numbers)
        ]
        assert [score["judge"] for score in scores] == pytest.approx(expected)


@pytest.mark.parametrize("ranking", ["1 > 2", "1 > 2 > 2", "1 > 2 > 4", "best", "1, 2, 3", "1 > > 2 > 3"])
def test_a_ranking_that_lacks_an_answer_is_no_score(ranking):
    scores, _ = judge(Listwise(), group_of(["1", "2", "3"]), lambda texts: f"ranking-MARK: {ranking}")
    assert all(isinstance(score, NoAnswer) for score in scores)


RUBRIC = Rubric(
    criteria={"right": Criterion("It is right.", weight=3.0), "short": Criterion("It is short.", saturation=0.5),
              "safe": Criterion("It harms nobody.", veto=0.5)}, vetoed=-1.0)  # fmt: skip


@pytest.mark.parametrize(
    "grades, score",
    [((4, 4, 4), 1), ((2, 4, 4), (1.5 + 2) / 5), ((2, 1, 4), (1.5 + 0.5 + 1) / 5), ((4, 2, 4), 1), ((4, 4, 1), -1)],
)
def test_weights_saturation_and_veto_of_a_rubric(grades, score):
    lines = "".join(f"{name}-MARK: {grade}\n" for name, grade in zip(RUBRIC.criteria, grades))
    scores, _ = judge(RUBRIC, group_of(["4"]), lambda texts: lines)
    parts = {f"judge_{name}": grade / 4 for name, grade in zip(RUBRIC.criteria, grades)}
    assert scores == [pytest.approx({"judge": score, **parts})]


def test_a_rubric_of_the_row():
    form = Rubric(column="rubric")
    scores, _ = judge(form, group_of(["4"], rubric={"a": "A", "b": "B"}), lambda texts: "a-MARK: 4\nb-MARK: 2")
    assert scores == [{"judge": 0.75}]
    scores, _ = judge(form, group_of(["4"], rubric={"a": "A", "b": "B"}), lambda texts: "a-MARK: 4")
    assert isinstance(scores[0], NoAnswer) and "no verdict 'b'" in scores[0].reason
    for rubric in (None, "short", {}, {"a": 1}, {"a b": "A"}):
        with pytest.raises(ValueError, match="sums/train/0"):
            form.ask(group_of(["4"], rubric=rubric))


def test_settings_are_refused():
    for build in (lambda: Pointwise(low=1, high=1), lambda: Rubric(), lambda: Pairwise(opponents=0),
                  lambda: Rubric({"a": Criterion("A")}, grades=0), lambda: Criterion("A", weight=0.0),
                  lambda: Criterion("A", veto=2.0), lambda: Rubric({"not a name": Criterion("A")})):  # fmt: skip
        with pytest.raises(ValueError):
            build()
