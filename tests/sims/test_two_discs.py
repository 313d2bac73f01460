"""The point and two discs: rewards and pictures by hand, time, seeds, and the script of its log."""

import numpy as np
import pytest

from sims.point.discs import TwoDiscs, draw_places, paint

SIM = TwoDiscs(steps=3, speed=0.5, radius_m=0.25)


def test_rewards_and_scores_by_hand():
    """From (0, 0) a push of (1, -9) moves by (0.5, -0.5); the red disc at (0.5, 0.1) is then 0.6 m away."""
    env = SIM.make(1)
    env.reset(seed=[0])
    env.load_state_dict({**env.state_dict(), "places": env.state_dict()["places"] * 0})
    env._places[0] = [[0, 0], [0.5, 0.1], [-0.5, 0]]
    seen, reward, ended, cut, info = env.step(np.array([[1.0, -9.0]]))
    assert seen["state"][0] == pytest.approx([0.5, -0.5, 0.5, 0.1, -0.5, 0]) and seen["state"].dtype == np.float32
    assert reward[0] == pytest.approx(-0.6) and info["scores"]["distance_m"][0] == pytest.approx(0.6)
    assert not ended[0] and not cut[0] and info["scores"]["success"][0] == 0
    _, reward, *_, info = env.step(np.array([[0.0, 0.9]]))
    assert reward[0] == pytest.approx(-0.15) and info["scores"]["success"][0] == 1
    last = env.step(np.array([[0.0, 0.0]]))
    still = env.step(np.array([[1.0, 1.0]]))
    assert last[3][0] and still[3][0] and (last[0]["state"] == still[0]["state"]).all()
    assert TwoDiscs("blue").make(2).reset(seed=[1, 2])[0]["instruction"][1] == "move the white point onto the blue disc"


def test_a_seed_has_one_start_and_discs_do_not_touch():
    env = SIM.make(3)
    seen, _ = env.reset(seed=[5, 6, 5])
    assert (seen["state"][0] == seen["state"][2]).all() and (seen["state"][0] != seen["state"][1]).any()
    env.step(np.ones((3, 2)))
    again, _ = env.reset(seed=[0, 6, 0], options={"reset_mask": np.array([False, True, False])})
    assert (again["state"][1] == seen["state"][1]).all() and (again["state"][0] != seen["state"][0]).any()
    for seed in range(50):
        _, red, blue = draw_places(np.random.default_rng(seed), 0.25)
        assert np.linalg.norm(red - blue) > 0.5 and max(abs(red).max(), abs(blue).max()) <= 0.75


def test_pictures_by_hand():
    """On 8 pixels of 0.25 m the middle of a disc at (-0.375, 0.375) is the pixel of row 2 and column 2."""
    image = paint(np.array([[[-0.375, 0.375], [0.625, -0.625], [5.0, 5.0]]]), (0.25, 0.25, 0.1), 8)[0]
    assert image.shape == (8, 8, 3) and image.dtype == np.uint8
    assert image[2, 2].tolist() == [210, 40, 40] and image[6, 6].tolist() == [40, 70, 210]
    assert image[0, 7].tolist() == [60, 70, 60] and not (image == 250).all(-1).any()
    over = paint(np.array([[[0.1, 0.1], [0.1, 0.1], [0.125, 0.125]]]), (0.5, 0.4, 0.2), 8)[0]
    assert over[3, 4].tolist() == [250, 250, 250]  # the point is on top


def test_the_log_visits_both_discs_and_other_places():
    sim = TwoDiscs()
    seeds = list(range(60))
    env, act = sim.make(60), sim.behavior(seeds, 0.0)
    seen, _ = env.reset(seed=seeds)
    for step in range(sim.steps):
        rows = [{"state": state} for state in seen["state"]]
        recorded, played = act(env, rows, np.ones(60, bool), step)
        assert (recorded == played).all() and np.abs(played).max() <= 1
        seen, *_ = env.step(played)
    at, red, blue = np.split(seen["state"], 3, axis=1)
    ends = [int((np.linalg.norm(at - disc, axis=1) < 0.01).sum()) for disc in (red, blue)]
    assert min(ends) > 10 and sum(ends) < 50
    noisy = sim.behavior(seeds, 0.5)(env, rows, np.ones(60, bool), 0)[1]
    again = sim.behavior(seeds, 0.5)(env, rows, np.ones(60, bool), 0)[1]
    assert (noisy == again).all() and (noisy != act(env, rows, np.ones(60, bool), 0)[1]).any()


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"image_size": 4}, {"speed": 0.0}, {"radius_m": 0.0}])
def test_numbers_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match=rf"sim\.{next(iter(wrong))}"):
        TwoDiscs(**wrong)
