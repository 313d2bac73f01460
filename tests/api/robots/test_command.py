"""`mmrl robot`: its options, episodes in a run's simulator, a robot of the user, and what is recorded."""

import numpy as np
import pytest

import mmrl
from mmrl.__main__ import main
from mmrl.api.robots.command import parse
from mmrl.commands.completion import complete
from mmrl.commands.help.usage import USAGES
from mmrl.commands.options import ROBOT_OPTIONS
from mmrl.core.errors import ConfigError
from mmrl.datasets.formats import open_dataset
from tests.tiny_recipes import QUIET


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    keys = {"data": {"num_prompts": 1, "group_size": 2, "evaluation": {"count": 1}}, "trainer": {"max_epochs": 1}}
    folder = tmp_path_factory.mktemp("robots") / "run"
    return str(mmrl.fit("recipe=demo_vla", *QUIET, run_dir=folder, **keys).folder)


def test_options_have_usages_and_completions():
    assert [name for name in ROBOT_OPTIONS if f"{name}=" not in USAGES["robot"]] == []
    assert {f"{name}=" for name in ROBOT_OPTIONS} <= set(complete("mmrl robot runs/x "))
    assert complete("mmrl robot runs/x clock=s") == ["clock=simulated", "clock=system"]


@pytest.mark.parametrize(
    "arguments, words",
    [
        ([], "give a run folder, or both"),
        (["url=ws://localhost:1"], "give a run folder, or both"),
        (["a", "b"], "give one run folder"),
        (["a", "speed=5"], "give one run folder"),
        (["a", "clock=fast"], "must be system or simulated"),
        (["a", "split=test"], "must be train or held_out"),
        (["a", "fps=0"], r"robot\.fps must be > 0"),
        (["a", "blend=-1"], "at least 0"),
        (["a", "execute=0"], "at least 1"),
        (["a", "num_episodes=0"], "at least 1"),
        (["a", "guide=true", "url=ws://localhost:1"], "not one at a server"),
        (["a", "robot=arm.py:Arm", "takeover=expert"], "script of a simulator"),
    ],
)
def test_arguments_that_cannot_be_used(arguments, words):
    with pytest.raises(ValueError, match=words):
        parse(arguments)


def test_episodes_of_a_run_are_played_and_recorded(run, tmp_path, capsys):
    """150 ms are three control steps of 50 ms; the policy's chunk has five, so that every second query leaves steps in
    which the arm holds."""
    words = ["clock=simulated", "latency_ms=150", "takeover=expert", "patience=4", "num_episodes=2", "split=train"]
    assert main(["robot", run, *words, f"out={tmp_path / 'data'}", "video=false"]) == 0
    printed = capsys.readouterr().out
    assert "episode 2: " in printed and "0 late commands" in printed and "(2 episodes" in printed
    dataset = open_dataset(tmp_path / "data")
    episodes = list(dataset)
    assert dataset.fps == 20 and len(episodes) == 2
    for episode in episodes:
        assert episode.interventions.dtype == bool and len(episode.interventions) == len(episode)
        assert episode.rewards.sum() == float(episode.success) and episode.ended in ("done", "time")
        assert set(episode.observations) == {"image", "proprio"} and episode.instruction.startswith("reach")
    assert any(episode.interventions.any() for episode in episodes)
    words[4] = "num_episodes=1"
    assert main(["robot", run, *words, f"out={tmp_path / 'again'}", "video=false"]) == 0
    (again,) = open_dataset(tmp_path / "again")
    assert np.array_equal(again.actions, episodes[0].actions)
    assert np.array_equal(again.interventions, episodes[0].interventions)


ARM = """
import numpy as np

from mmrl.api.robots.robot import Robot


class Arm(Robot):
    fps, action_dims = 1000, 3

    def read(self):
        return {"image": np.zeros((64, 64, 3), np.uint8), "proprio": np.zeros(13, np.float32), "instruction": "reach"}

    def write(self, action):
        assert action.shape == (3,) and action.dtype == np.float32

    def hold(self):
        return np.zeros(3, np.float32)

    def close(self):
        print("motors off")


class Still:
    def __call__(self, observation):
        return np.full(3, 0.5)


class Unfinished(Robot):
    def read(self): ...
    def write(self, action): ...
    def hold(self): ...


def other():
    return 1
"""


def test_a_robot_of_the_user_is_played_and_closed(run, tmp_path, monkeypatch, capsys):
    """It knows neither reward nor success, and its device gives an action in every step."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "arm.py").write_text(ARM)
    words = ["robot=arm.py:Arm", "takeover=arm.py:Still", "max_steps=5", "out=data", "video=false"]
    assert main(["robot", run, *words]) == 0
    assert "motors off" in capsys.readouterr().out
    (episode,) = open_dataset(tmp_path / "data")
    assert len(episode) == 5 and episode.interventions.all() and (episode.actions == 0.5).all()
    assert episode.rewards is None and episode.success is None and episode.ended == "cut"


@pytest.mark.parametrize(
    "words, message",
    [
        (["robot=arm.py:Arms"], "no 'Arms'"),
        (["robot=arm.py:Still"], "no 'read'"),
        (["robot=arm.py:Unfinished"], "states no fps"),
        (["robot=arm.py:Arm", "takeover=arm.py:nothing"], "no 'nothing'"),
        (["robot=nowhere.py:Arm"], "there is no file"),
        (["guide=true"], "guide=true guides the denoising"),
        (["offset=1000000000", "num_episodes=1000000000"], "initial states"),
    ],
)
def test_what_cannot_be_played_is_refused(run, words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "arm.py").write_text(ARM)
    assert main(["robot", run, *words]) == 2
    assert message in capsys.readouterr().err


def test_a_run_without_a_simulator_needs_a_robot(run, monkeypatch):
    from mmrl.api import loaded_policy
    from mmrl.api.robots.command import play_robot

    class Bare:
        name = "bare"

    monkeypatch.setattr(loaded_policy.LoadedPolicy, "task", Bare())
    with pytest.raises(ConfigError, match="this run has no simulator; give robot="):
        play_robot([run])
