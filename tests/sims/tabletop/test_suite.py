"""Every task of the suite: its expert, its saved state, its words, and that threads change nothing."""

from dataclasses import fields

import numpy as np
import pytest

from sims.tabletop import Push, Reach, Suite, expert
from sims.tabletop.appearance import Appearance
from sims.tabletop.sentences import SENTENCES
from sims.tabletop.suite import PARTS
from sims.task import SimTask, seed_of, split_of

TASKS = tuple(PARTS)
SIZE = 8  # pixels; small, because these tests are not about images


def make(task, count, **options):
    return PARTS[task](image_size=SIZE, **options).make(count)


def random_actions(env, seed=0):
    shape = (env.num_envs, env.chunk, env.action_dims)
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(np.asarray(a[name]), np.asarray(b[name]))


@pytest.mark.parametrize("task", TASKS)
def test_the_expert_succeeds(task):
    """64 fresh states; with a true rate of 98 % fewer than 61 successes have a probability below 4 %."""
    env = make(task, 64, threads=1)
    env.reset(seed=list(range(31_000, 31_064)))
    total = np.zeros(64)
    while env.live.any():
        total += env.step(expert(env))[1]
    assert env.scores["success"].sum() >= 61
    np.testing.assert_array_equal(total, env.scores["success"])
    assert not env.error.any()


@pytest.mark.parametrize("task", TASKS)
def test_random_actions_do_not_succeed(task):
    env = make(task, 32, threads=1)
    env.reset(seed=list(range(32)))
    k = 0
    while env.live.any():
        env.step(random_actions(env, k))
        k += 1
    assert env.scores["success"].mean() <= 0.25
    assert not env.error.any()


@pytest.mark.parametrize("task", TASKS)
def test_branches_from_a_saved_state_are_equal(task):
    """Save in the middle, run on, load, run on: the same bits, what is remembered included."""
    env = make(task, 6, level="hard", threads=1)
    env.reset(seed=list(range(40, 46)))
    for _ in range(3):
        env.step(expert(env))
    saved = env.state_dict()

    def ahead():
        out = []
        for k in range(3):
            actions = expert(env) if k else random_actions(env)
            observation, *flags, infos = env.step(actions)
            out.append((observation, flags, infos["scores"], infos["executed"]))
        return out, env.state_dict()

    first, end = ahead()
    env.load_state_dict(saved)
    second, again = ahead()
    for (obs_a, flags_a, scores_a, done_a), (obs_b, flags_b, scores_b, done_b) in zip(first, second, strict=True):
        same(obs_a, obs_b)
        same(scores_a, scores_b)
        np.testing.assert_array_equal(flags_a, flags_b)
        np.testing.assert_array_equal(done_a, done_b)
    same(end, again)
    other = make(task, 6, level="hard", threads=1)
    other.load_state_dict(saved)  # into environments that never began
    same(first[0][0], other.step(random_actions(other))[0])


@pytest.mark.parametrize("task", TASKS)
def test_threads_and_neighbours_change_nothing(task):
    """An environment on two threads among four is the environment alone on one."""
    many, one = make(task, 4, level="hard", threads=2), make(task, 1, level="hard", threads=1)
    same(
        {k: np.asarray(v)[[2]] for k, v in many.reset(seed=[3, 4, 5, 6])[0].items()},
        {k: np.asarray(v) for k, v in one.reset(seed=[5])[0].items()},
    )
    for k in range(3):
        actions = random_actions(many, k)
        a, b = many.step(actions)[0], one.step(actions[[2]])[0]
        same({k: np.asarray(v)[[2]] for k, v in a.items()}, {k: np.asarray(v) for k, v in b.items()})


