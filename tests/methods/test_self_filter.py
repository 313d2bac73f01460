"""Prompts whose greedy completion is right are not trained on."""

import pytest
import torch

from mmrl.engines.local import LocalEngine
from mmrl.groups import group_episodes
from mmrl.methods.self_filter import DropGreedySolved
from mmrl.policies.text.policy import TextPolicy
from mmrl.rollouts.text.single_turn import SingleTurn
from mmrl.types import Collector, Context, Sampling
from tasks.arithmetic import Arithmetic
from tests.policies.text.oracle import TINY, decided

TASK = Arithmetic()


class Judge(Collector):
    """Greedy completions of these problems are right."""

    def __init__(self, solved):
        self.solved, self.judged = solved, []

    def score(self, episodes):
        self.judged += [(episode.group, episode.output) for episode in episodes]
        for episode in episodes:
            episode.scores = {"exact": self.solved[episode.group]}


@pytest.mark.parametrize(
    "solved, kept", [([1, 0, 1, 0], [1, 3]), ([1, 1, 1, 1], []), ([0, 0, 0, 0], [0, 1, 2, 3]), ([0.5, 1, 1, 1], [0])]
)
def test_which_prompts_stay(solved, kept):
    torch.manual_seed(0)
    policy, engine, judge = decided(TextPolicy(config=TINY)).eval(), LocalEngine(), Judge(solved)
    engine.sync(policy, 0)
    ctx = Context(TASK, engine, policy, Sampling(max_tokens=3), 0, 0, group_size=4, collector=judge)
    episodes = SingleTurn().collect([(slot, TASK[slot]) for slot in range(4)], ctx)
    result = DropGreedySolved()(list(episodes), ctx)
    assert list(group_episodes(result)) == kept
    assert all(any(episode is other for other in episodes) for episode in result)
    greedy = Context(TASK, engine, policy, Sampling(max_tokens=3, decode="argmax"), 0, 0)
    expected = SingleTurn().collect([(slot, TASK[slot]) for slot in range(4)], greedy)
    assert judge.judged == [(episode.group, episode.output) for episode in expected]  # one of each prompt
    assert DropGreedySolved()([], ctx) == []
