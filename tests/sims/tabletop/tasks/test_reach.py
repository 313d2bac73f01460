"""The reach environment: seeds, independence of environments, endings, saved state."""

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from sims.tabletop import Reach, expert
from sims.tabletop.arm import HOME
from sims.tabletop.layout import APART_M
from sims.tabletop.task import Start
from sims.tabletop.tasks.reach import above
from sims.tabletop.things import Cube
from sims.tabletop.worlds import TabletopPhysics
from sims.task import SimTask

SIZE = 24  # pixels; small, because these tests are not about images


def make(count, **options):
    return Reach(image_size=SIZE, **options).make(count)


def random_actions(count, seed=0, chunk=5):
    return np.random.default_rng(seed).uniform(-1, 1, (count, chunk, 3)).astype(np.float32)


def same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(np.asarray(a[name]), np.asarray(b[name]))


def test_an_env_depends_on_its_seed_only():
    """World i among eight, reordered, alone, or on another number of threads: the same bits."""
    seeds = [7, 11, 2**60 + 5, 3, 9, 42, 1, 8]
    actions = [random_actions(8, k) for k in range(3)]

    def play(order, threads):
        env = make(len(order), threads=threads)
        observations = [env.reset(seed=[seeds[i] for i in order])[0]]
        observations += [env.step(action[list(order)])[0] for action in actions]
        return observations

    together = play(range(8), threads=1)
    for order, threads in ((range(8), 2), (range(8)[::-1], 1), ([4], 1), ([2, 5], 2)):
        for one, other in zip(together, play(order, threads)):
            same({name: np.asarray(rows)[list(order)] for name, rows in one.items()}, other)


def test_seeds_differ():
    env = make(2)
    observation, _ = env.reset(seed=[1, 2])
    assert (observation["proprio"][0] != observation["proprio"][1]).any()
    assert (env.physics.objects[0] != env.physics.objects[1]).any()


def test_splits_start_differently():
    task = SimTask(Reach(image_size=SIZE), count=64)
    env = task.sim.make(64)
    places = []
    for split in ("train", "held_out"):
        env.reset(seed=[task.on(split)[i].info["seed"] for i in range(64)])
        places.append({tuple(place) for place in env.physics.objects.reshape(64, -1)})
    assert len(places[0]) == len(places[1]) == 64
    assert not places[0] & places[1]


def test_start_is_as_described():
    env = make(64)
    observation, _ = env.reset(seed=list(range(64)))
    assert env.observation_space["image"].contains(observation["image"])
    assert env.metadata["autoreset_mode"] is AutoresetMode.DISABLED
    np.testing.assert_allclose(env.physics.tip, np.tile([0.42, 0, 0.25], (64, 1)), atol=0.09)
    np.testing.assert_array_equal(env.physics.setpoint, env.physics.tip)
    assert np.abs(observation["proprio"][:, 6:]).max() <= 0.05  # joint noise, rad
    gaps = np.linalg.norm(env.physics.objects[:, :, None] - env.physics.objects[:, None], axis=3)
    assert gaps[:, ~np.eye(3, dtype=bool)].min() >= APART_M
    named = [text.split()[2] for text in observation["instruction"]]
    assert named == [("red", "green", "blue")[goal] for goal in env.table.named[:, 0]]
    assert set(named) == {"red", "green", "blue"}


@pytest.mark.parametrize(
    "colours", [("red", "green", "blue"), ("yellow", "purple"), ("red", "cyan", "orange", "black")]
)
def test_the_expert_always_succeeds(colours):
    env = make(64, colours=colours)
    env.reset(seed=list(range(1000, 1064)))
    total = np.zeros(64)
    while env.live.any():
        _, reward, terminated, truncated, infos = env.step(expert(env))
        total += reward
    assert infos["scores"]["success"].sum() == 64
    assert infos["scores"]["wrong_object"].sum() == 0
    np.testing.assert_array_equal(total, 1)
    assert terminated.all() and not truncated.any()


def test_a_wrong_object_ends_the_episode_unpaid():
    env = make(16)
    env.reset(seed=list(range(16)))
    named = env.table.named[:, 0].copy()
    env.table.named[:, 0] = (named + 1) % 3  # the expert is told another cube than the instruction
    while env.live.any():
        actions = expert(env)
        wrong, env.table.named[:, 0] = env.table.named[:, 0].copy(), named
        _, reward, terminated, _, infos = env.step(actions)
        env.table.named[:, 0] = wrong
        assert not reward.any()
    assert infos["scores"]["wrong_object"].all() and terminated.all()
    assert not infos["scores"]["success"].any()


def test_ended_envs_keep_still_and_chunks_stop_inside():
    env = make(8)
    env.reset(seed=list(range(8)))
    ended = np.zeros(8, bool)
    while env.live.any():
        before, state = env._observation(), env.physics.batch.state.copy()
        observation, reward, terminated, truncated, infos = env.step(expert(env))
        np.testing.assert_array_equal(env.physics.batch.state[ended], state[ended])
        for name in ("image", "proprio"):
            np.testing.assert_array_equal(observation[name][ended], before[name][ended])
        assert not infos["executed"][ended].any() and not reward[ended].any()
        assert (terminated | truncated)[ended].all()
        new = terminated & ~ended
        # time in the simulator counts the control steps: 10 substeps of 5 ms each
        passed = np.rint((env.physics.batch.time - state[:, 0]) / 0.05)
        np.testing.assert_array_equal(passed, infos["executed"])
        tip = np.linalg.norm(above(env.physics.objects[np.arange(8), env.table.named[:, 0]]) - env.physics.tip, axis=1)
        assert (tip[new] <= 0.05).all() and (tip[~terminated] > 0.05).all()
        ended |= terminated | truncated


