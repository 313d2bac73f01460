"""Self-PRM: verdicts of a policy on its own solutions, and the problems that teach both."""

import math
import re

import pytest
import torch

from mmrl.core.types import Completion, Episode, Prompt, Turn
from mmrl.methods.search.self_prm import SelfVerdict
from mmrl.rewards.judges.base import NoAnswer
from mmrl.rewards.judges.questions import Reply
from tasks.arithmetic.verdicts import SolutionVerdicts


def solution(text):
    prompt = Prompt("p", ({"role": "user", "content": "3+8+1="},), answer=12)
    return Episode(prompt, 0, 0, [Turn(Completion({}, torch.zeros(1), torch.zeros(1), torch.ones(1) > 0, text))])


def test_the_question_is_problem_and_solution():
    question = SelfVerdict().ask([solution("11\n12")])[0]
    assert question.text == "3+8+1=11\n12?" and question.options == ("y", "n")


@pytest.mark.parametrize(("right", "least", "accepted"), [(0.6, 0.5, 1), (0.4, 0.5, 0), (0.6, 0.7, 0), (0.5, 0.5, 1)])
def test_a_solution_is_accepted_from_a_share_on(right, least, accepted):
    # the two words have .8 of the whole probability: shares of it are right / (right + wrong)
    reply = Reply("", options={"y": math.log(0.8 * right), "n": math.log(0.8 * (1 - right))})
    form = SelfVerdict(least=least)
    verdict = form.ask([solution("12")])[0].read(reply)
    assert form.combine([solution("12")], [verdict]) == [{"accepted": accepted}]


def test_a_missing_verdict_stays_missing():
    nothing = NoAnswer("the server was gone")
    assert SelfVerdict().combine([solution("12")], [nothing]) == [nothing]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"least": 1.0}, r"least must be in \(0, 1\)"),
        ({"template": "{problem}?"}, "lacks {solution}"),
        ({"wrong": "y"}, "must differ"),
    ],
)
def test_what_cannot_be_asked_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        SelfVerdict(**arguments)


def test_a_verdict_says_whether_the_lines_follow():
    task, wrong = SolutionVerdicts(), 0
    for index in range(0, 2000):
        prompt = task[index]
        text = prompt.messages[0]["content"]
        problem, solution_text = re.fullmatch(r"(?s)([\d+]+)=(.*)\?", text).groups()
        numbers = [int(number) for number in problem.split("+")]
        right = "\n".join(str(sum(numbers[: n + 1])) for n in range(1, len(numbers)))
        assert (solution_text == right) == (prompt.answer == "y"), text
        wrong += prompt.answer == "n"
        assert task.verify(prompt.answer, prompt) == {"exact": 1, "format": 1}
    assert 900 < wrong < 1100  # half of 2,000; five standard deviations of a fair coin are 112
    assert task.verify("yes", task[0]) == {"exact": 0, "format": 0}
