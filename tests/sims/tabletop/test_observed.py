"""What observations show: only the kinds asked for, drawn only then, in looks that are functions of the seed."""

import numpy as np
import pytest

from mmrl.files.contract import differences
from sims.render.base import FAR_M
from sims.tabletop import Reach
from sims.tabletop.appearance import Appearance

LOOKS = Appearance(camera_m=0.05, camera_deg=4, light_deg=30, light=0.3, surface=1.0, thing=0.1, background="waves")


def actions(count, k):
    return np.random.default_rng(k).uniform(-1, 1, (count, 5, 3))


def test_nothing_is_drawn_for_a_policy_that_reads_the_state():
    blind, seeing = (Reach(image_size=16, observe=kinds).make(4) for kinds in ((), ("rgb",)))

    def refuse(*given, **more):
        raise AssertionError("drawn")

    blind.renderer.views = refuse
    (first, _), (other, _) = blind.reset(seed=[1, 2, 3, 4]), seeing.reset(seed=[1, 2, 3, 4])
    assert set(first) == {"proprio", "instruction"} and set(other) == set(first) | {"image"}
    np.testing.assert_array_equal(blind.step(actions(4, 0))[0]["proprio"], seeing.step(actions(4, 0))[0]["proprio"])


def test_images_are_drawn_once_a_decision():
    env, drawn = Reach(image_size=16).make(2), []
    views = env.renderer.views
    env.renderer.views = lambda batch, ids, *more: drawn.append(len(ids)) or views(batch, ids, *more)
    env.reset(seed=[1, 1])
    env.step(np.zeros((2, 5, 3)))
    assert drawn == [1, 2]  # equal seeds share the first image; five control steps, one frame


def test_depth_and_segments_are_observed():
    env = Reach(image_size=16, observe=("rgb", "depth", "segmentation")).make(2)
    observation, _ = env.reset(seed=[1, 2])
    for name in ("image", "depth", "segmentation"):
        assert env.observation_space[name].contains(observation[name])
    assert 0.5 < observation["depth"].min() < observation["depth"].max() <= FAR_M
    assert (observation["segmentation"] == env.physics.model.geom("table").id).any()
    with pytest.raises(ValueError, match=r"sim.observe: unknown \['infrared'\]"):
        Reach(observe=("infrared",))


def test_looks_follow_from_the_seed_and_are_saved():
    plain, env, other = (Reach(image_size=16, appearance=a).make(4) for a in (None, LOOKS, LOOKS))
    first, _ = env.reset(seed=[5, 6, 5, 7])
    again, _ = other.reset(seed=[7, 5, 6, 6])
    np.testing.assert_array_equal(first["image"][[3, 0, 1]], again["image"][:3])
    np.testing.assert_array_equal(first["image"][0], first["image"][2])
    bare, _ = plain.reset(seed=[5, 6, 5, 7])
    assert (bare["image"] != first["image"]).any(axis=(1, 2, 3)).all()
    np.testing.assert_array_equal(bare["proprio"], first["proprio"])  # looks move nothing
    assert bare["instruction"] == first["instruction"]
    saved = env.state_dict()
    other.load_state_dict(saved)
    one, two = env.step(actions(4, 1))[0], other.step(actions(4, 1))[0]
    np.testing.assert_array_equal(one["image"], two["image"])
    np.testing.assert_array_equal(env.render(1, 32), other.render(1, 32))


def test_what_is_seen_is_part_of_the_contract():
    sim = Reach(appearance={"camera_m": 0.1})  # as a config writes it
    assert sim.appearance == Appearance(camera_m=0.1)
    assert "appearance: null in training" in differences(Reach().contract(), sim.contract())[0]
    (line,) = differences(Reach().contract(), Reach(observe=("rgb", "depth")).contract())
    assert line.startswith("observe: ")
