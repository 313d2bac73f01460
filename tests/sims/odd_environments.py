"""Environments of others: what is allowed in gymnasium, what is not, and what mmrl makes of each."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import FrameStackObservation, NormalizeObservation, NormalizeReward

UNIT = spaces.Box(-1, 1, (3,), np.float32)
TWO = spaces.Discrete(2)
IMAGE = spaces.Box(0, 255, (20, 24, 3), np.uint8)


class Odd(gymnasium.Env):
    """An environment of ten steps that pays 1 a step, with any spaces; subclasses do one thing in another way."""

    metadata = {"render_modes": []}
    limit = 10

    def __init__(self, observed: spaces.Space = UNIT, acted: spaces.Space = TWO):
        self.observation_space, self.action_space = observed, acted

    def observe(self) -> Any:
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        return self.observation_space.sample()

    def info(self) -> dict[str, Any]:
        return {}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return self.observe(), self.info()

    def step(self, action: Any) -> Any:
        if not self.action_space.contains(action):
            raise AssertionError(f"{action!r} is not in {self.action_space}")
        self.time += 1
        return self.observe(), self.reward(action), self.time >= self.limit, False, self.info()

    def reward(self, action: Any) -> Any:
        return 1.0


class Masked(Odd):
    """Pays 1 for the only legal action of a state, and refuses all others; `form` says where the mask is."""

    def __init__(self, form: str):
        inner = {"state": UNIT, "action_mask": spaces.Box(0, 1, (4,), np.int8)}
        super().__init__(spaces.Dict(inner) if form == "observation" else UNIT, spaces.Discrete(4))
        self.form = form

    def mask(self) -> np.ndarray:
        return np.eye(4, dtype=np.int8)[self.time % 4]

    def observe(self) -> Any:
        if self.form != "observation":
            return super().observe()
        return {"state": super().observe()["state"], "action_mask": self.mask()}

    def info(self) -> dict[str, Any]:
        return {"action_mask": self.mask()} if self.form == "info" else {}

    def step(self, action: Any) -> Any:
        if not self.mask()[action]:
            raise AssertionError(f"{action} is not legal")
        return super().step(action)


class MaskedByMethod(Masked):
    """As Stable-Baselines3's contributed MaskablePPO asks for it."""

    def __init__(self) -> None:
        super().__init__("method")

    def action_masks(self) -> np.ndarray:
        return self.mask()


class SameBuffer(Odd):
    """Counts steps in one buffer, which every observation is."""

    def __init__(self) -> None:
        super().__init__(spaces.Box(0, 99, (1,), np.float32))
        self.buffer = np.zeros(1, np.float32)

    def observe(self) -> Any:
        self.buffer[:] = self.time
        return self.buffer


class Talkative(Odd):
    """Uses names of mmrl's interface for something else."""

    def info(self) -> dict[str, Any]:
        return {"error": 0.3, "scores": [1, 2], "executed": "yes", "task": None, "final_obs": 1, "x": [1] * self.time}


class WholeNumbers(Odd):
    """Takes whole numbers, and pays the share of the largest."""

    def __init__(self) -> None:
        super().__init__(acted=spaces.Box(0, 4, (2,), np.int64))

    def reward(self, action: Any) -> float:
        return float(action.mean() / 4)


class Endless(Odd):
    limit = 10**9


class Seedless(Odd):
    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


class Forgetful(Odd):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed)[0]


class OldStep(Odd):
    def step(self, action: Any) -> Any:
        observation, reward, over, _, info = super().step(action)
        return observation, reward, over, info


class Unseeded(Odd):
    """Draws its states from a generator of its own."""

    def observe(self) -> Any:
        return np.random.default_rng().uniform(-1, 1, 3).astype(np.float32)


class Paying(Odd):
    def __init__(self, reward: Any):
        super().__init__()
        self.pay = reward

    def reward(self, action: Any) -> Any:
        return self.pay


class Misshapen(Odd):
    def observe(self) -> Any:
        return np.zeros(4, np.float32)


class Broken(Odd):
    def step(self, action: Any) -> Any:
        raise KeyError("a config file of mine")


class WrongMask(Odd):
    def info(self) -> dict[str, Any]:
        return {"action_mask": np.ones(5)}


class Unmakeable(Odd):
    def __init__(self) -> None:
        raise FileNotFoundError("scene.xml")


