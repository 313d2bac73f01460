"""BabyAI's bot as the expert of its levels."""

import numpy as np
import pytest

from sims.task import SimTask
from tests.sims.workers.solving import solve

pytest.importorskip("minigrid")
from sims.gym.minigrid import MiniGridSim


@pytest.mark.parametrize("level", ["GoToRedBall", "PickupLoc", "Open"])
def test_the_bot_completes_missions(level):
    success, _ = solve(SimTask(MiniGridSim(f"BabyAI-{level}-v0"), split="held_out"), 5)
    assert success.all()


def test_the_bot_takes_back_what_was_done_instead_of_its_proposal():
    """It turns back after a turn that it did not propose."""
    sim = MiniGridSim("BabyAI-GoToRedBall-v0")
    env = sim.make(1)
    env.reset(seed=[3])
    forward = np.full((1, 1, 1), 2 * 2.5 / 7 - 1, np.float32)  # action 2 of 7
    steps, over = 0, False
    while not over:
        action = sim.expert(env)
        wrong = steps % 3 == 2 and action == forward
        _, _, terminated, truncated, infos = env.step(forward - 4 / 7 if wrong else action)  # left instead
        steps, over = steps + 1, bool(terminated[0] or truncated[0])
    env.close()
    assert infos["scores"]["success"][0] == 1


def test_demonstrations_are_those_of_the_bot():
    (demo,) = MiniGridSim("BabyAI-GoToRedBall-v0", chunk=2).demonstrate([2])
    numbers = np.stack([chunk for _, chunk in demo]) * 7 / 2 + 3  # intervals of [-1, 1], counted from their middles
    assert numbers.shape == (len(demo), 2, 1) and np.allclose(numbers, np.round(numbers), atol=1e-5)
    assert set(np.round(numbers).ravel()) <= {0, 1, 2}  # turn left, turn right, forward


def test_levels_without_a_bot_say_so():
    sim = MiniGridSim("MiniGrid-Empty-5x5-v0")
    assert not hasattr(sim, "expert")
    with pytest.raises(ValueError, match=r"sim.id='MiniGrid-Empty-5x5-v0': BabyAI's levels alone have an expert"):
        sim.demonstrate([0])
