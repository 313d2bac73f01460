"""Agent-RLVR: attempts with guidance for problems that no attempt solves, and their rows without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch

from mmrl.core.errors import ConfigError, check_at_least
from mmrl.core.groups import get_score, group_episodes
from mmrl.core.types import Context, Episode, Prompt, Task, Turn
from mmrl.policies.base import Policy
from mmrl.rollouts.base import Rollout
from mmrl.transforms.base import EpisodeTransform


@runtime_checkable
class GuidingTask(Protocol):
    """A task that can guide an agent whose attempts at a problem have failed."""

    def guide(self, prompt: Prompt, attempts: Sequence[Episode]) -> str:
        """Write guidance for a problem: a plan, what the tests said of an attempt, where to look."""


def guiding_task(task: Task) -> GuidingTask:
    """Return the task; refuses one without guidance.

    Raises:
        ConfigError: it has none.
    """
    if not isinstance(task, GuidingTask):
        raise ConfigError(
            f"retry_with_guidance: task {task.name!r} gives no guidance; give it a method guide(prompt, attempts), as "
            "tasks.patches.task.Patches has it"
        )
    return task


def add_guidance(prompt: Prompt, text: str, instruction: str) -> Prompt:
    """Return the prompt with guidance at the end of its last message, whose text must be a string."""
    *before, last = prompt.messages
    return replace(prompt, messages=(*before, {**last, "content": f"{last['content']}{instruction}{text}"}))


def remove_guidance(episode: Episode, prompt: Prompt, rollout: Rollout, policy: Policy) -> Episode:
    """Return an episode of one row in the context of the prompt without guidance.

    The tokens stay, and so does which of them the policy chose. They were not sampled in this context, so their
    log-probabilities are no longer known: 0, of version -1. `info["guided"]` is True.

    Raises:
        ConfigError: the episode has several rows, of which the later ones show guidance in their conversation.
    """
    if len(episode.turns) != 1:
        raise ConfigError(
            f"retry_with_guidance: an attempt at {episode.prompt.key!r} has {len(episode.turns)} rows, and guidance "
            "leaves the context of one; use tools without images in their results"
        )
    done = episode.turns[0].completion
    observation = policy.encode(rollout.build_observation(prompt, policy))
    plain = replace(
        done,
        observation=observation,
        behavior_logprobs=torch.zeros_like(done.behavior_logprobs),
        prompt_id=None,
        policy_version=-1,
    )
    info = {**episode.info, "guided": True}
    return replace(episode, prompt=prompt, turns=[Turn(plain, episode.turns[0].reward)], info=info)


@dataclass(frozen=True)
class RetryWithGuidance(EpisodeTransform):
    """Tries problems again with guidance where no attempt passes, and adds these attempts without the guidance.

    The guidance is the task's (`GuidingTask`), and stands behind the prompt. The attempts join the group of the
    problem. Metrics of the reward are those of attempts without guidance; `rollout/guidance/problems` counts the
    problems that were tried again, `rollout/guidance/solved` those with an attempt that passed then, and
    `rollout/guidance/attempts` these attempts. Source: Agent-RLVR, 2025, arXiv:2506.11425.

    Args:
        rollout: how the agent acts, as data.rollout.
        retries: attempts with guidance at a problem.
        score_name: "reward", or the name of a score; an attempt failed where it is at most 0.
        instruction: text between the prompt and the guidance.
    """

    rollout: Rollout
    retries: int = 4
    score_name: str = "exact"
    instruction: str = "\nGuidance:\n"

    def __post_init__(self) -> None:
        check_at_least(1, "retry_with_guidance", retries=self.retries)

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        groups = group_episodes(episodes)
        failed = {slot: group for slot, group in groups.items() if not any(map(self._passes, group))}
        guided = self._retry(failed, ctx)
        for slot, group in groups.items():
            added = guided.get(slot, [])
            counts = {
                "guidance/problems": int(slot in failed),
                "guidance/solved": int(any(map(self._passes, added))),
                "guidance/attempts": len(added),
            }
            group[0].info["counts"] = {**group[0].info.get("counts", {}), **counts}
        return [episode for slot, group in groups.items() for episode in (*group, *guided.get(slot, ()))]

    def _passes(self, episode: Episode) -> bool:
        return get_score(episode, self.score_name) > 0

    def _retry(self, failed: dict[int, list[Episode]], ctx: Context) -> dict[int, list[Episode]]:
        """Play these problems with guidance; attempts that ended in an error are left out."""
        if not failed:
            return {}
        task, plain, prompts = guiding_task(ctx.task), {}, []
        for slot, group in failed.items():
            plain[slot] = group[0].prompt
            prompts.append((slot, add_guidance(plain[slot], task.guide(plain[slot], group), self.instruction)))
        indices = dict.fromkeys(failed, range(self.retries))
        played = self.rollout.collect(prompts, replace(ctx, purpose=f"{ctx.purpose}/guided", requested_indices=indices))
        ctx.collector.score(played)
        finished = [episode for episode in played if episode.ended != "error"]
        out: dict[int, list[Episode]] = {}
        for episode in finished:
            first = max(each.sample_index for each in failed[episode.group]) + 1
            stripped = remove_guidance(episode, plain[episode.group], self.rollout, ctx.policy)
            stripped = replace(stripped, sample_index=first + episode.sample_index)
            out.setdefault(episode.group, []).append(stripped)
        return out
