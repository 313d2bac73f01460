"""Gymnasium environments, by id, as a simulator."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import gymnasium

from mmrl.core.types import Sim
from sims.gym.enums import mend_enums
from sims.gym.guard import Guard, add_divergence_check
from sims.gym.opengl import choose_gl
from sims.gym.vector import GymVectorEnv
from sims.host.actions import SpaceError
from sims.host.adapter import OuterView, adapt, state_sizes
from sims.host.dry_call import check_env


@dataclass(frozen=True)
class GymSim(Sim):
    """Environments of one registered id, stepped one after the other in this process.

    An environment that raises, or reports a number that is not finite, is truncated with `info["error"]` and recreated.

    Args:
        id: as in `gymnasium.make`, for example "CartPole-v1", or "package:Name-v0" to import a package first.
        kwargs: further arguments of the environment.
        autoreset: what happens after an episode. "disabled": whoever steps asks for the reset; needed for evaluation.
        max_episode_steps: time limit in decisions; None keeps the registered one.
        fast_render: MuJoCo cameras without shadows and anti-aliasing, many times faster; the images differ.
        repeatable: refuse an environment in which the same seed and the same actions give something else.

    Raises:
        ValueError: no environment has the id, or a dry call (`sims.host.dry_call`) shows that it cannot be used.
    """

    id: str
    kwargs: dict[str, Any] = field(default_factory=dict)
    autoreset: Literal["next_step", "same_step", "disabled"] = "disabled"
    max_episode_steps: int | None = None
    fast_render: bool = True
    repeatable: bool = True

    stated: ClassVar[Sequence[str]] = ()
    """Names of mmrl's interface that this simulator itself writes into `info`."""

    def __post_init__(self) -> None:
        if self.renders_images:
            choose_gl()
        try:
            package, _, name = self.id.rpartition(":")
            if package:
                importlib.import_module(package)
            gymnasium.spec(name)
        except (gymnasium.error.Error, ImportError) as error:
            raise ValueError(
                f"sim.id={self.id!r} is not a registered environment: {error}; "
                "write package:Name-v0 if a package registers it when imported"
            ) from error
        if self.autoreset not in _MODES:
            raise ValueError(f"sim.autoreset must be one of {sorted(_MODES)}, got {self.autoreset!r}")

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.id

    @property
    def renders_images(self) -> bool:
        """Whether the environment's own renderer makes the images."""
        return self.kwargs.get("render_mode") is not None

    def make(self, num_envs: int) -> GymVectorEnv:
        if num_envs < 1:
            raise ValueError(f"a vector environment needs at least one environment, got num_envs={num_envs}")
        self.inspect()
        guarded = [lambda: Guard(self.make_checked, self.stated)] * num_envs
        return GymVectorEnv(guarded, autoreset_mode=_MODES[self.autoreset])

    def inspect(self) -> str | None:
        """Check the environment by a dry call, once; returns where its mask of legal actions comes from.

        Raises:
            ValueError: with the id, what is wrong and what helps.
        """
        key = (repr(self), gymnasium.spec(self._registered).entry_point)
        if key not in _INSPECTED:
            try:
                _INSPECTED[key] = check_env(self.make_registered, self.repeatable, self.reads_spaces)
            except ValueError as error:
                raise ValueError(f"sim.id={self.id!r}: {error}") from error
        return _INSPECTED[key]

    @property
    def reads_spaces(self) -> bool:
        """Whether observations and actions are those of control policies (`sims.host.adapter`)."""
        return True

    @property
    def _registered(self) -> str:
        return self.id.rpartition(":")[2]

    def sizes(self) -> dict[str, Any]:
        """Sizes of a control policy.

        Raises:
            ValueError: with the id, a space that no control policy has, and what helps.
        """
        mask_source = self.inspect()
        env = self.make_registered()
        try:
            adapted = adapt(env, mask_source)
            return state_sizes(adapted.observation_space, adapted.action_space)
        except SpaceError as error:
            raise ValueError(f"sim.id={self.id!r}: {error}") from error
        finally:
            env.close()

    def make_env(self) -> gymnasium.Env:
        """Make one environment, with observations and actions of control policies (`sims.host.adapter`).

        One whose spaces no control policy has is as its package makes it, for policies of other kinds.
        """
        mask_source = self.inspect()
        env = self.make_registered()
        try:
            return adapt(env, mask_source)
        except SpaceError:
            return env

    def outer_view(self) -> OuterView:
        """How a policy reads observations of `gymnasium.make` and gives actions to it.

        Raises:
            ValueError: with the id, a space that no control policy has, and what helps.
        """
        try:
            return OuterView(self.make_registered(), self.inspect())
        except SpaceError as error:
            raise ValueError(f"sim.id={self.id!r}: {error}") from error

    def enable_drawing(self) -> GymSim:
        """This simulator with environments that draw images, where their class says that they can."""
        if self.renders_images or not self.reads_spaces:
            return self
        env = self.make_registered()
        modes = env.metadata.get("render_modes") or ()
        env.close()
        return replace(self, kwargs={**self.kwargs, "render_mode": "rgb_array"}) if "rgb_array" in modes else self

    def make_registered(self) -> gymnasium.Env:
        """One environment as its package makes it."""
        if not str(gymnasium.spec(self._registered).entry_point).startswith("gymnasium."):
            mend_enums()  # gymnasium's own environments need no MuJoCo, or compare as it does
        limits = {"max_episode_steps": self.max_episode_steps, "disable_env_checker": True}
        try:
            env = gymnasium.make(self.id, **limits, **self.kwargs)
        except Exception as error:
            arguments = f" with sim.kwargs={self.kwargs}" if self.kwargs else ""
            raise ValueError(
                f"sim.id={self.id!r} cannot be made{arguments}: {type(error).__name__}: {error}"
            ) from error
        if self.fast_render:
            _simplify_cameras(env)
        return env

    def make_checked(self) -> gymnasium.Env:
        """One environment that fails where its simulation diverges."""
        return add_divergence_check(self.make_env())

    def contract(self) -> dict[str, Any]:
        """Entries that must be equal for results to be comparable."""
        return {"sim": self.id, "kwargs": dict(self.kwargs), "max_episode_steps": self.max_episode_steps}


_INSPECTED: dict[Any, str | None] = {}  # by simulator and entry point: where the mask comes from

_MODES = {
    "next_step": gymnasium.vector.AutoresetMode.NEXT_STEP,
    "same_step": gymnasium.vector.AutoresetMode.SAME_STEP,
    "disabled": gymnasium.vector.AutoresetMode.DISABLED,
}


def _simplify_cameras(env: gymnasium.Env) -> None:
    """Switch off shadow maps, multisampling and fine tessellation, which dominate software rendering."""
    try:
        model = getattr(env.unwrapped, "model", None)
    except ValueError:  # some make their model at the first reset
        env.reset(seed=0)
        model = env.unwrapped.model  # type: ignore[attr-defined]
    visual = getattr(model, "vis", None)
    if visual is None:
        return
    for name, value in (("shadowsize", 0), ("offsamples", 0), ("numslices", 12), ("numstacks", 8)):
        setattr(visual.quality, name, value)
