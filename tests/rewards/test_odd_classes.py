"""Reward classes of others are called once before a model is built: numbers, or one line says what is wrong."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.config.dry_calls.data import check_data
from mmrl.core.errors import ConfigError
from mmrl.rewards.base import Reward
from mmrl.rewards.corruption import Corruption
from mmrl.rewards.steps import FunctionScorer, StepReward
from tests.rewards.test_odd_functions import Unbuilt
from tests.tiny_recipes import QUIET, TEXT, override

CONTROL = ("recipe=ppo_control", "data.evaluation=null", *QUIET)


@dataclass(frozen=True)
class Returns(Reward):
    """A reward that returns what a function makes of the group, and further scores of the episodes."""

    make: Callable[[Any], Any] = lambda group: [0.0] * len(group)
    make_scores: Callable[[Any], Any] = lambda episodes: [{} for _ in episodes]

    def scores(self, episodes):
        return self.make_scores(episodes)

    def __call__(self, group):
        return self.make(group)


WORKS: dict[str, Callable[[Any], Any]] = {
    "list": lambda group: [0.5, 1],
    "tuple": lambda group: (0.5, 1),
    "array": lambda group: np.array([0.5, 1.0]),
    "tensor": lambda group: torch.tensor([0.5, 1.0]),
    "column of one": lambda group: torch.tensor([[0.5], [1.0]]),
    "generator": lambda group: (0.5 + 0.5 * n for n in range(len(group))),
    "bools": lambda group: [True, False],
}
REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "none": (lambda group: None, r"returned None \(NoneType\) for the 2 episodes"),
    "number": (lambda group: 1.0, r"returned 1\.0 \(float\) for the 2 episodes"),
    "array of none": (lambda group: np.array(1.0), r"returned array\(1\.\) \(ndarray\)"),
    "text": (lambda group: "01", r"returned '01' \(str\)"),
    "dict by place": (lambda group: {0: 1.0, 1: 0.5}, r"returned \{0: 1\.0, 1: 0\.5\} \(dict\)"),
    "dict by name": (lambda group: {"exact": [1.0, 0.0], "format": [0.0, 1.0]}, r"returned \{'exact'.*\(dict\)"),
    "set": (lambda group: {0.25, 0.75}, r"\(set\) for the 2 episodes"),
    "short": (lambda group: [1.0], "gave 1 rewards to the 2 episodes"),
    "long": (lambda group: [1.0] * 3, "gave more than 2 rewards to the 2 episodes"),
    "without end": (lambda group: iter(int, 1), "gave more than 2 rewards to the 2 episodes"),
    "empty": (lambda group: [], "gave 0 rewards to the 2 episodes"),
    "table": (lambda group: torch.zeros(2, 3), r"gave .* tensor\(\[0., 0., 0.\]\) \(Tensor\), which is no number"),
    "rows": (lambda group: [{"reward": 1.0}, {"reward": 0.0}], r"\{'reward': 1\.0\} \(dict\), which is no number"),
    "texts": (lambda group: ["0.5", "1"], r"gave .* '0\.5' \(str\), which is no number"),
    "nones": (lambda group: [None, 1.0], r"gave .* None \(NoneType\), which is no number"),
    "complex": (lambda group: [1j, 1.0], r"gave .* 1j \(complex\), which is no number"),
    "tuples": (lambda group: [(1.0, "good"), (0.0, "bad")], r"\(1\.0, 'good'\) \(tuple\), which is no number"),
}
SCORES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "none": (lambda episodes: None, "its scores are None for 2 episodes; return a list of one dict each"),
    "dict": (lambda episodes: {"a": 1.0, "b": 2.0}, r"its scores are \{'a'.* for 2 episodes"),
    "short": (lambda episodes: [{"a": 1.0}], "for 2 episodes; return a list of one dict each"),
    "long": (lambda episodes: [{"a": 1.0}] * 3, "for 2 episodes; return a list of one dict each"),
    "numbers": (lambda episodes: [1.0, 0.0], r"with 1\.0 \(float\); give a dict of numbers by name"),
    "keys": (lambda episodes: [{1: 0.5}, {1: 0.5}], r"with \{1: 0\.5\} \(dict\); give a dict of numbers by name"),
    "text": (lambda episodes: [{"a": "1"}] * 2, "a='1', which is no finite number"),
    "vector": (lambda episodes: [{"a": np.zeros(2)}] * 2, r"a=array\(\[0., 0.\]\), which is no finite number"),
    "nan": (lambda episodes: [{"a": float("nan")}] * 2, "a=nan, which is no finite number"),
}


def build(*words: str, folder: Any) -> Any:
    return CLI(to_lightning(compose([*words, f"run_dir={folder}"])), build=True).datamodule


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    words = override(TEXT, [*QUIET, "data.reward.weights={exact: 1.0}"])
    return build(*words, folder=tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def control(tmp_path_factory):
    return build(*CONTROL, folder=tmp_path_factory.mktemp("run"))


@pytest.mark.parametrize("name", WORKS)
def test_it_works(name, data, control):
    check_data(data, Returns(WORKS[name]))
    check_data(control, Returns(WORKS[name]))


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_in_one_line_on_texts_and_in_simulators(name, data, control):
    make, message = REFUSED[name]
    for module in (data, control):
        with pytest.raises(ConfigError, match=r"^data\.reward \(Returns\)") as error:
            check_data(module, Returns(make))
        error.match(message)
        assert "\n" not in str(error.value) and len(str(error.value)) < 600


@pytest.mark.parametrize("name", SCORES)
def test_further_scores_are_one_dict_of_numbers_for_each_episode(name, data):
    make_scores, message = SCORES[name]
    with pytest.raises(ConfigError, match=rf"^data\.reward \(Returns\).*{message}"):
        check_data(data, Returns(make_scores=make_scores))


def test_a_reward_that_is_not_finite_is_refused(data):
    with pytest.raises(ConfigError, match=r"^data\.reward \(Returns\) gave .* nan for the scores"):
        check_data(data, Returns(lambda group: [0.0, float("nan")]))


def test_a_reward_inside_of_a_part_of_ours_is_called_too(data):
    with pytest.raises(ConfigError, match=r"^data\.reward \(Returns\) returned None"):
        check_data(data, Corruption(Returns(lambda group: None), flip=0.1))


STEPS = {
    "none": ("None", r"returned None \(NoneType\) for 1 steps"),
    "text": ("'1'", r"returned '1' \(str\) for 1 steps"),
    "dict": ("{0.5: 'good'}", r"returned \{0\.5: 'good'\} \(dict\) for 1 steps"),
    "number": ("0.5", r"returned 0\.5 \(float\) for 1 steps"),
    "tuples": ("[(1.0, 'good')]", r"returned \[\(1\.0, 'good'\)\] \(list\) for 1 steps"),
    "short": ("[]", r"gave \[\] to the 1 steps"),
    "nan": ("[float('nan')]", r"gave \[nan\] to the 1 steps"),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_scorer_of_steps_is_called_before_a_model_is_built(name, data, tmp_path):
    value, message = STEPS[name]
    (tmp_path / "scorer.py").write_text(f"def judge(steps):\n    return {value}\n")
    reward = StepReward({"step_reward": 1.0}, scorer=FunctionScorer(f"{tmp_path}/scorer.py:judge"))
    with pytest.raises(ConfigError, match=rf"step scorer .*{message}"):
        check_data(data, reward)


def test_a_reward_that_reads_what_only_a_played_episode_has_is_let_pass_in_simulators(control):
    check_data(control, Returns(lambda group: [episode.scores["success"] for episode in group]))
    check_data(control, Returns(lambda group: [float("nan") for _ in group]))


class Table(Reward):
    """A table by name of the score, as data frames are read."""

    def __call__(self, group):
        return {"exact": [1.0 for _ in group]}


def test_no_model_is_built_for_a_class_that_is_refused(tmp_path):
    words = [word for word in TEXT if "reward" not in word]
    words += [f"model.policy._target_={Unbuilt.__module__}.Unbuilt", f"reward._target_={__name__}.Table"]
    with pytest.raises(ConfigError, match=r"data\.reward \(Table\) returned \{'exact'") as error:
        build(*words, *QUIET, folder=tmp_path)
    assert "a model is built" not in str(error.value)
