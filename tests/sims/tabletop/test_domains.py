"""Domain randomisation: every range acts, draws are functions of the seed alone, and held-out domains are disjoint."""

from copy import copy
from dataclasses import fields

import mujoco
import numpy as np
import pytest
from omegaconf import OmegaConf

from mmrl.config.compose import CONF
from mmrl.files.contract import differences
from sims.render import PLAIN
from sims.tabletop import Suite, expert
from sims.tabletop.domains import Domain
from sims.tabletop.randomised import RandomisedTabletop
from sims.tabletop.things import COLOURS
from sims.task import SimTask

LOOKS = {
    "camera_m": (0.05, 0.08),
    "camera_deg": (3.0, 5.0),
    "light_deg": (20.0, 40.0),
    "light": (0.4, 0.6),
    "surface": (0.2, 0.4),
    "thing": (0.08, 0.12),
    "background": ("waves",),
}
DYNAMICS = {"mass": (6.0, 12.0), "friction": (2.0, 4.0), "gains": (0.3, 0.5)}
ALL = Domain(**LOOKS, **DYNAMICS)
SEEDS = [2 * k for k in range(6)]  # even: training states


def build(train=None, **options):
    return RandomisedTabletop(tasks=("push",), level="easy", image_size=24, threads=1, train=train, **options)


def actions(env, k=0):
    return np.random.default_rng(k).uniform(-1, 1, (env.num_envs, env.chunk, env.action_dims))


def cube_in_sight(train, count=2):
    """Environments, a cube's body, and the addresses of its pose and velocity."""
    env = build(train, observe=()).make(count)
    env.reset(seed=SEEDS[:count])
    model = env.physics.model
    body = model.body(env.task.things[0].name)
    return env, body.id, int(model.jnt_qposadr[body.jntadr[0]]), int(model.jnt_dofadr[body.jntadr[0]])


def test_without_domains_nothing_changes():
    """Bit for bit the suite of the same task, and without images of another look."""
    plain, same = Suite(tasks=("push",), level="easy", image_size=24, threads=1), build()
    first, second = plain.make(4), same.make(4)
    for a, b in zip(
        (first.reset(seed=SEEDS[:4])[0], first.step(actions(first))[0]),
        (second.reset(seed=SEEDS[:4])[0], second.step(actions(second))[0]),
    ):
        np.testing.assert_array_equal(a["image"], b["image"])
        np.testing.assert_array_equal(a["proprio"], b["proprio"])


@pytest.mark.parametrize("knob", LOOKS)
def test_every_range_of_the_look_changes_the_image_and_moves_nothing(knob):
    plain, env = build().make(6), build({knob: LOOKS[knob]}).make(6)
    (bare, _), (seen, _) = plain.reset(seed=SEEDS), env.reset(seed=SEEDS)
    assert (bare["image"] != seen["image"]).any(axis=(1, 2, 3)).all()
    assert bare["instruction"] == seen["instruction"]
    np.testing.assert_array_equal(plain.step(actions(plain))[0]["proprio"], env.step(actions(env))[0]["proprio"])


def test_mass_is_what_a_force_has_to_accelerate():
    """3 N on a cube of 0.1 kg in the air for 10 ms: F / m t = 0.3 m/s; 0.15 m/s with twice the mass."""
    for factor, speed in ((1.0, 0.3), (2.0, 0.15)):
        env, body, pose, dof = cube_in_sight({"mass": (factor, factor)})
        batch = env.physics.batch
        batch.bind("qpos")[:, pose + 2] = 0.3
        batch.bind("xfrc_applied")[:, body, 0] = 3.0
        batch.step(None, nstep=1)
        np.testing.assert_allclose(batch.bind("qvel")[:, dof], speed, rtol=1e-6)


def test_friction_is_what_a_force_has_to_overcome():
    """0.8 * 0.1 kg * 9.81 = 0.785 N hold a cube against 0.6 N; half of that does not.

    In 0.2 s it slides (6 - 3.92) 0.2^2 / 2 = 41.5 mm. Soft contacts let a cube that is held creep by less than 1 mm.
    """
    ways = []
    for factor in (1.0, 0.5):
        env, body, pose, _ = cube_in_sight({"friction": (factor, factor)})
        batch = env.physics.batch
        batch.step(None, nstep=20)  # it settles
        before = batch.bind("qpos")[:, pose].copy()
        batch.bind("xfrc_applied")[:, body, 0] = 0.6
        batch.step(None, nstep=20)
        ways.append(batch.bind("qpos")[:, pose] - before)
    assert (ways[0] < 0.001).all()
    np.testing.assert_allclose(ways[1], 0.0415, rtol=0.1)


