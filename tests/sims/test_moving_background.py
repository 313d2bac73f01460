"""Point and disc in pictures: rewards by hand, and a background that says nothing about them."""

import numpy as np
import pytest

from sims.point.moving_background import PictureReach, sample_texture


def test_rewards_and_scores_by_hand():
    """From (0.6, 0.8) a push of (-1, -9) moves by (-0.5, -0.5) to (0.1, 0.3): 0.316 m from the middle."""
    env = PictureReach(steps=2, speed=0.5).make(1)
    env.reset(seed=[0])
    env._places[0, 1] = [0.6, 0.8]
    seen, reward, ended, cut, info = env.step(np.array([[-1.0, -9.0]]))
    assert set(seen) == {"image"} and seen["image"].shape == (1, 20, 20, 3) and seen["image"].dtype == np.uint8
    assert reward[0] == pytest.approx(-np.hypot(0.1, 0.3)) and not ended[0] and not cut[0]
    assert info["scores"]["success"][0] == 0 and info["scores"]["distance_m"][0] == pytest.approx(-reward[0])
    _, reward, ended, cut, info = env.step(np.array([[-0.2, -0.6]]))
    assert reward[0] == pytest.approx(0) and info["scores"]["success"][0] == 1 and cut[0] and not ended[0]
    again = env.step(np.array([[1.0, 1.0]]))
    assert again[1][0] == pytest.approx(0)  # it keeps still


def test_backgrounds_differ_and_nothing_else():
    plain, moving = (PictureReach(background=name).make(3) for name in ("plain", "moving"))
    first, other = (env.reset(seed=[1, 2, 3])[0]["image"] for env in (plain, moving))
    assert (plain._places == moving._places).all()
    for _ in range(3):
        push = np.full((3, 2), 0.3)
        after, other_after = plain.step(push), moving.step(push)
        assert (after[1] == other_after[1]).all()
    # the point, 250 in all colours, is seen before every background
    for picture in (after[0]["image"], other_after[0]["image"]):
        assert (picture.min(-1).reshape(3, -1).max(1) > 200).all()
    assert first.std() < other.std()
    assert moving._texture[..., 0].max() < 60 < moving._texture[..., 1].max()  # bright red is the disc alone
    assert (moving._texture[0] != moving._texture[1]).any() and (moving._drift[0] != moving._drift[1]).any()


def test_a_texture_moves_and_comes_back():
    tiles = np.random.default_rng(0).uniform(0, 255, (1, 6, 6, 3)).astype(np.float32)
    still = sample_texture(tiles, np.zeros((1, 2)), 12)
    assert (still[0, ::2, ::2] == tiles[0]).all()  # two pixels a tile
    assert still[0, 0, 1] == pytest.approx((tiles[0, 0, 0] + tiles[0, 0, 1]) / 2)
    moved = sample_texture(tiles, np.array([[1.0, 2.0]]), 12)
    assert moved[0, 0, 0] == pytest.approx(tiles[0, 2, 1])  # x to the right, y down
    assert sample_texture(tiles, np.array([[6.0, 6.0]]), 12) == pytest.approx(still)


def test_seeds_resets_and_saved_states():
    env = PictureReach(background="moving", centred=False).make(3)
    first, _ = env.reset(seed=[5, 6, 5])
    assert (first["image"][0] == first["image"][2]).all() and (first["image"][0] != first["image"][1]).any()
    assert np.abs(env._places[:, 0]).max() <= 0.75 and (env._places[0, 0] != 0).all()
    env.step(np.ones((3, 2)))
    again, _ = env.reset(seed=[0, 6, 0], options={"reset_mask": np.array([False, True, False])})
    assert (again["image"][1] == first["image"][1]).all() and (again["image"][0] != first["image"][0]).any()
    other = PictureReach(background="moving", centred=False).make(3)
    other.load_state_dict(env.state_dict())
    for one, two in zip(env.step(np.ones((3, 2)))[:4], other.step(np.ones((3, 2)))[:4]):
        assert np.array_equal(one["image"], two["image"]) if isinstance(one, dict) else (one == two).all()


def test_refusals():
    with pytest.raises(ValueError, match=r"sim\.background must be plain or moving"):
        PictureReach(background="snow")
    with pytest.raises(ValueError, match=r"sim\.image_size must be at least 8"):
        PictureReach(image_size=4)
