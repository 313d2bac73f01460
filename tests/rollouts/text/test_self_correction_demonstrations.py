"""What an expert says at first, and once asked again; of answers to other problems nothing is learned."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.annotators.logprobs import scored
from mmrl.data.collate import collate
from mmrl.rollouts.offline.demonstrations import Demonstrations
from mmrl.rollouts.text.self_correction_demonstrations import SelfCorrectionDemonstrations
from mmrl.types import Context, Sampling
from tasks.arithmetic.task import Arithmetic
from tests.rollouts.text.test_tools import POLICY

TASK = Arithmetic(digits=(2, 1))
RETRY = " again {question}"


def played(rollout, slots=range(6)):
    ctx = Context(TASK, None, POLICY, Sampling(), seed=0, iteration=0, group_size=1)
    return rollout.collect([(slot, TASK[slot]) for slot in slots], ctx)


def text(ids):
    return POLICY.decode(ids.tolist())


@pytest.mark.parametrize("wrong", [0.0, 1.0])
def test_attempts_follow_each_other_with_the_request_between(wrong):
    for episode in played(SelfCorrectionDemonstrations(message=RETRY, wrong=wrong)):
        (turn,) = episode.turns
        row, answer = turn.completion, TASK.demonstrate(episode.prompt.index)
        request = RETRY.replace("{question}", episode.prompt.messages[0]["content"])
        first, _, second = text(row.action).partition(request)
        assert second == answer and episode.source == "demo"
        assert (first == answer) == (wrong == 0) and first.isdigit()
        ids = len(POLICY.encode_demonstration(episode.prompt.observation, answer))
        last = torch.arange(len(row.action_mask)) >= len(row.action_mask) - ids
        assert torch.equal(row.action_mask, last | (torch.arange(len(row.action_mask)) < ids) if wrong == 0 else last)


def test_the_first_attempt_is_as_likely_as_an_answer_that_stands_alone():
    alone = collate(played(Demonstrations()), POLICY)
    twice = collate(played(SelfCorrectionDemonstrations(message=RETRY, wrong=0.0)), POLICY)
    with torch.no_grad():
        one, two = (scored(POLICY, b, lambda out: out.logprobs, 8, torch.device("cpu")) for b in (alone, twice))
    for row in range(6):
        mask = alone["action_mask"][row]
        assert_close(two[row, : len(mask)][mask], one[row][mask], rtol=0, atol=1e-5)


def test_the_share_of_wrong_first_attempts():
    rows = [episode.turns[0].completion for episode in played(SelfCorrectionDemonstrations(message=RETRY), range(200))]
    wrong = sum(not bool(row.action_mask[0]) for row in rows)
    assert 70 <= wrong <= 130  # 200 draws at one half, less the few other problems of the same answer


@pytest.mark.parametrize("bad", [{"num_attempts": 1}, {"message": ""}, {"wrong": 1.5}])
def test_refusals(bad):
    with pytest.raises(ValueError, match="num_attempts >= 2"):
        SelfCorrectionDemonstrations(**bad)