def test_a_suite_plays_its_tasks_as_they_are_alone():
    suite = Suite(tasks=("reach", "push", "stack", "buttons"), image_size=SIZE, threads=1)
    seeds = list(range(24))
    env = suite.make(24)
    observation, infos = env.reset(seed=seeds)
    names = [suite.task_of(seed) for seed in seeds]
    assert infos["task"] == names and set(names) == set(suite.tasks)
    sizes = suite.sizes()
    assert len(sizes.pop("processor")["vectors"]["proprio"]["offset"]) == 14
    assert sizes == {"action_dims": 4, "chunk": 5, "proprio_dims": 14}
    assert env.observation_space["proprio"].contains(observation["proprio"])
    actions = random_actions(env)
    after, reward, terminated, truncated, infos = env.step(actions)
    assert infos["task"] == names
    for task in suite.tasks:
        ids = np.array([i for i, name in enumerate(names) if name == task])
        alone = make(task, len(ids), threads=1)
        first, _ = alone.reset(seed=[seeds[i] for i in ids])
        then, total, *flags, reported = alone.step(actions[ids][:, :, : alone.action_dims])
        for whole, own in ((observation, first), (after, then)):
            for name in ("image", "instruction"):
                np.testing.assert_array_equal(np.asarray(whole[name])[ids], np.asarray(own[name]))
            np.testing.assert_array_equal(whole["proprio"][ids, : alone.proprio_dims], own["proprio"])
        np.testing.assert_array_equal(reward[ids], total)
        np.testing.assert_array_equal([terminated[ids], truncated[ids]], flags)
        for name, column in reported["scores"].items():
            np.testing.assert_array_equal(infos["scores"][name][ids], column)
    while env.live.any():
        env.step(expert(env))
    assert env.scores["success"].mean() > 0.5  # random for one chunk, then the experts


def test_a_suite_is_saved_and_loaded():
    env = Suite(image_size=SIZE, threads=1).make(6)
    env.reset(seed=list(range(6)))
    env.step(expert(env))
    saved = env.state_dict()
    first = env.step(random_actions(env))[0]
    env.load_state_dict(saved)
    same(first, env.step(random_actions(env))[0])
    with pytest.raises(ValueError, match="one per task"):
        _ = env.physics


def test_wordings_are_disjoint_and_follow_the_split():
    for task, sentences in SENTENCES.items():
        assert not set(sentences["train"]) & set(sentences["held_out"]), task
        assert set(sentences["plain"]) <= set(sentences["train"]), task
        for text in sentences["train"] + sentences["held_out"]:
            assert all(slot in text for slot in PARTS[task].slots), text
    sim = Push(wording="train", held_out_wording="held_out", image_size=SIZE)
    task = SimTask(sim, count=64)
    heard = {}
    for split in ("train", "held_out"):
        seeds = [task.on(split)[i].info["seed"] for i in range(64)]
        assert {split_of(seed) for seed in seeds} == {split}
        env = sim.make(64)
        heard[split] = set(env.reset(seed=seeds)[0]["instruction"])
        cubes, discs = sim.task.colours, sim.task.goals
        message = {
            text.replace("{cube}", a).replace("{disc}", b)
            for text in SENTENCES["push"][split]
            for a in cubes
            for b in discs
        }
        assert heard[split] <= message and len(heard[split]) > len(message) / 2
    assert not heard["train"] & heard["held_out"]


def test_seeds_of_the_splits_are_disjoint():
    draws = [0, 1, 2**64 - 1, 12345678901234567]
    seeds = {split: {seed_of(split, draw) for draw in draws} for split in ("train", "held_out")}
    assert not seeds["train"] & seeds["held_out"]
    assert {split_of(seed) for seed in seeds["held_out"]} == {"held_out"}
    task = SimTask(Suite(), count=32)
    prompts = {split: [task.on(split)[i] for i in range(32)] for split in seeds}
    assert not {p.info["seed"] for p in prompts["train"]} & {p.info["seed"] for p in prompts["held_out"]}
    assert {p.info["task"] for p in prompts["train"]} == set(Suite().tasks)


def test_the_contract_says_every_option():
    """Changing any option but the number of threads changes the contract."""
    changes = {
        "level": "hard",
        "chunk": 4,
        "max_decisions": 3,
        "image_size": 32,
        "observe": ("rgb", "depth"),
        "appearance": Appearance(light=0.3),
        "wording": "train",
        "held_out_wording": "held_out",
        "templates": ("shove {cube} {disc}",),
        "dense_reward_weights": {"progress": 1.0},
        "dynamics": (2.0, 1.0, 1.0),
        "colours": ("red", "green"),
        "goals": ("cyan",),
        "distance_m": (0.1, 0.11),
        "radius_m": 0.03,
        "yaw": 0.1,
        "joint_noise": 0.01,
    }
    assert set(changes) | {"threads", "renderer"} >= {field.name for field in fields(Push)}
    for name, value in changes.items():
        assert Push(**{name: value}).contract() != Push().contract(), name
    assert Push(threads=2).contract() == Push().contract()
    assert Suite(tasks=("reach",)).contract()["tasks"]["reach"] == Reach().contract()["tasks"]["reach"]


