"""Adversarial Surprise: what the players are paid, and the advantages of steps that follow over a turn of the other."""

import torch
from hydra.utils import instantiate

from mmrl.annotators.gae import GAE
from mmrl.core.batch import Batch
from mmrl.core.types import Context, Sampling
from mmrl.methods.exploration.adversarial_surprise import AdversarialReward
from tests.composed_words import compose_words

CFG = compose_words(("recipe=adversarial_surprise",))
CTX = Context(None, None, None, Sampling(), seed=0, iteration=0)


def rows(players, rewards, episode=7, values=None):
    n = len(players)
    state = torch.stack([torch.arange(float(n)), torch.tensor(players, dtype=torch.float32)], dim=1)
    return Batch(
        **{"obs.state": state},
        episode=torch.full((n,), episode),
        step=torch.arange(n),
        reward=torch.tensor(rewards),
        values=torch.zeros(n) if values is None else torch.tensor(values),
        bootstrap_value=torch.full((n,), 9.0),
        action_mask=torch.ones(n, 1, dtype=torch.bool),
        is_last=torch.arange(n) == n - 1,
    )


def test_explore_loses_what_control_earns_in_the_turn_after_its_own():
    """Control sees [0, 1], [0, 1], [2, 1]: -2.197225, 0 and -6.907755, so that Explore gets 9.104980 at its last step;
    for an observation that stays [0, 1] it gets 2.197225."""
    players = [0, 0, 1, 1, 1, 0, 0, 1, 1, 1]
    rewards = [0.0, 0.0, -2.197225, 0.0, -6.907755, 0.0, 0.0, -2.197225, 0.0, 0.0]
    paid = AdversarialReward()(rows(players, rewards), CTX)
    expected = [0.0, 9.104980, -2.197225, 0.0, -6.907755, 0.0, 2.197225, -2.197225, 0.0, 0.0]
    torch.testing.assert_close(paid["reward"], torch.tensor(expected), atol=1e-6, rtol=0)
    assert paid["episode"].tolist() == [14 + player for player in players]
    assert paid["is_last"].tolist() == [False] * 6 + [True] + [False] * 2 + [True]
    assert not paid["bootstrap_value"].any()


def test_a_players_steps_follow_each_other_over_the_turn_of_the_other_one():
    """Advantages are those of each player's own steps, one after the other, in whatever order the rows come."""
    players, rewards = [0, 0, 1, 1, 0, 0, 1, 1], [0.0, 0.0, -1.0, -2.0, 0.0, 0.0, -4.0, -8.0]
    values = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
    order = torch.tensor([5, 2, 7, 0, 3, 6, 1, 4])
    batch = Batch({name: column[order] for name, column in rows(players, rewards, values=values).items()})
    found = GAE(0.9, 0.8)(AdversarialReward()(batch, CTX), CTX)["advantages"][:, 0]
    own = torch.tensor([[0.0, 3.0, 0.0, 12.0], [-1.0, -2.0, -4.0, -8.0]])  # Explore's rewards, then Control's
    seen = torch.tensor([[0.1, 0.2, 0.5, 0.6], [0.3, 0.4, 0.7, 0.8]])
    by_player = torch.zeros(2, 4)
    for k in range(2):  # the definition: sum of (gamma lambda)^i delta_i
        following = torch.cat([seen[k, 1:], torch.zeros(1)])
        delta = own[k] + 0.9 * following - seen[k]
        for t in range(4):
            by_player[k, t] = sum((0.9 * 0.8) ** (i - t) * delta[i] for i in range(t, 4))
    expected = torch.stack([by_player[0, :2], by_player[1, :2], by_player[0, 2:], by_player[1, 2:]]).reshape(-1)
    torch.testing.assert_close(found, expected[order])


def test_one_player_keeps_its_rewards():
    for player in (0, 1):
        paid = AdversarialReward()(rows([player] * 3, [1.0, 2.0, 3.0]), CTX)
        assert paid["reward"].tolist() == [1.0, 2.0, 3.0] and paid["is_last"].tolist() == [False, False, True]


def test_the_recipe_pays_before_it_estimates():
    assert list(CFG.data.pipeline) == ["surprise", "gae"]
    assert isinstance(instantiate(CFG.data.annotators.surprise), AdversarialReward)


def test_the_mean_rewards_of_the_players():
    """Odd episodes are Control's: (-2 - 4) / 2; without a step of a player there is no number."""
    batch = Batch(episode=torch.tensor([14, 15, 15]), reward=torch.tensor([9.0, -2.0, -4.0]))
    assert AdversarialReward().metrics(batch, CTX) == {"explore": 9.0, "control": -3.0}
    assert AdversarialReward().metrics(batch.select(torch.tensor([1])), CTX) == {"control": -2.0}
