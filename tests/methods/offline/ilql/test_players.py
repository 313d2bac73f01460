"""Logs of mixed quality, and the best episodes of one."""

import pytest
from torch import equal

from mmrl.core.types import Context, Episode, Prompt, Sampling
from mmrl.methods.offline.ilql.players import KeepTopReturns, MixedPlayers
from mmrl.policies.text.policy import TextPolicy
from mmrl.rollouts.offline.logged import LoggedEpisodes
from tasks.gridworld.task import GridWorld
from tests.policies.text.oracle import TINY


def test_a_log_has_every_player_in_turn(tmp_path):
    """The first player is the expert, whose mazes end by shortest paths; the second one walks at random.

    A move costs .1 and the goal pays 1: the expert's return of a path of n moves is 1 - .1 n.
    """
    task = GridWorld(layout="maze", form="words", rows=7, columns=7, max_turns=12, step_cost=0.1)
    policy = TextPolicy(config=dict(TINY))
    ctx = Context(task, None, policy, Sampling(max_tokens=2), seed=0, iteration=0, group_size=1, num_prompts=8)
    log = LoggedEpisodes(str(tmp_path / "log.pt"), MixedPlayers([0.0, 1.0]), count=8)
    prompts = [(i, task[i]) for i in range(8)]
    episodes = log.collect(prompts, ctx)
    for i, episode in enumerate(episodes):
        scores, moves = episode.info["scores"], len(episode.turns)
        assert scores["return"] == pytest.approx(sum(turn.reward for turn in episode.turns))
        assert scores["return"] == pytest.approx(scores["exact"] - 0.1 * moves)
        assert i % 2 or scores["efficiency"] == 1
    assert any(episode.info["scores"]["efficiency"] < 1 for episode in episodes[1::2])
    again = LoggedEpisodes(str(tmp_path / "log.pt")).collect(prompts, ctx)
    for one, other in zip(episodes, again):
        for turn, same in zip(one.turns, other.turns, strict=True):
            assert equal(turn.completion.action, same.completion.action) and turn.reward == same.reward


def test_the_best_returns_are_kept_in_their_order():
    returns = [0.2, 0.9, -1.0, 0.9, 0.5, 0.1]
    episodes = [Episode(Prompt(f"p/{i}"), i, 0, [], info={"scores": {"return": r}}) for i, r in enumerate(returns)]
    for episode, value in zip(episodes, returns):
        episode.scores = {"return": value}
    assert [e.group for e in KeepTopReturns(0.5)(episodes, None)] == [1, 3, 4]
    assert [e.group for e in KeepTopReturns(0.2)(episodes, None)] == [1]
    assert [e.group for e in KeepTopReturns(0.01)(episodes, None)] == [1]


def test_refusals():
    with pytest.raises(ValueError, match=r"KeepTopReturns\.fraction must be in \(0, 1\]"):
        KeepTopReturns(0.0)
    with pytest.raises(ValueError, match="random_fractions is empty"):
        MixedPlayers([])