def test_gains_are_those_of_a_model_with_other_servos():
    """MuJoCo itself, with a model whose first seven servos are written with half the gains."""
    speeds = {}
    for factor in (1.0, 0.5):
        env, *_ = cube_in_sight({"gains": (factor, factor)})
        batch, model = env.physics.batch, copy(env.physics.model)
        model.actuator_gainprm[:7] *= factor
        model.actuator_biasprm[:7] *= factor
        data = mujoco.MjData(model)
        for name in ("qpos", "qvel", "mocap_pos", "mocap_quat"):
            getattr(data, name)[:] = batch.bind(name)[0]
        data.ctrl[:] = batch.bind("ctrl")[0]
        data.ctrl[:7] += 0.1
        batch.bind("ctrl")[:, :7] += 0.1
        batch.step(None, nstep=3)
        mujoco.mj_step(model, data, 3)
        np.testing.assert_allclose(batch.bind("qvel")[0, :7], data.qvel[:7], rtol=1e-9)
        speeds[factor] = data.qvel[:7].copy()
    assert (np.abs(speeds[1.0] - speeds[0.5]) > 0.01).any()


def test_draws_follow_from_the_seed_alone():
    """The same seed draws the same in any place, beside any neighbours, after any other episode."""
    env, other = build(ALL).make(4), build(ALL).make(2)
    first, _ = env.reset(seed=[0, 2, 4, 6])
    other.reset(seed=[10, 12])
    again, _ = other.reset(seed=[4, 0])
    np.testing.assert_array_equal(first["image"][[2, 0]], again["image"])
    factors = env.physics.dynamics.factors
    np.testing.assert_array_equal(factors[[2, 0]], other.physics.dynamics.factors)
    one, two = env.step(actions(env))[0], other.step(actions(env)[[2, 0]])[0]
    np.testing.assert_array_equal(one["proprio"][[2, 0]], two["proprio"])
    np.testing.assert_array_equal(one["image"][[2, 0]], two["image"])


def test_environments_draw_independently():
    """400 states: no two draw the same, and the ranks of what is drawn are uncorrelated.

    The correlation of independent draws has standard deviation 0.05; a value of five of them has probability 6e-7.
    """
    sim = build(Domain(camera_m=(0.0, 0.1), mass=(0.5, 2.0), friction=(0.5, 2.0), gains=(0.5, 2.0), light=(0.5, 1.5)))
    starts = [sim.start(2 * k)[1] for k in range(400)]
    drawn = np.array([[*s.dynamics, *s.appearance.bright, np.linalg.norm(s.appearance.shift)] for s in starts])
    assert all(len(set(column)) == 400 for column in drawn.T)
    ranks = drawn.argsort(axis=0).argsort(axis=0)
    assert np.abs(np.corrcoef(ranks.T) - np.eye(6)).max() < 0.25
    assert np.abs([np.corrcoef(ranks[1:, k], ranks[:-1, k])[0, 1] for k in range(6)]).max() < 0.25
    # log-uniform: factors are above 1 as often as below
    assert np.abs((drawn[:, :3] > 1).mean(axis=0) - 0.5).max() < 0.125


def test_draws_are_within_the_ranges():
    things = build().parts[0].task.things
    for seed in range(0, 200, 2):
        look = ALL.look(seed, things)
        assert 0.05 <= np.linalg.norm(look.shift) <= 0.08
        assert 3 <= np.rad2deg(np.hypot(look.yaw, look.pitch)) <= 5
        angle = np.rad2deg(np.arccos(look.towards_lamp @ PLAIN.towards_lamp))
        assert 20 - 1e-6 <= angle <= 40 + 1e-6
        assert all(0.4 <= factor <= 0.6 for factor in look.bright)
        for name in ("table", "floor"):
            assert 0.2 - 1e-9 <= np.mean(look.colours[name]) <= 0.4 + 1e-9
        for thing in things:
            changed = np.abs(np.subtract(look.colours[thing.name], COLOURS[thing.colour]))
            assert (changed > 0.08 - 1e-9).all() and (changed < 0.12 + 1e-9).all()
            assert min(look.colours[thing.name]) >= 0 and max(look.colours[thing.name]) <= 1
        factors = ALL.dynamics(seed, (1.0, 1.0, 1.0))
        assert all(low <= factor <= high for factor, (low, high) in zip(factors, DYNAMICS.values()))


def test_a_range_draws_the_same_beside_others():
    things = build().parts[0].task.things
    look, camera, light = (
        domain.look(8, things) for domain in (ALL, Domain(camera_m=(0.05, 0.08)), Domain(light=(0.4, 0.6)))
    )
    assert camera.shift == look.shift and light.bright == look.bright
    assert Domain(friction=(2.0, 4.0)).dynamics(8, (1, 1, 1)) == (1, ALL.dynamics(8, (1, 1, 1))[1], 1)


def test_a_resumed_run_goes_on_bit_for_bit():
    env, other = build(ALL).make(4), build(ALL).make(4)
    env.reset(seed=[0, 2, 4, 6])
    env.step(actions(env, 1))
    other.load_state_dict(env.state_dict())  # into environments that never began
    for k in range(2, 4):
        one, two = env.step(actions(env, k))[0], other.step(actions(env, k))[0]
        np.testing.assert_array_equal(one["image"], two["image"])
        np.testing.assert_array_equal(one["proprio"], two["proprio"])
    np.testing.assert_array_equal(env.render(1, 32), other.render(1, 32))


