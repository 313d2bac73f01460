"""MiniGrid's worlds with subgoals, by id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium

from mmrl.core.errors import check_fraction
from mmrl.core.installation.optional_packages import import_optional
from sims.gym.sim import GymSim
from sims.subgoals.plans import FilePlans, ScriptedPlans
from sims.subgoals.wrapper import Form, Plans, SubgoalWrapper


@dataclass(frozen=True)
class SubgoalSim(GymSim):
    """Grid worlds of MiniGrid, whose training episodes show the next of some subgoals and pay for it.

    Args:
        plans: file with the subgoals by seed (`FilePlans`), which scripts/control/write_subgoals.py writes with a
            language model; None for the key, the locked door and the target of the grid itself (`ScriptedPlans`).
        accuracy: probability that a scripted subgoal is right.
        form: how a subgoal is shown: the "position" relative to the agent, or the "object" that lies there.
        bonus: paid for a subgoal that is met at once; less by the steps it took.
        hidden: share of the training episodes without subgoals; held-out episodes never have any.

    Raises:
        ValueError: accuracy is given for plans of a file, a share is outside of [0, 1], or the file is not as
            `FilePlans` says.
    """

    packages: ClassVar[tuple[str, ...]] = ("minigrid",)
    stated: ClassVar[Sequence[str]] = ("scores",)

    plans: str | None = None
    accuracy: float = 1.0
    form: Form = "position"
    bonus: float = 0.2
    hidden: float = 0.2

    def __post_init__(self) -> None:
        import_optional("minigrid", "sim=subgoals")  # registers the environments
        super().__post_init__()
        check_fraction("sim", accuracy=self.accuracy, hidden=self.hidden)
        if self.form not in ("position", "object"):
            raise ValueError(f"sim.form must be position or object, got {self.form!r}")
        if self.autoreset != "disabled":
            raise ValueError(
                f"sim.autoreset={self.autoreset!r}: the subgoals of an episode are found by its seed, so the "
                "environments must not reset themselves; set sim.autoreset=disabled"
            )
        source: Plans = ScriptedPlans(self.accuracy, self.form == "object")
        if self.plans is not None:
            if self.accuracy != 1:
                raise ValueError(f"sim.accuracy={self.accuracy}: plans of a file are as they are; leave it out")
            source = FilePlans(self.plans)
            source.rows  # noqa: B018  # read before anything is built
        object.__setattr__(self, "_source", source)

    def make_registered(self) -> gymnasium.Env:
        env = super().make_registered()
        if not {"image", "direction"} <= set(getattr(env.observation_space, "spaces", ())):
            raise ValueError(f"sim.id={self.id!r}: sim=subgoals takes worlds of MiniGrid, with the agent's view")
        return SubgoalWrapper(env, self._source, self.form, self.bonus, self.hidden)  # type: ignore[attr-defined]

    def contract(self) -> dict[str, Any]:
        """Entries that must be equal for results to be comparable: how a subgoal is shown too."""
        return {**super().contract(), "form": self.form}
