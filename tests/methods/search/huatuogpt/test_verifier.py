"""HuatuoGPT-o1's learned verifier: coarse rewards of its p, what it reads, and the responses that it learns from."""

import math
import re
from types import SimpleNamespace

import pytest
import torch

from mmrl.methods.search.huatuogpt.verifier import VerifiedResponse
from tasks.arithmetic.responses import FORMS, LabelledResponses, ask_verifier
from tasks.arithmetic.task import Arithmetic
from tests.tasks.replies import reply

TASK = Arithmetic(digits=[1, 1, 1], steps=True)


class Verifier:
    """Scores log-odds by response, and notes what it was shown."""

    device = torch.device("cpu")

    def __init__(self, **odds):
        self.odds, self.shown = odds, []

    def encode(self, raw):
        self.shown.append(raw)
        return raw

    def collate(self, rows):
        return {"score": torch.tensor([self.odds[row["answer"]] for row in rows])}

    def scores(self, columns):
        return columns["score"]


def respond(*responses):
    texts = [f"## Thinking\nx\n## Final Response\n{response}" for response in responses]
    return [reply(TASK[0], text) for text in texts]


def bind(verifier, **options):
    reward = VerifiedResponse(**options)
    return reward.bind(SimpleNamespace(models={"verifier": verifier}))


def test_the_reward_is_coarse_in_the_verifiers_probability():
    # log-odds of .9, .4 + and .3: 1, 1 and .1; ln(2/3) is p = .4 but for rounding, so it is left out
    verifier = Verifier(a=math.log(9), b=math.log(0.41 / 0.59), c=math.log(3 / 7))
    reward = bind(verifier)
    group = [*respond("a", "b", "c"), reply(TASK[0], "a")]
    scores = reward.scores(group)
    assert [score["coarse"] for score in scores] == [1.0, 1.0, 0.1, 0.0]
    assert [score["verified"] for score in scores] == pytest.approx([0.9, 0.41, 0.3, 0.0], abs=1e-6)
    for episode, score in zip(group, scores):
        episode.scores |= score
    assert list(reward(group)) == [1.0, 1.0, 0.1, 0.0]


def test_scores_are_weighted():
    """.5 * .9 + 2 * 1."""
    reward = bind(Verifier(a=math.log(9)), weights={"verified": 0.5, "coarse": 2.0})
    (episode,) = respond("a")
    episode.scores |= reward.scores([episode])[0]
    assert list(reward([episode])) == pytest.approx([2.45])


def test_the_verifier_reads_the_right_answer_and_no_reply_without_headings():
    verifier = Verifier(a=0.0)
    bind(verifier).scores([*respond("a"), reply(TASK[0], "a")])
    question = TASK[0].messages[0]["content"]
    assert [shown["answer"] for shown in verifier.shown] == ["a"]
    assert verifier.shown[0]["messages"] == [{"role": "user", "content": f"{question}{TASK[0].answer}?"}]
    assert tuple(verifier.shown[0]["messages"]) == ask_verifier(question, str(TASK[0].answer))  # as it has learned


@pytest.mark.parametrize(
    ("options", "message"), [({"threshold": 1.5}, "threshold"), ({"template": "{question}"}, "lacks {answer}")]
)
def test_what_no_verifier_can_be_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        VerifiedResponse(**options)


def test_a_problem_without_an_answer_is_named():
    episode = respond("a")[0]
    episode.prompt = SimpleNamespace(answer=None, key="mine/train/3", place=None)
    with pytest.raises(ValueError, match="mine/train/3 has no answer"):
        bind(Verifier(a=0.0)).scores([episode])


def test_labels_say_whether_the_response_is_the_right_result():
    task, flipped, right = LabelledResponses(), 0, 0
    for index in range(len(task)):
        prompt = task[index]
        problem, reference = re.fullmatch(r"([\d+]+)=(\d+)\?", prompt.messages[0]["content"]).groups()
        assert sum(map(int, problem.split("+"))) == int(reference)
        number = re.search(r"-?\d+", prompt.info["chosen"]).group()
        assert prompt.info["chosen"] in {form.format(number) for form in FORMS}
        right += number == reference
        flipped += (number == reference) != (prompt.info["labels"]["right"] == 1)
    # of 787 problems half are right (5 standard deviations are 71), and of a tenth the label is wrong (42)
    assert len(task) == 787 and 322 < right < 465 and 36 < flipped < 121
    held_out = task.on("held_out")
    for index in range(len(held_out)):
        prompt = held_out[index]
        number = re.search(r"-?\d+", prompt.info["chosen"]).group()
        assert (number == str(prompt.answer)) == (prompt.info["labels"]["right"] == 1)