def test_the_two_splits_have_domains_of_their_own():
    held_out = {"nominal": None, "cameras": {"camera_m": (0.06, 0.09)}, "masses": {"mass": (6.0, 12.0)}}
    sim = build(Domain(camera_m=(0.0, 0.04), mass=(0.5, 3.0)), held_out=held_out)
    task = SimTask(sim, count=300)
    trained = [sim.start(task[i].info["seed"])[1] for i in range(100)]
    assert {task[i].info["task"] for i in range(100)} == {"push"}
    assert max(np.linalg.norm(start.appearance.shift) for start in trained) <= 0.04
    assert max(start.dynamics[0] for start in trained) <= 3
    counts = {}
    for prompt in (task.on("held_out")[i] for i in range(300)):
        _, start = sim.start(prompt.info["seed"])
        name = prompt.info["task"]
        counts[name] = counts.get(name, 0) + 1
        shift = 0.0 if start.appearance is None else np.linalg.norm(start.appearance.shift)
        assert (shift >= 0.06) == (name == "push_cameras") and (start.dynamics[0] >= 6) == (name == "push_masses")
        assert (start.appearance is None and start.dynamics == (1, 1, 1)) == (name == "push_nominal")
    # a third each: 100 with a standard deviation of 8
    assert set(counts) == {"push_nominal", "push_cameras", "push_masses"} and min(counts.values()) > 67
    # the same states, whatever the domains are
    plain = build()
    for i in range(20):
        seed = task.on("held_out")[i].info["seed"]
        np.testing.assert_array_equal(sim.start(seed)[1].objects, plain.start(seed)[1].objects)


def test_held_out_domains_of_the_configuration_are_disjoint_from_training():
    """Every held-out domain but the nominal one is the scene with ranges that the training domain does not reach."""
    options = OmegaConf.load(CONF / "sim" / "randomisation" / "randomised.yaml")
    train = Domain(**options.train)
    for name, ranges in options.held_out.items():
        held_out = Domain(**ranges)
        for field in fields(Domain):
            mine, theirs = getattr(train, field.name), getattr(held_out, field.name)
            if theirs == field.default:
                continue
            assert name != "nominal"
            if field.name == "background":
                assert not set(mine) & set(theirs)
            else:
                assert theirs[0] > mine[1] or theirs[1] < mine[0], (name, field.name)
        assert name == "nominal" or held_out.contract()


def test_the_expert_masters_every_domain_of_the_configuration():
    """64 states of each; with a true rate of 97 % fewer than 56 successes have a probability below 0.1 %."""
    options = OmegaConf.load(CONF / "sim" / "randomisation" / "randomised.yaml")
    for ranges in (options.train, *options.held_out.values()):
        env = build(Domain(**ranges), observe=()).make(64)
        env.reset(seed=list(range(0, 128, 2)))
        while env.live.any():
            env.step(expert(env))
        assert env.scores["success"].sum() >= 56, ranges


def test_demonstrations_and_labelled_images_are_randomised():
    sim, plain = build(ALL), build()
    seen, bare = (each.label_images([2, 4])["image"] for each in (sim, plain))
    assert (seen != bare).any(axis=(1, 2, 3)).all()
    (demo,), (other,) = sim.demonstrate([2], noise=0.0), plain.demonstrate([2], noise=0.0)
    assert (demo[0][0]["image"] != other[0][0]["image"]).any()
    assert sim.stepwise().train == ALL and sim.stepwise().chunk == 1


def test_domains_are_part_of_the_contract():
    sim, held_out = build(), {"nominal": {}, "masses": {"mass": [6, 12]}}
    for other, key in ((build({"mass": [0.5, 2]}), "train"), (build(held_out=held_out), "held_out")):
        (line,) = differences(sim.contract(), other.contract())
        assert line.startswith(f"{key}: ")


def test_refusals():
    for options, message in (
        ({"train": {"camera_m": (0.0, 0.5)}}, r"sim.train: camera_m of a domain is a range .* within \[0, 0.2\]"),
        ({"train": {"mass": (2.0, 1.0)}}, "sim.train: mass"),
        ({"train": {"mass": (1.0, 2.0, 3.0)}}, "sim.train: mass"),
        ({"train": {"background": ("sea",)}}, "lists some of"),
        ({"train": {"background": ()}}, "lists some of"),
        ({"train": {"weight": (1, 2)}}, "sim.train: .*weight"),
        ({"held_out": {"heavy": {"mass": (0.0, 2.0)}}}, "sim.held_out.heavy: mass"),
        ({"held_out": {}}, "at least one domain"),
        ({"appearance": {"light": 0.3}}, "set sim.train"),
    ):
        with pytest.raises(ValueError, match=message):
            build(**options)
