"""LeDex: both rewards by hand, where they stand in a repair, and circuits to be repaired."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from mmrl.annotators.gae import GAE
from mmrl.core.types import Context, Episode, Sampling, Turn
from mmrl.data.collate import collate
from mmrl.methods.search.ledex import code_reward, explanation_reward, score_repair, similarity
from mmrl.policies.text.policy import TextPolicy
from mmrl.rewards.steps import FunctionScorer
from mmrl.rollouts.offline.demonstrations import demonstration
from mmrl.rollouts.text.scripted import scripted_episode
from mmrl.transforms.steps import StepRewards
from tasks.programs.circuits import evaluate
from tasks.programs.repairs import Repairs
from tests.policies.text.oracle import TINY

TASK = Repairs()


@pytest.mark.parametrize("tests, likeness, reward", [(1, 1, 5), (0, 0, -5), (1, 0.6, 3), (0, 0.6, -2)])
def test_code_rewards_by_hand(tests, likeness, reward):
    assert code_reward(tests, likeness) == pytest.approx(reward)


@pytest.mark.parametrize("likeness, reward", [(1, 5), (0.7, 0), (0.4, -5)])
def test_explanation_rewards_by_hand(likeness, reward):
    assert explanation_reward(likeness) == pytest.approx(reward, abs=1e-12)


def test_parts_of_a_repair_by_hand():
    # "a|b" and "a&b" match in 2 of 3 characters: .667, so 5 * .667 - 5 = -1.667; "0100" and "0110" in 3 of 4: .75,
    # .4 + .6 * .75 = .85 and (42.5 - 35) / 3 = 2.5
    assert similarity("a|b", "a&b") == pytest.approx(2 / 3)
    assert score_repair(["0100#", "a|b"], 0.0, "a&b", "0110") == pytest.approx([2.5, -5 / 3])
    assert score_repair(["0110#", "b&a"], 1.0, "b&a", "0110") == pytest.approx([5, 5])
    assert score_repair(["a&b"], 1.0, "a&b", "0110") == pytest.approx([5])  # no explanation
    first, second, last = score_repair(["01#", "10#", "a&b"], 1.0, "a&b", "01#10")  # the last "#" counts
    assert (first, second, last) == pytest.approx((0, 5, 5))
    assert score_repair(["#", ""], 0.0, "a&b", "0110") == pytest.approx([-5, -5])


def test_each_part_is_rewarded_at_its_end():
    policy = TextPolicy(config={**TINY, "max_position_embeddings": 128}, value_head=True).eval()
    ctx = Context(TASK, None, policy, Sampling(), seed=0, iteration=0)
    prompt = TASK[0]
    said = f"{prompt.info['explanation']}#{prompt.answer}"
    episode = Episode(prompt, 0, 0, [Turn(demonstration(prompt.observation, said, ctx))], scores={"exact": 1.0})
    part = StepRewards(FunctionScorer("mmrl.methods.search.ledex:score_repair"), separator="#")
    (episode,) = part([episode], ctx)
    rewards = episode.turns[0].completion.extra["token_rewards"]
    where = said.index("#")
    assert rewards.nonzero().flatten().tolist() == [
        where,
        len(rewards) - 1,
    ]  # the end of the sequence closes the program
    assert rewards[[where, -1]].tolist() == pytest.approx([5, 5])
    # separate credit: with gamma = lambda = 1 and values 0 a token of the explanation has 10, one of the program 5
    batch = collate([episode], policy).with_columns(values=torch.zeros(1, len(rewards)))
    advantages = GAE(1.0, 1.0, token_rewards="token_rewards")(batch, ctx)["advantages"][0]
    assert advantages.tolist() == pytest.approx([10.0] * (where + 1) + [5.0] * (len(rewards) - where - 1))


def test_problems_have_one_error_and_a_right_explanation():
    seen = set()
    for task in (TASK, TASK.on("held_out")):
        for index in range(40):
            prompt, (right, wrong) = task[index], task.problem(index)
            table, rest = prompt.messages[0]["content"].split(" ", 1)
            shown = rest[:-1].rpartition(":")[2]
            assert (table, shown) == (evaluate(right, 3), evaluate(wrong, 3)) and table != shown
            assert sum(a != b for a, b in zip(right, wrong)) == 1
            differ = [int(a != b) for a, b in zip(table, shown)]
            assert [int(bit) for bit in prompt.info["explanation"]] == differ
            seen.add((task.split, table))
            answer = task.demonstrate(index)
            full = {"exact": 1.0, "tests": 1.0, "format": 1.0, "explained": 1.0}
            assert task.score(scripted_episode(prompt, answer)) == full
            program_alone = task.score(scripted_episode(prompt, right))
            assert program_alone == {**full, "explained": 0.0}
            guess = task.score(scripted_episode(prompt, task.guess(prompt, np.random.default_rng(index))))
            assert guess["format"] == 1
    held_out = {table for split, table in seen if split == "held_out"}
    assert not held_out & {table for split, table in seen if split == "train"}
    with pytest.raises(ValueError, match="repairs"):
        Repairs(inputs=6)


def test_two_inputs_have_two_letters():
    task = Repairs(inputs=2)
    letters = {sign for i in range(40) for sign in task.problem(i)[1] if sign.isalpha()}
    assert letters == {"a", "b"}
    assert task.verify("0000#a", SimpleNamespace(info={"table": "0011", "explanation": "0000"}))["exact"] == 1
