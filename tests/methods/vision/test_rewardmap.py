"""RewardMap: rewards of the paper by hand, what its weights do to advantages, and the stages of its recipe."""

from collections import Counter

import pytest
import torch
from hydra.utils import instantiate
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.types import Context, Episode, Prompt, Sampling
from mmrl.methods.vision.rewardmap import DifficultyAwareReward, difficulty_weight
from tasks.mixture.task import Mixture
from tasks.transit import Transit
from tasks.transit.network import Network
from tasks.transit.verify import full_points, verify_route
from tests.composed_words import compose_words
from tests.curricula.test_prioritised import at

CTX = Context(None, None, None, Sampling(), seed=0, iteration=0, group_size=4)
PAPER = DifficultyAwareReward({"exact": 10.0, "points": 0.5})
NETWORK = Network(
    (("red", "ABC"), ("blue", "CDE")),
    (("A", (0, 0)), ("B", (0, 1)), ("C", (0, 2)), ("D", (1, 2)), ("E", (2, 2))),
)


def reward(level: str, origin: str, target: str, text: str) -> float:
    reference = NETWORK.route(origin, target)
    info = {"task": level, "transfers": len(reference) - 1, "detail_points": full_points(reference, NETWORK)}
    scores = verify_route(text, NETWORK, origin, target, len(reference))
    episode = Episode(Prompt("p", info=info), 0, 0, scores=scores)
    episode.scores |= PAPER.scores([episode])[0]
    return PAPER([episode])[0]


@pytest.mark.parametrize(
    ("level", "ends", "text", "expected"),
    [
        ("easy", "AC", "red A C", 13.0),  # 1 (10 + (2 + 4) / 2)
        ("middle", "AC", "red A C", 15.6),  # 1.2 times as much
        ("hard", "AD", "red A D", 2.0),  # wrong, right ends: (1.5 + .5) 2 / 2
        ("hard", "AD", "red A C, blue C D", 29.0),  # 2 (10 + (2 + 3 + 3 + 1) / 2)
        ("hard", "AD", "red A C", 3.0),  # one right leg, the wrong end: 2 * 3 / 2
        ("easy", "AD", "red A B, red B C, blue C D", 1.5 * (10 + (2 + 9 + 1 - 5) / 2)),  # a leg more than needed
        ("hard", "AD", "A to D", 0.0),
    ],
)
def test_rewards_by_hand(level, ends, text, expected):
    assert reward(level, *ends, text) == pytest.approx(expected)


def test_weights_by_hand_and_questions_that_are_no_routes():
    assert [difficulty_weight(w, transfers) for w, transfers in ((1, 0), (1.2, 1), (1.5, 3))] == [1, 1.7, 2]
    prompt = Prompt("p", info={"task": "hard", "transfers": 0, "detail_points": 0.0})
    episode = Episode(prompt, 0, 0, scores={"exact": 1.0, "format": 1.0})
    assert PAPER.scores([episode]) == [{"points": 0.0}]
    episode.scores["points"] = 0.0
    assert PAPER([episode]) == [15.0]


def test_the_weight_of_a_problem_is_that_of_its_advantages():
    """Rewards 13, 0, 0, 0 of an easy map and 19.5 of a hard one: the mean is a quarter, and nothing divides by it."""
    data = compose_words(("recipe=rewardmap",)).data
    earned = [13, 0, 0, 0, 19.5, 0, 0, 0]
    batch = Batch(
        action_mask=torch.ones(8, 1).bool(),
        episode_reward=torch.tensor(earned),
        group=torch.arange(8) // 4,
        episode=torch.arange(8),
    )
    out = instantiate(data.annotators.group_advantage)(batch, CTX)["advantages"][:, 0]
    assert_close(out, torch.tensor([9.75, -3.25, -3.25, -3.25, 14.625, -4.875, -4.875, -4.875]))
    divided = instantiate(data.annotators.group_advantage, scale="std", epsilon=0)(batch, CTX)["advantages"][:, 0]
    assert_close(divided[:4], divided[4:])  # as with the paper's GRPO


def test_the_recipe_asks_yes_no_questions_then_counts_then_routes():
    data = compose_words(("recipe=rewardmap",)).data
    curriculum, task = instantiate(data.curriculum), instantiate(data.task, _convert_="all")
    kinds = [
        Counter(task[index].info["kind"] for index in curriculum.select(4, at(iteration, task)))
        for iteration in (0, 3, 4, 9, 10, 39)
    ]
    assert kinds == [{"on_line": 4}, {"on_line": 4}, {"count": 4}, {"count": 4}, {"route": 4}, {"route": 4}]
    built = instantiate(data.reward)
    built.check_task(task)
    assert set(built.map_weights) == set(task.parts)


def test_maps_without_a_level_are_refused():
    with pytest.raises(ValueError, match="'transit' have no info 'task'"):
        PAPER.check_task(Transit())
    info = {"task": "huge", "transfers": 0, "detail_points": 0.0}
    with pytest.raises(ValueError, match="map_weights has no 'huge'"):
        PAPER([Episode(Prompt("p", info=info), 0, 0, scores={"exact": 1.0, "points": 0.0})])
    parts = {"easy": Transit(count=4), "middle": Transit(count=4, seed=1)}
    PAPER.check_task(Mixture(parts))
