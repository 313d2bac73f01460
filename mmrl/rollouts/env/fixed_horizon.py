"""Rollouts of a fixed number of decisions per environment and iteration, cut into segments of episodes."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mmrl.core.errors import check_at_least
from mmrl.core.rng import Noise, derive_seed
from mmrl.core.transitions import ActionBatch
from mmrl.core.types import Context, Episode, Prompt, Task
from mmrl.distributed import parallel
from mmrl.rollouts.base import Rollout, simulator_of
from mmrl.rollouts.env.autoreset import AutoresetAdapter, EnvStep, EpisodeEnd
from mmrl.rollouts.env.reward_scale import RewardScale
from mmrl.rollouts.env.segments import EnvTrajectory, SegmentBuilder

log = logging.getLogger(__name__)


class FixedHorizon(Rollout):
    """Collect `num_envs * horizon` decisions per iteration; episodes go on over the end of an iteration.

    A segment is a piece of an episode: up to its end ("done", "time", "error") or the end of the iteration
    ("cut"). Each is one Episode in a group of its own. What follows a segment that did not terminate is worth the
    policy's value of the final observation. A failure ends its segment as an error: none of it is trained on.

    In autoreset mode next_step some environments spend steps on resetting, so that the last step of an iteration can
    yield more decisions than are wanted; those are played but not trained on.

    Prompts count only at the very start, as the environments' first initial states. Whole episodes, for evaluation, are
    played by `mmrl.rollouts.env.episodic.EpisodicRollout`.

    Several processes share out the environments: environment i is that of process i modulo their number. Their segments
    are those of one process, unless an environment fails or spends steps on resetting (autoreset mode next_step).

    Args:
        num_envs: environments, over all processes.
        horizon: decisions per environment and iteration, on average.
        max_errors: failures of the simulator in one iteration and process beyond which the run stops.
        stats_window_size: number of last finished episodes of a process over which the mean return is reported.
        normalize_rewards: divide rewards by the standard deviation of discounted returns (`RewardScale`), which is
            saved with the run. Reported returns, and evaluations, have the simulator's rewards.
        reward_discount: discount factor of these returns.
    """

    def __init__(
        self,
        num_envs: int = 8,
        horizon: int = 32,
        max_errors: int = 10,
        stats_window_size: int = 100,
        normalize_rewards: bool = False,
        reward_discount: float = 0.99,
    ):
        check_at_least(1, "rollout", num_envs=num_envs, horizon=horizon, stats_window_size=stats_window_size)
        self.num_envs, self.horizon, self.max_errors = num_envs, horizon, max_errors
        self.stats_window_size = stats_window_size
        self.normalize_rewards, self.reward_discount = normalize_rewards, reward_discount
        self._scale = RewardScale(reward_discount)
        self._env: AutoresetAdapter | None = None
        self._saved: dict[str, Any] | None = None  # simulator state to go on from, until the simulator is known
        self._checked: Any = None  # the policy that was last compared with the simulator
        self._trajectories = [EnvTrajectory(number) for number in range(num_envs)]  # of this process, once it plays
        self._returns: deque[float] = deque(maxlen=stats_window_size)
        self._env_steps = self._errors = 0

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        """Segments with `horizon` turns per environment of this process; prompts play no part after the start."""
        if ctx.purpose != "train":
            raise ValueError(
                f"FixedHorizon cuts episodes and cannot play those of purpose {ctx.purpose!r}: "
                "set data.evaluation.rollout to mmrl.rollouts.env.episodic.EpisodicRollout"
            )
        env = self._open(prompts, ctx)
        envs, errors = len(self._trajectories), self._errors
        # episodes continue across iterations; an iteration ends after envs * horizon rows
        num_rows = envs * self.horizon
        builder, draws = SegmentBuilder(ctx.task.name, num_rows, self.num_envs), self._draws(ctx)
        while builder.rows < num_rows:
            # sample one action, or one chunk of them, for each acting environment
            acting = env.acting_envs
            seeds = draws.integers(acting if len(acting) < envs else slice(None))
            acts = ctx.engine.act(env.read_observations(acting), seeds, ctx.sampling)
            outputs = acts.output if isinstance(acts, ActionBatch) else [completion.output for completion in acts]
            # environments whose episode ends are reset with the seed that the function returns
            step = env.step(acting, outputs, lambda w: self._episode_seed(w, ctx, following=1))
            builder.add(self._trajectories, acting, acts, step)
            if self.normalize_rewards:
                self._note_rewards(acting, step)
            self._env_steps += len(acting)
            for w, end in step.ends.items():
                self._count(self._trajectories[w], end, ctx.task)
            if self._errors - errors > self.max_errors:
                raise RuntimeError(
                    f"{ctx.task.name} failed {self._errors - errors} times in iteration {ctx.iteration}, more than "
                    f"rollout.max_errors={self.max_errors}; the log has every failure"
                )
            ctx.progress("rollout", builder.rows, num_rows)
        # cut open segments: the observation after the last row gives the bootstrap value
        for w, trajectory in enumerate(self._trajectories):
            builder.cut(trajectory, env.observation(w))
        if self.normalize_rewards:
            # one scale for all rewards of the iteration: 1 / std of the discounted returns of the run so far
            builder.scale_rewards(self._scale.update())
        return builder.finish(ctx)

    def metrics(self) -> dict[str, float]:
        """Mean return of the last `stats_window_size` finished episodes of every process, and sums over processes.

        The sums are environment steps and simulator errors.
        """
        steps, errors, returns = zip(*parallel.gather([(self._env_steps, self._errors, list(self._returns))]))
        window = [each for part in returns for each in part]
        counts = {"env_steps": float(sum(steps)), "sim_errors": float(sum(errors))}
        return counts | ({f"return_{self.stats_window_size}": float(np.mean(window))} if window else {})

    def state_dict(self) -> dict[str, Any]:
        """State of the environments between two iterations, without simulators that cannot be saved."""
        simulator = self._saved
        if self._env is not None:
            try:
                simulator = self._env.state_dict()
            except NotImplementedError as error:
                log.warning("this checkpoint has no simulator state, resuming will start new episodes: %s", error)
        names = ("number", "num_episodes", "episode_return", "episode_length", "discounted_return")
        return {
            "simulator": simulator,
            "num_envs": self.num_envs,
            "trajectories": [{name: getattr(trajectory, name) for name in names} for trajectory in self._trajectories],
            "returns": list(self._returns),
            "env_steps": self._env_steps,
            "errors": self._errors,
            "reward_scale": self._scale.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        saved = state.get("num_envs", len(state["trajectories"]))  # older checkpoints do not have it
        if saved != self.num_envs:
            raise ValueError(f"rollout.num_envs is {self.num_envs}, the checkpoint has {saved} environments")
        self._trajectories = [EnvTrajectory(**each) for each in _number_trajectories(state["trajectories"])]
        self._returns = deque(state["returns"], maxlen=self.stats_window_size)
        self._env_steps, self._errors = state["env_steps"], state["errors"]
        if "reward_scale" in state:  # older checkpoints do not have it
            self._scale.load_state_dict(state["reward_scale"])
        self._env, self._saved = None, state["simulator"]
        if self._saved is None and self._env_steps:
            log.warning("the checkpoint has no simulator state: the environments start new episodes")
            for trajectory in self._trajectories:
                trajectory.end_episode()

    def share_states(self, states: Sequence[Mapping[str, Any]], rank: int, size: int) -> dict[str, Any]:
        """Return the state of process `rank` of `size`, whose environments start new episodes, from those of others."""
        saved = [each for state in states for each in _number_trajectories(state["trajectories"])]
        trajectories = {each["number"]: each for each in saved}
        returns = [each for state in states for each in state["returns"]]

        def share(name: str) -> int:
            return len(range(rank, sum(state[name] for state in states), size))

        return {
            "simulator": None,
            "num_envs": states[0].get("num_envs", len(trajectories)),
            "trajectories": [trajectories[number] for number in sorted(trajectories)],
            "returns": returns[rank::size],
            "env_steps": share("env_steps"),
            "errors": share("errors"),
            **{name: states[0][name] for name in ("reward_scale",) if name in states[0]},
        }

    def _open(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> AutoresetAdapter:
        """The environments, reset on first use, with spaces checked against the policy."""
        if self._env is None:
            self._trajectories = [each for each in self._trajectories if each.number % ctx.world_size == ctx.rank]
            envs = len(self._trajectories)
            self._env = AutoresetAdapter(simulator_of(ctx.task, "rollout=fixed_horizon").make(envs))
            if self._saved is None:
                first = [prompt.info["seed"] for _, prompt in prompts][:envs] if not self._env_steps else []
                self._env.reset([*first, *(self._episode_seed(w, ctx) for w in range(len(first), envs))])
            else:
                self._env.load_state_dict(self._saved)
                self._saved = None
        if self._checked is not ctx.policy:
            ctx.policy.check_spaces(self._env.venv.single_observation_space, self._env.venv.single_action_space)
        self._checked = ctx.policy
        return self._env

    def _note_rewards(self, acting: Sequence[int], step: EnvStep) -> None:
        """Note the rewards of a step for their scale; those of environments that failed are undefined."""
        for w, reward in zip(acting, step.rewards):
            end = step.ends.get(w)
            if end is None or end.error is None:
                trajectory = self._trajectories[w]
                trajectory.discounted_return = self._scale.add(trajectory.discounted_return, reward)

    def _episode_seed(self, w: int, ctx: Context, following: int = 0) -> int:
        """Seed of the current or a following episode of environment `w`: one of the task's initial states."""
        trajectory = self._trajectories[w]
        index = derive_seed(ctx.seed, "life", trajectory.number, trajectory.num_episodes + following) % len(ctx.task)
        return ctx.task[index].info["seed"]

    def _draws(self, ctx: Context) -> Noise:
        """Seeds of this iteration's decisions, one stream per environment."""
        key = (ctx.seed, ctx.purpose, ctx.iteration)
        return Noise([derive_seed(*key, trajectory.number) for trajectory in self._trajectories])

    def _count(self, trajectory: EnvTrajectory, end: EpisodeEnd, task: Task) -> None:
        """Count returns and failures of whole episodes, independent of where segments are cut."""
        if end.error is not None:
            self._errors += 1
            log.warning("environment %d of %s failed: %s", trajectory.number, task.name, end.error)
        else:
            self._returns.append(trajectory.episode_return)
        trajectory.end_episode()


def _number_trajectories(trajectories: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Number saved trajectories in their order, as older checkpoints, of one process, do not."""
    return [{"number": number, **each} for number, each in enumerate(trajectories)]
