"""Whole episodes in a simulator: every decision of every running environment is one request and one turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mmrl.core.episode_limit import check_end
from mmrl.core.errors import check_at_least
from mmrl.core.rng import derive_seed
from mmrl.core.types import Completion, Context, Episode, Prompt, Request, Task, Turn
from mmrl.rollouts.base import Rollout, simulator_of

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv


class EpisodicRollout(Rollout):
    """Play whole episodes side by side in one vector environment, each to its own end.

    The environment's `reset(seed=[one per environment])` must make the initial state of environment i a
    function of seed[i] alone, and one that ended must keep still until the next reset (autoreset disabled). It may
    report in `infos` "executed" int [n] control steps of the decision, "scores" {name: float [n]} and "error" bool [n].

    Args:
        max_envs: most environments at once; more episodes are played in equal waves.
        bootstrap: a state in which time ran out is worth what the policy's value says, as if the episode went on.
            Where doing it in time is the task, and running out of time the common failure, this must be False: no
            outcome would ever be bad, and the value would learn from itself alone.
        max_decisions: of an episode, after which the run stops; a tenth of them is said.
    """

    def __init__(self, max_envs: int = 256, bootstrap: bool = True, max_decisions: int = 50_000):
        check_at_least(1, "rollout", max_envs=max_envs, max_decisions=max_decisions)
        self.max_envs, self.bootstrap, self.max_decisions = max_envs, bootstrap, max_decisions
        self._env: VectorEnv | None = None
        self._made_for: tuple[Any, int] | None = None

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        episodes = [Episode(p, group=slot, sample_index=i) for slot, p in prompts for i in ctx.sample_indices(slot)]
        if not episodes:
            return []
        waves = -(-len(episodes) // self.max_envs)
        size = -(-len(episodes) // waves)
        env = self._environment(ctx.task, size)
        ctx.progress("rollout", 0, len(episodes))
        for start in range(0, len(episodes), size):
            some = episodes[start : start + size]
            _play(env, some, ctx, start, len(episodes), self.bootstrap, self.max_decisions)
        return episodes

    def _environment(self, task: Task, count: int) -> VectorEnv:
        """The environment of the last call while simulator and size are the same: making one costs time."""
        sim = simulator_of(task, "rollout=env")
        if self._env is None or self._made_for != (sim, count):
            self.close()
            self._env, self._made_for = sim.make(count), (sim, count)
        return self._env

    def close(self) -> None:
        """Give the simulator back."""
        if self._env is not None:
            self._env.close()
        self._env = self._made_for = None

    def __getstate__(self) -> dict[str, Any]:
        names = ("max_envs", "bootstrap", "max_decisions")
        return {**{name: getattr(self, name) for name in names}, "_env": None, "_made_for": None}


def _play(
    env: VectorEnv,
    episodes: list[Episode],
    ctx: Context,
    finished: int,
    total: int,
    bootstrap: bool,
    max_decisions: int,
) -> None:
    """Play the episodes to their ends; surplus environments repeat the last initial state and stay idle."""
    seeds = [int(_seed(episode.prompt)) for episode in episodes]
    spare = env.num_envs - len(seeds)
    observation, _ = env.reset(seed=seeds + seeds[-1:] * spare)  # type: ignore[arg-type]  # one seed per environment
    live = list(range(len(episodes)))
    decision = 0
    while live:
        raws = split_observations(observation, live)
        if decision == 0:
            for episode, raw in zip(episodes, raws):
                if "instruction" in raw:
                    episode.info["instruction"] = str(raw["instruction"])
        completions = ctx.engine.sample(_requests(raws, episodes, live, decision, ctx), ctx.sampling)
        actions = _actions(env, live, completions)
        observation, rewards, terminated, truncated, infos = env.step(actions)
        for i, completion in zip(live, completions):
            if "executed" in infos:
                mask_unplayed(completion, int(infos["executed"][i]))
            episodes[i].turns.append(Turn(completion, float(rewards[i])))  # type: ignore[attr-defined]
        over = [i for i in live if terminated[i] or truncated[i]]
        for i in over:
            _finish(episodes[i], i, bool(terminated[i]), infos)
            episodes[i].info["decisions"] = decision + 1
        live = [i for i in live if not (terminated[i] or truncated[i])]
        decision += 1
        if live:
            check_end(ctx.task.name, decision, len(live), max_decisions)
        if bootstrap:
            _bootstrap(observation, [episodes[i] for i in over], over, ctx)
        ctx.progress("rollout", finished + len(episodes) - len(live), total)


def _actions(env: VectorEnv, live: Sequence[int], completions: Sequence[Completion]) -> np.ndarray:
    """Actions of the policy for live environments, zeros for the others."""
    outputs = np.stack([np.asarray(completion.output) for completion in completions])
    space = env.action_space
    assert space.shape is not None  # of a box or of discrete actions
    if (len(live), *space.shape[1:]) != outputs.shape:
        raise ValueError(
            f"the policy's actions have shape {outputs.shape[1:]}, but the simulator takes {space.shape[1:]} per "
            "decision; set the policy's chunk and action size to the sim's"
        )
    actions = np.zeros(space.shape, dtype=space.dtype)  # type: ignore[arg-type]
    actions[live] = outputs
    return actions


def _seed(prompt: Prompt) -> int:
    if "seed" not in prompt.info:
        raise ValueError(f"prompt {prompt.key!r} has no info['seed'] for the simulator's initial state")
    return prompt.info["seed"]


def split_observations(observation: Any, env_ids: Sequence[int]) -> list[dict[str, Any]]:
    """The raw observation of each environment: its row of every entry, or {"state": row} of a plain array."""
    if isinstance(observation, Mapping):
        return [{name: rows[i] for name, rows in observation.items()} for i in env_ids]
    return [{"state": observation[i]} for i in env_ids]


def _requests(
    raws: list[dict[str, Any]], episodes: Sequence[Episode], env_ids: Sequence[int], decision: int, ctx: Context
) -> list[Request]:
    key = (ctx.seed, ctx.purpose, ctx.iteration)
    requests = []
    for raw, i in zip(raws, env_ids):
        group = episodes[i].group
        seed = derive_seed(*key, group, episodes[i].sample_index, decision)
        # the episodes of a group start in the same state
        requests.append(Request(raw, seed, prompt_id=None if decision else group))
    return requests


def mask_unplayed(completion: Completion, executed: int) -> None:
    """Choices for control steps that were never played had no effect: they are not trained on.

    Ids [T] are the entries of the output, control step after control step; reals [T, A] are control steps, once or in
    several blocks (the states of a denoising chain), and the same steps of every block are masked. Other choices shape
    the whole output and stay.
    """
    shape, choices = np.shape(completion.output), len(completion.action_mask)
    if not shape or executed >= shape[0] or choices % shape[0]:
        return
    if completion.action.dim() == 2:
        completion.action_mask = completion.action_mask.clone()
        completion.action_mask.view(-1, shape[0])[:, executed:] = False
    elif completion.action.numel() == np.prod(shape):
        completion.action_mask = completion.action_mask.clone()
        completion.action_mask[choices * executed // shape[0] :] = False


def _finish(episode: Episode, i: int, terminated: bool, infos: Mapping[str, Any]) -> None:
    error = "error" in infos and bool(infos["error"][i])
    episode.ended = "error" if error else "done" if terminated else "time"
    scores = infos.get("scores", {})  # gymnasium adds one named _name per name, which says whose entries are set
    episode.info["scores"] = {name: float(column[i]) for name, column in scores.items() if name[0] != "_"}
    if "task" in infos:
        episode.info["task"] = str(infos["task"][i])


def _bootstrap(observation: Any, episodes: Sequence[Episode], env_ids: Sequence[int], ctx: Context) -> None:
    """Set the value of the state in which time ran out; a policy without values leaves zero."""
    late = [(episode, i) for episode, i in zip(episodes, env_ids) if episode.ended == "time"]
    if not late or late[0][0].turns[-1].completion.value is None:
        return
    values = ctx.engine.predict_values(split_observations(observation, [i for _, i in late]))
    for (episode, _), value in zip(late, values):
        episode.bootstrap_value = value
