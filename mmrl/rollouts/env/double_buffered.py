"""Whole episodes in two vector environments: one is stepped in processes while the policy infers for the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mmrl.core.episode_limit import check_end
from mmrl.core.types import Context, Episode, Prompt, Task, Turn
from mmrl.rollouts.base import simulator_of
from mmrl.rollouts.env import episodic
from mmrl.rollouts.env.episodic import EpisodicRollout, mask_unplayed

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv


class DoubleBufferedRollout(EpisodicRollout):
    """Play whole episodes as `EpisodicRollout` does, in two halves that take turns with the policy.

    Every draw belongs to an episode and a decision, so the same seeds give the same actions; the network reads half as
    many rows at once, which may change the last bits of what it computes. The simulator needs sim.workers=N, and 2 N
    processes are started, of which N step at any time.

    Args:
        max_envs: most environments at once, both halves together; more episodes are played in equal waves.
        bootstrap: as of `EpisodicRollout`.
    """

    _halves: tuple[VectorEnv, ...] = ()

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        episodes = [Episode(p, group=slot, sample_index=i) for slot, p in prompts for i in ctx.sample_indices(slot)]
        if not episodes:
            return []
        waves = -(-len(episodes) // self.max_envs)
        size = -(-len(episodes) // (2 * waves))
        envs = self._open(ctx.task, size)
        ctx.progress("rollout", 0, len(episodes))
        finished = 0
        for start in range(0, len(episodes), 2 * size):
            wave = [episodes[start : start + size], episodes[start + size : start + 2 * size]]
            halves = [
                _Half(env, part, ctx, self.bootstrap, self.max_decisions) for env, part in zip(envs, wave) if part
            ]
            while any(half.live for half in halves):
                for half in halves:
                    finished += half.receive()
                    half.act()
                ctx.progress("rollout", finished, len(episodes))
        return episodes

    def _open(self, task: Task, size: int) -> tuple[VectorEnv, ...]:
        sim = simulator_of(task, "rollout=double_buffered")
        if not self._halves or self._made_for != (sim, size):
            self.close()
            self._halves, self._made_for = (sim.make(size), sim.make(size)), (sim, size)
        if not hasattr(type(self._halves[0]), "step_async"):
            self.close()
            raise ValueError(
                f"rollout=double_buffered: sim {sim.name!r} is stepped in this process, where nothing runs at the same "
                "time; set sim.workers=N (reward models and skills do not support it), or take rollout=env"
            )
        return self._halves

    def close(self) -> None:
        for env in self._halves:
            env.close()
        self._halves, self._made_for = (), None


class _Half:
    """The episodes of one vector environment, between two decisions or while it is stepped."""

    def __init__(self, env: VectorEnv, episodes: list[Episode], ctx: Context, bootstrap: bool, max_decisions: int):
        self.env, self.episodes, self.ctx, self.bootstrap = env, episodes, ctx, bootstrap
        self.max_decisions = max_decisions
        seeds = [int(episodic._seed(episode.prompt)) for episode in episodes]
        self.observation, _ = env.reset(seed=seeds + seeds[-1:] * (env.num_envs - len(seeds)))  # type: ignore[arg-type]
        self.live = list(range(len(episodes)))
        self.decision = 0
        self._completions: list[Any] = []  # of the step that is under way

    def act(self) -> None:
        """Infer the actions of the live environments and begin to step them."""
        if not self.live:
            return
        raws = episodic.split_observations(self.observation, self.live)
        if self.decision == 0:
            for episode, raw in zip(self.episodes, raws):
                if "instruction" in raw:
                    episode.info["instruction"] = str(raw["instruction"])
        requests = episodic._requests(raws, self.episodes, self.live, self.decision, self.ctx)
        self._completions = list(self.ctx.engine.sample(requests, self.ctx.sampling))
        self.env.step_async(episodic._actions(self.env, self.live, self._completions))  # type: ignore[attr-defined]

    def receive(self) -> int:
        """Wait for the step, if one is under way, and add its turns; returns how many episodes ended."""
        if not self._completions:
            return 0
        self.observation, rewards, terminated, truncated, infos = self.env.step_wait()  # type: ignore[attr-defined]
        for i, completion in zip(self.live, self._completions):
            if "executed" in infos:
                mask_unplayed(completion, int(infos["executed"][i]))
            self.episodes[i].turns.append(Turn(completion, float(rewards[i])))  # type: ignore[attr-defined]
        over = [i for i in self.live if terminated[i] or truncated[i]]
        self.decision += 1
        for i in over:
            episodic._finish(self.episodes[i], i, bool(terminated[i]), infos)
            self.episodes[i].info["decisions"] = self.decision
        self.live = [i for i in self.live if not (terminated[i] or truncated[i])]
        self._completions = []
        if self.live:
            check_end(self.ctx.task.name, self.decision, len(self.live), self.max_decisions)
        if self.bootstrap:
            episodic._bootstrap(self.observation, [self.episodes[i] for i in over], over, self.ctx)
        return len(over)