def test_time_runs_out():
    env = make(3, max_decisions=2)
    first, _ = env.reset(seed=[1, 2, 3])
    still = np.zeros((3, 5, 3), np.float32)
    _, _, terminated, truncated, _ = env.step(still)
    assert not truncated.any()
    up = still.copy()
    up[:, :, 2] = 1
    last, _, terminated, truncated, infos = env.step(up)
    assert truncated.all() and not terminated.any() and not infos["error"].any()
    assert (last["image"] != first["image"]).any(axis=(1, 2, 3)).all()  # the final state is drawn, for its value


def test_saved_state_goes_on_bit_for_bit():
    env, other = make(8), make(8)
    env.reset(seed=list(range(8)))
    env.step(expert(env))
    env.step(random_actions(8))
    saved = env.state_dict()
    assert all(isinstance(v, (torch.Tensor, list)) for v in saved.values())
    other.reset(seed=[5] * 8)
    other.load_state_dict(saved)
    same(env._observation(), other._observation())
    for k in range(2):
        (a, *flags_a, infos_a), (b, *flags_b, infos_b) = (e.step(random_actions(8, k)) for e in (env, other))
        same(a, b)
        np.testing.assert_array_equal(flags_a, flags_b)
        np.testing.assert_array_equal(infos_a["executed"], infos_b["executed"])
    same(*({k: v for k, v in e.state_dict().items()} for e in (env, other)))


def test_a_part_of_the_envs_can_begin_anew():
    env = make(3)
    env.reset(seed=[1, 2, 3])
    env.step(random_actions(3))
    before = env._observation()
    after, _ = env.reset(seed=[9, 9, 9], options={"reset_mask": np.array([False, True, False])})
    fresh, _ = make(1).reset(seed=[9])
    same({k: np.asarray(v)[[1]] for k, v in after.items()}, fresh)
    same(*({k: np.asarray(v)[[0, 2]] for k, v in o.items()} for o in (before, after)))


def test_divergence_ends_one_env_with_an_error():
    env = make(3)
    env.reset(seed=[1, 2, 3])
    env.physics.batch.bind("qvel")[1, 0] = np.nan
    _, reward, terminated, truncated, infos = env.step(random_actions(3))
    assert infos["error"].tolist() == [False, True, False]
    assert truncated.tolist() == [False, True, False] and not terminated.any() and not reward.any()
    env.reset(seed=[1, 2, 3])
    clean = make(3)
    clean.reset(seed=[1, 2, 3])
    same(env.step(random_actions(3))[0], clean.step(random_actions(3))[0])


def test_the_arm_follows_its_set_point():
    env = make(1, max_decisions=20)
    env.reset(seed=[0])
    action = np.zeros((1, 5, 3), np.float32)
    env.table.named[:, 0] = 0
    env.physics.batch.bind("mocap_pos")[:, :, 0] = 5.0  # cubes out of the way
    for direction in ((1, 1, -1), (0, 0, 0), (0, 0, 0)):
        action[:] = direction
        env.step(action)
    moved = env.physics.setpoint[0] - env.physics.tip[0]
    assert np.abs(moved).max() < 0.003  # metres, at rest
    upright = env.physics.kinematics.batch.bind("site_xmat")[0, 0].reshape(3, 3)[:, 2]
    np.testing.assert_allclose(upright, [0, 0, -1], atol=0.05)


def test_solid_cubes_rest_on_the_table():
    """The scene serves tasks with contact too: a cube set down stays, one in the air falls on the table."""
    physics = TabletopPhysics(
        [Cube("mark", "green"), Cube("low", "red", ghost=False), Cube("high", "blue", ghost=False)], 2, 1
    )
    places = np.array([[0.5, 0.2, 0.03], [0.4, -0.1, 0.03], [0.5, 0.0, 0.1]])
    physics.place(np.arange(2), [Start(places, np.zeros(7), (0,), "")] * 2)
    np.testing.assert_array_equal(physics.objects, np.stack([places] * 2))
    for _ in range(20):  # one second
        assert not physics.control(np.arange(2), np.zeros((2, 3))).any()
    rest = places.copy()
    rest[2, 2] = 0.03
    np.testing.assert_allclose(physics.objects, np.stack([rest] * 2), atol=1e-3)
    np.testing.assert_array_equal(physics.objects[:, 0], [places[0]] * 2)


def test_refusals():
    for options, word in (
        ({"colours": ("red",)}, "at least two"),
        ({"colours": ("red", "pink")}, "pink"),
        ({"templates": ("reach it",)}, "templates"),
        ({"chunk": 0}, "chunk"),
        ({"radius_m": 0.1}, "radius_m"),
    ):
        with pytest.raises(ValueError, match=word):
            Reach(**options)
    env = make(2)
    with pytest.raises(RuntimeError, match="reset"):
        env.step(random_actions(2))
    with pytest.raises(ValueError, match="one seed per environment"):
        env.reset(seed=[1])
    env.reset(seed=[1, 2])
    with pytest.raises(ValueError, match="actions must be"):
        env.step(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="not finite"):
        env.step(np.full((2, 5, 3), np.nan))
    with pytest.raises(ValueError, match="do not fit"):
        make(1, colours=("red", "green", "blue", "yellow", "purple", "orange", "cyan", "black")).reset(seed=[0])


def test_home_is_home():
    assert HOME.shape == (7,)
    np.testing.assert_allclose(HOME[[1, 3, 5]].sum(), np.pi, atol=1e-3)  # the three pitches add up to straight down
