"""Objects found in pictures, the game of falling balls, and training that a relational program pays."""

import numpy as np
import pytest

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.tools.programs.objects import ObjectProgram
from mmrl.tools.programs.program import ProgramError
from sims.gym.sim import GymSim
from sims.objects.catch import COLOURS, SIZE, Catch
from sims.objects.extractor import ObjectTracker, find_boxes
from sims.objects.task import ObjectRewardTask
from tests.tiny_recipes import QUIET

RED, BLUE = (200, 0, 0), (0, 0, 200)
FALLING = "def reward(objects, prev_objects):\n    return objects[0]['y'] - prev_objects[0]['y']\n"


def picture(*things, size=10):
    """A black picture with (colour, left, top, width, height)."""
    image = np.zeros((size, size, 3), np.uint8)
    for colour, left, top, width, height in things:
        image[top : top + height, left : left + width] = colour
    return image


def test_regions_of_a_colour_by_hand():
    """Columns 1 to 3 and rows 2 to 3: middle (2.5, 3), 3 wide and 2 high; pixels that touch at a corner are two."""
    assert find_boxes(picture((RED, 1, 2, 3, 2), (BLUE, 6, 6, 1, 1)), RED) == [(2.5, 3.0, 3, 2)]
    assert find_boxes(picture((RED, 1, 1, 1, 1), (RED, 2, 2, 1, 1)), RED) == [(1.5, 1.5, 1, 1), (2.5, 2.5, 1, 1)]
    assert find_boxes(picture(), RED) == []


def test_motion_is_the_way_since_the_last_picture():
    tracker = ObjectTracker({"ball": RED})
    tracker.reset(picture((RED, 1, 1, 1, 1)))
    assert tracker.objects[0] | {"dx": 0.0, "dy": 0.0, "prev_x": 1.5, "visible": True} == tracker.objects[0]
    tracker.update(picture((RED, 3, 0, 1, 1)))
    (ball,) = tracker.objects
    assert (ball["x"], ball["y"], ball["prev_x"], ball["prev_y"]) == (3.5, 0.5, 1.5, 1.5)
    assert (ball["dx"], ball["dy"]) == (2.0, -1.0)


def test_two_of_a_category_keep_their_order_and_one_that_is_gone_its_place():
    """They pass each other's row; by distance each stays itself. Then the first one vanishes, and comes back."""
    tracker = ObjectTracker({"ball": RED})
    tracker.reset(picture((RED, 1, 1, 1, 1), (RED, 8, 2, 1, 1)))
    tracker.update(picture((RED, 1, 3, 1, 1), (RED, 8, 1, 1, 1)))
    assert [ball["x"] for ball in tracker.objects] == [1.5, 8.5]
    tracker.update(picture((RED, 8, 1, 1, 1)))
    first, second = tracker.objects
    assert (first["x"], first["y"], first["dy"], first["visible"]) == (1.5, 3.5, 0.0, False) and second["visible"]
    tracker.update(picture((RED, 2, 3, 1, 1), (RED, 8, 1, 1, 1)))
    assert tracker.objects[0]["visible"] and tracker.objects[0]["dx"] == 1.0 and len(tracker.objects) == 2


def play(act, seed=0):
    """An episode; returns rewards, states and scores."""
    env = Catch()
    env.reset(seed=seed)
    rewards, states, over = [], [env.named_state()["objects"]], False
    while not over:
        _, reward, over, _, info = env.step(act(env))
        rewards.append(reward)
        states.append(env.named_state()["objects"])
    return rewards, states, info["scores"]


def test_a_paddle_that_follows_the_ball_catches_all_and_one_that_flees_fewer():
    """Ten balls fall ten rows each; a paddle moves as fast as a ball drifts, and most balls start within its reach."""
    followed = play(lambda env: 1 + np.sign(env.x - env.paddle - 1))
    fled = play(lambda env: 1 - np.sign(env.x - env.paddle - 1))
    assert len(followed[0]) == 100 and sum(followed[0]) == 10 * followed[2]["success"] >= 8
    assert sum(fled[0]) < sum(followed[0]) - 2  # in a corner it flees into balls


def test_the_objects_of_the_game_are_those_that_are_drawn():
    env = Catch()
    env.reset(seed=3)
    for _ in range(25):
        env.step(2)
        ball, paddle = env.named_state()["objects"]
        assert [each["category"] for each in (ball, paddle)] == list(COLOURS)
        if env.y:  # at 0 the next ball has not been drawn yet
            assert (ball["x"], ball["y"]) == (env.x + 0.5, env.y + 0.5)
        assert (paddle["x"], paddle["y"], paddle["w"]) == (env.paddle + 1.5, SIZE - 0.5, 3)


def test_training_is_paid_by_the_program_and_held_out_episodes_by_the_game():
    """A ball falls a pixel in a decision: the program pays 1, and for the jump back to the top -1, not -10."""
    task = ObjectRewardTask(GymSim("sims.objects:Catch-v0"), source=FALLING, unsafe=True)
    env, own = task.sim.make(1), task.on("held_out").sim.make(1)
    for each in (env, own):
        each.reset(seed=[0])
    paid = [float(env.step(np.array([1]))[1][0]) for _ in range(12)]
    assert paid[:10] == [1.0] * 10 and paid[10] == -1.0 and paid[11] == 1.0
    assert {float(own.step(np.array([1]))[1][0]) for _ in range(12)} <= {0.0, 1.0}


def test_two_programs_at_once_and_plain_rewards_are_refused(tmp_path):
    place = tmp_path / "reward.py"
    place.write_text(FALLING)
    sim = GymSim("sims.objects:Catch-v0")
    with pytest.raises(ValueError, match="leave one of them out"):
        ObjectRewardTask(sim, source=FALLING, program=str(place))
    with pytest.raises(ProgramError, match="objects, prev_objects"):
        ObjectRewardTask(sim, source="def reward(before, action, after):\n    return 0\n")
    assert isinstance(ObjectRewardTask(sim, program=str(place), unsafe=True).sim.reward_model, ObjectProgram)


def test_the_recipe_learns_from_its_program_alone(tmp_path):
    words = ["recipe=ocalm", *QUIET, "trainer.max_epochs=1", "data.evaluation=null", "rollout.num_envs=2"]
    cli = CLI(to_lightning(compose([*words, "rollout.horizon=16", f"run_dir='{tmp_path}'", "task.unsafe=true"])))
    before = {name: weight.clone() for name, weight in cli.model.policy.named_parameters()}
    cli.fit()
    assert any(not weight.equal(before[name]) for name, weight in cli.model.policy.named_parameters())
    assert cli.datamodule.task.sim.reward_model.relations == ["find", "gap", "is_under"]
