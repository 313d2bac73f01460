"""WrittenRewardTask: a simulator's initial states, with a written program as the reward of the training split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mmrl.core.rng import derive_rng
from mmrl.tools.programs.program import RewardProgram
from mmrl.tools.programs.traces import Trace
from sims.task import SimTask
from sims.written.sim import WrittenRewardSim
from sims.written.state import read_states

SUCCESS = "success"
RANDOM_BOUND = 1e3


@dataclass(frozen=True)
class WrittenRewardTask(SimTask):
    """As `SimTask`; training is paid by a program in a file, held-out episodes by the simulator.

    Args:
        program: path of a Python file with `reward(before, action, after)`, see `RewardProgram`; None for the
            simulator's own reward.
        state_names: names of the columns of the observed state; None for what the environment names itself, see
            `sims.written.state.read_states`.
        max_decisions: most decisions of a recorded episode.
        unsafe: run the program also where this machine lacks a part of the sandbox.

    Raises:
        ValueError: the program cannot be read, or cannot be used (`ProgramError`).
    """

    program: str | None = None
    state_names: Sequence[str] | None = None
    max_decisions: int = 10_000
    unsafe: bool = False

    def __post_init__(self) -> None:
        if self.reward_model is not None:
            raise ValueError("task.reward_model: a written reward takes its place; leave one of them out")
        if self.split != "train" or isinstance(self.sim, WrittenRewardSim) or (read := self._read_program()) is None:
            return
        sim = WrittenRewardSim(self.sim, self.build_program(*read), self.env_reward_coef, self.state_names)
        object.__setattr__(self, "sim", sim)

    def _read_program(self) -> tuple[str, str] | None:
        """The text of the program and its place; None without one."""
        if self.program is None:
            return None
        try:
            return Path(self.program).read_text(encoding="utf-8"), self.program
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"task.program={self.program} cannot be read: {error}") from error

    def build_program(self, source: str, name: str = "reward.py") -> RewardProgram:
        """The program of a text; raises a ProgramError for one that cannot be used."""
        return RewardProgram(source, name, self.unsafe)

    def on(self, split: str) -> WrittenRewardTask:
        sim = self.sim.sim if isinstance(self.sim, WrittenRewardSim) else self.sim
        return replace(self, split=split, sim=sim)

    def record_random(self, count: int, seed: int) -> list[Trace]:
        """Record episodes of training states with actions that are drawn uniformly."""
        rng = derive_rng("written reward", self.name, seed)

        def draw(env: Any, observation: Any) -> np.ndarray:
            space = env.single_action_space
            if hasattr(space, "n"):
                return rng.integers(space.n, size=env.num_envs).astype(space.dtype)
            low, high = (np.clip(bound, -RANDOM_BOUND, RANDOM_BOUND) for bound in (space.low, space.high))
            return rng.uniform(low, high, (env.num_envs, *space.shape)).astype(space.dtype)

        return self.record(draw, count, seed)

    def record(self, act: Callable[[Any, Any], np.ndarray], count: int, seed: int) -> list[Trace]:
        """Record episodes by the names of their states.

        Args:
            act: the actions [n, ...] for the environments and their observations.
            count: n, episodes, of training states.
            seed: of the choice of initial states.

        Returns:
            One trace an episode; its score is the simulator's success where it reports one, else its own return.
        """
        plain_task = replace(self.on("held_out"), program=None, split="train")
        chosen = derive_rng("recorded states", self.name, seed).integers(len(plain_task), size=count)
        seeds, env = [int(plain_task[int(index)].info["seed"]) for index in chosen], plain_task.sim.make(count)
        try:
            observation, _ = env.reset(seed=seeds)  # type: ignore[arg-type]  # one seed per environment
            states, traces = read_states(env, observation, self.state_names), [Trace() for _ in seeds]
            over = np.zeros(count, bool)
            for _ in range(self.max_decisions):
                actions = act(env, observation)
                observation, rewards, terminated, truncated, infos = env.step(actions)
                after, played = read_states(env, observation, self.state_names), np.asarray(actions).tolist()
                for i in np.flatnonzero(~over):
                    traces[i].steps.append((states[i], played[i], after[i]))
                    traces[i].score += float(rewards[i])
                    if (terminated[i] or truncated[i]) and SUCCESS in infos.get("scores", {}):
                        traces[i].score = float(infos["scores"][SUCCESS][i])
                states, over = after, over | terminated | truncated
                if over.all():
                    break
        finally:
            env.close()
        return traces