@pytest.mark.parametrize("task", TASKS)
def test_scenes_point_at_the_named_thing(task):
    scenes = PARTS[task](threads=1).label_images(list(range(16)), joint_noise=0.0)
    assert scenes["mask"].shape == (16, 64, 64) and scenes["image"].shape == (16, 64, 64, 3)
    np.testing.assert_array_equal(scenes["masks"][:, 0], scenes["mask"])
    seen = scenes["mask"].sum((1, 2))
    assert np.median(seen) >= 15
    for image, mask, text in zip(scenes["image"], scenes["mask"], scenes["instruction"]):
        if not mask.any():
            continue
        colour = {"red": 0, "green": 1, "blue": 2}[next(word for word in text.split() if word in "red green blue")]
        assert image[mask].mean(axis=0).argmax() == colour


def test_scenes_of_a_suite_name_as_many_things_as_the_task_that_names_most():
    scenes = Suite(tasks=("reach", "push"), level="easy", threads=1).label_images(list(range(24)), joint_noise=0.0)
    assert scenes["masks"].shape == (24, 2, 64, 64) and scenes["centroids"].shape == (24, 2, 2)
    for image, (first, second), text in zip(scenes["image"], scenes["masks"], scenes["instruction"]):
        if text.startswith("reach"):
            np.testing.assert_array_equal(first, second)
        elif second.any():
            red, green, blue = image[second].mean(axis=0)
            assert "purple disc" in text and not (first & second).any() and min(red, blue) > green


def test_demonstrations_of_a_suite():
    sim = Suite(tasks=("push", "pick_place"), image_size=SIZE, threads=1)
    demos = sim.demonstrate(list(range(300, 308)), noise=0.2)
    again = sim.demonstrate([305], noise=0.2)[0]
    assert all(chunk.shape == (5, 4) and np.abs(chunk).max() <= 1 for demo in demos for _, chunk in demo)
    for (raw, chunk), (other, copy) in zip(demos[5], again, strict=True):
        same(raw, other)
        np.testing.assert_array_equal(chunk, copy)


def test_refusals():
    for build, word in (
        (lambda: Suite(tasks=("reach", "juggle")), "juggle"),
        (lambda: Suite(tasks=()), "at least one"),
        (lambda: Suite(options={"stack": {}}), "not among"),
        (lambda: Suite(options={"push": {"chunk": 3}}), "chunk"),
        (lambda: Suite(templates=("a",)), "options"),
        (lambda: Push(level="extreme"), "level"),
        (lambda: Push(dense_reward_weights={"beauty": 1.0}), "beauty"),
        (lambda: Push(dynamics=(0.5, 1.0, 1.0)), "dynamics"),
        (lambda: Push(distance_m=(0.02, 0.1)), "solved at the start"),
        (lambda: Push(goals=("pink",)), "pink"),
        (lambda: Push(templates=("push it",)), "templates"),
        (lambda: Push(wording="rude"), "wording"),
        (lambda: PARTS["stack"](colours=("red",)), "two different"),
        (lambda: PARTS["stack"](yaw=0.5), "yaw"),
        (lambda: PARTS["drawer"](open_m=0.2), "open_m"),
        (lambda: PARTS["buttons"](presses=4), "presses"),
    ):
        with pytest.raises(ValueError, match=word):
            build()


def test_a_suite_by_single_steps():
    """Recordings ask for one control step per decision: limits stay, and the expert still arrives."""
    whole = Suite(tasks=("reach", "push"), image_size=SIZE, threads=1)
    steps = whole.stepwise()
    limits = [[table.max_decisions * sim.chunk for table in sim.make(1).tables] for sim in (whole, steps)]
    assert steps.chunk == 1 and limits[0] == limits[1] == [20, 40]
    env = steps.make(8)
    env.reset(seed=list(range(8)))
    while env.live.any():
        env.step(steps.expert(env))
    assert env.scores["success"].all()
