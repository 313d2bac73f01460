"""Gymnasium environments in text, beside the untouched environments of gymnasium."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from tasks.gym_text import GymText
from tasks.gym_text.task import write_observation

LAKE = {"env": "FrozenLake-v1", "actions": ("left", "down", "right", "up"), "split_by": "seed"}
TAXI = {"env": "Taxi", "actions": ("south", "north", "east", "west", "pick up", "drop off")}
STILL = {"is_slippery": False}


class Counter(gymnasium.Env):
    """Says how often "more" was chosen; two of them are a success without an end."""

    metadata = {"render_modes": ["ansi"]}
    observation_space = spaces.Text(20)
    action_space = spaces.Discrete(2, start=5)

    def __init__(self, render_mode=None):
        self.render_mode, self.count = render_mode, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = int(self.np_random.integers(10))
        return f"{self.count} more", {}

    def step(self, action):
        self.count -= action == 6
        return f"{self.count} more", -1.0, False, False, {"success": self.count == 0}


class Pictures(Counter):
    metadata = {"render_modes": ["rgb_array"]}
    observation_space = spaces.Box(0, 1, (2,))


class Continuous(Counter):
    action_space = spaces.Box(0, 1, (2,))


for cls in (Counter, Pictures, Continuous):
    gymnasium.register(f"mmrl/{cls.__name__}-v0", cls)


def test_an_episode_is_that_of_gymnasium_and_reaches_the_goal():
    """Rows of the lake: SFFF, FHFH, FFFH, HFFG; down, down, right, right, down, right reaches G without a hole."""
    task = GymText(**LAKE, options=STILL)
    environment, env = task.make_environment(), gymnasium.make("FrozenLake-v1", render_mode="ansi", **STILL)
    step = environment.reset(task[0])
    assert step.text == "\n(red S)FFF\nFHFH\nFFFH\nHFFG\n>" and step.admissible_actions == LAKE["actions"]
    env.reset(seed=task[0].info["problem"].seed)
    for action in ("down", "down", "right", "right", "down", "right"):
        assert not step.done and step.scores == {"exact": 0.0}
        step = environment.step(action)
        _, reward, terminated, truncated, _ = env.step(LAKE["actions"].index(action))
        assert (step.reward, step.terminated, step.truncated) == (reward, terminated, truncated)
        assert env.render().split("\x1b")[0].strip() in step.text
    assert step.terminated and step.reward == 1 and step.scores == {"exact": 1.0}
    assert step.text.endswith("HFF(red G)\n>")


def test_a_hole_ends_the_episode_without_success():
    task = GymText(**LAKE, options=STILL)
    environment = task.make_environment()
    environment.reset(task[0])
    environment.step("right")
    step = environment.step("down")
    assert step.terminated and step.scores == {"exact": 0.0}


def test_chance_is_that_of_the_episode_and_the_start_that_of_the_prompt():
    task = GymText(**LAKE)  # slippery: a third of the steps go where they should
    environment = task.make_environment()

    def play(seed):
        steps = [environment.reset(task[1], seed)]
        while not steps[-1].done and len(steps) < 20:
            steps.append(environment.step("right"))
        return [step.text for step in steps]

    walks = [play(seed) for seed in range(8)]
    assert walks[3] == play(3) and len({walk[0] for walk in walks}) == 1 and len({str(walk) for walk in walks}) > 1


def test_actions_outside_the_mask_are_not_admissible():
    task = GymText(**TAXI)
    environment, env = task.make_environment(), gymnasium.make("Taxi")
    for index in range(4):
        step = environment.reset(task[index])
        _, info = env.reset(seed=task[index].info["problem"].seed)
        expected = [name for name, allowed in zip(TAXI["actions"], info["action_mask"]) if allowed]
        assert list(step.admissible_actions) == expected and len(expected) < 6
        wrong = environment.step(next(name for name in TAXI["actions"] if name not in expected))
        assert not wrong.valid and wrong.text == f"\nThere is no such action.{step.text}"
        assert wrong.admissible_actions == step.admissible_actions


def test_no_initial_observation_is_in_both_splits():
    task = GymText(**TAXI)
    train, held_out = ({each[i].info["problem"].text for i in range(24)} for each in (task, task.on("held_out")))
    assert not train & held_out and len(train) > 12


def test_observations_in_text_first_numbers_and_a_success_of_the_info():
    task = GymText(env="mmrl/Counter-v0", actions=("less", "more"), split_by="seed")
    prompt = next(task[i] for i in range(99) if task[i].info["problem"].text == "2 more")
    environment = task.make_environment()
    assert environment.reset(prompt).text == "\n2 more\n>"
    assert environment.step("less").text == "\n2 more\n>" and environment.step("more").scores == {"exact": 0.0}
    step = environment.step("more")
    assert step.text == "\n0 more\n>" and step.scores == {"exact": 1.0} and not step.done
    assert environment.random_action(np.random.default_rng(0)) in task.actions


def test_colours_are_written_as_words():
    """34 is the foreground blue, 43 the background yellow, 1 bold."""
    assert write_observation(None, "|\x1b[34;1mR\x1b[0m: |\x1b[43m \x1b[0m|") == "|(blue R): |(yellow)|"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"env": "Moon-v0"}, "env='Moon-v0' cannot be made"),
        ({"options": {"wind": 3}}, "task.options that it takes"),
        ({"actions": ("left", "right")}, r"has 4 actions, and task.actions names \['left', 'right'\]"),
        ({"actions": ("left", "down", "left", "up")}, "give each one a name of its own"),
        ({"env": "mmrl/Pictures-v0"}, "has no text"),
        ({"env": "mmrl/Continuous-v0"}, "they have to be Discrete"),
    ],
)
def test_environments_without_text_or_names_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        GymText(**{**LAKE, **changes})