DICT = spaces.Dict(
    {
        "camera": IMAGE,
        "depth": spaces.Box(0, 255, (20, 24), np.uint8),
        "joints": spaces.Dict({"left": UNIT, "gripper": TWO}),
        "buttons": spaces.MultiBinary(3),
        "floor": spaces.MultiDiscrete([2, 3]),
        "code": spaces.Box(0, 255, (2, 2, 3), np.uint8),
    }
)
TRAINS: dict[str, tuple[Any, dict[str, Any]]] = {
    "discrete": (lambda: Odd(spaces.Discrete(5)), {"observation_dims": 5}),
    "discrete from 3": (
        lambda: Odd(spaces.Discrete(5, start=3), spaces.Discrete(2, start=-1)),
        {"observation_dims": 5},
    ),
    "multi-discrete": (
        lambda: Odd(spaces.MultiDiscrete([3, 4]), spaces.MultiDiscrete([2, 5, 3])),
        {"observation_dims": 7, "actions": [2, 5, 3], "kind": "multi_categorical"},
    ),
    "multi-discrete of two axes": (
        lambda: Odd(acted=spaces.MultiDiscrete(np.array([[2, 3], [4, 5]]))),
        {"actions": [2, 3, 4, 5]},
    ),
    "multi-binary": (
        lambda: Odd(spaces.MultiBinary(4), spaces.MultiBinary([2, 2])),
        {"observation_dims": 4, "actions": [2, 2, 2, 2]},
    ),
    "dict": (lambda: Odd(DICT), {"observation_dims": 3 + 2 + 3 + 5 + 12, "image_size": [20, 24, 4]}),
    "frame stack of vectors": (lambda: FrameStackObservation(Odd(), 4), {"observation_dims": 12}),
    "pixels": (lambda: Odd(IMAGE), {"observation_dims": None, "image_size": [20, 24, 3]}),
    "pixels, channels first": (lambda: Odd(spaces.Box(0, 255, (3, 20, 24), np.uint8)), {"image_size": [20, 24, 3]}),
    "grey pixels": (lambda: Odd(spaces.Box(0, 255, (20, 24), np.uint8)), {"image_size": [20, 24, 1]}),
    "frame stack of pixels": (lambda: FrameStackObservation(Odd(IMAGE), 2), {"image_size": [20, 24, 6]}),
    "matrix of actions": (lambda: Odd(acted=spaces.Box(-2, 2, (2, 2), np.float64)), {"actions": 4}),
    "whole numbers as actions": (WholeNumbers, {"actions": 2, "kind": "gaussian"}),
    "mask in observations": (lambda: Masked("observation"), {"action_mask": True, "observation_dims": 3}),
    "mask in infos": (lambda: Masked("info"), {"action_mask": True}),
    "mask by a method": (MaskedByMethod, {"action_mask": True}),
    "one buffer": (SameBuffer, {"observation_dims": 1}),
    "names of mmrl in infos": (Talkative, {"action_mask": False}),
    "whole rewards": (lambda: Paying(1), {}),
}
"""Environments that train: how each is made, and sizes that must come of it."""

REFUSED: dict[str, tuple[Any, tuple[str, ...]]] = {
    "tuple of observations": (lambda: Odd(spaces.Tuple([UNIT, TWO])), ("kind Tuple", "ObservationWrapper")),
    "text": (lambda: Odd(spaces.Dict({"a": UNIT, "b": spaces.Text(5)})), ("'b' is of the kind Text",)),
    "graph": (lambda: Odd(spaces.Graph(UNIT, TWO)), ("kind Graph",)),
    "sequence": (lambda: Odd(spaces.Sequence(UNIT)), ("kind Sequence",)),
    "tuple of actions": (lambda: Odd(acted=spaces.Tuple([TWO, TWO])), ("kind Tuple", "ActionWrapper")),
    "dict of actions": (lambda: Odd(acted=spaces.Dict({"a": TWO})), ("kind Dict",)),
    "unbounded actions": (lambda: Odd(acted=spaces.Box(-np.inf, np.inf, (2,))), ("no finite bounds", "low and high")),
    "images of two sizes": (
        lambda: Odd(spaces.Dict({"a": IMAGE, "b": spaces.Box(0, 255, (30, 30, 3), np.uint8)})),
        ("images of 2 sizes",),
    ),
    "normalised observations": (lambda: NormalizeObservation(Odd()), ("policy.normalize_observations=true",)),
    "normalised rewards": (lambda: NormalizeReward(Odd()), ("rollout.normalize_rewards=true",)),
    "own random numbers": (Unseeded, ("two resets with seed 0 give different observations", "sim.repeatable=false")),
    "reset without seed": (Seedless, ("reset takes no seed", "super().reset(seed=seed)")),
    "reset without info": (Forgetful, ("reset must return (observation, info)", "array of shape (3,)")),
    "step of four": (OldStep, ("step must return", "a tuple of 4")),
    "reward is an array": (lambda: Paying(np.array([1.0])), ("reward must be one number", "array of shape (1,)")),
    "reward is None": (lambda: Paying(None), ("reward must be one number, got None",)),
    "reward is NaN": (lambda: Paying(np.nan), ("reward is not finite",)),
    "another shape": (Misshapen, ("shape (4,)", "observation_space is Box")),
    "broken step": (Broken, ("the first step fails: KeyError", "a config file of mine")),
    "mask of another size": (WrongMask, ("has 5 entries", "need 2")),
    "cannot be made": (Unmakeable, ("cannot be made: FileNotFoundError: scene.xml",)),
}
"""Environments that are refused, and words of the message beside their id."""


def id_of(name: str) -> str:
    """The id of an environment of the tables."""
    return f"odd/{name.title().replace(' ', '').replace(',', '')}-v0"


for _name, (_make, *_) in {**TRAINS, **REFUSED, "endless": (Endless, {})}.items():
    gymnasium.register(id_of(_name), entry_point=_make)
