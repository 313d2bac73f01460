"""GHPO: prompt hints of increasing length for groups in which all completions fail.

GHPO: Adaptive Guidance for Stable and Efficient LLM Reinforcement Learning, 2025, arXiv:2507.10628.

- hints of 25, 50 and 75 % of the solution, until a completion succeeds: `HintOnFailure`
- the cold start, a constant hint in the first iterations: `mmrl.rollouts.text.hints.HintedPrompts` with a schedule
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mmrl.core.groups import get_score, group_episodes
from mmrl.core.types import Context, Episode, Prompt
from mmrl.rollouts.text.hints import INSTRUCTION, add_hint, check_fractions
from mmrl.rollouts.text.single_turn import SingleTurn
from mmrl.transforms.base import EpisodeTransform


@dataclass(frozen=True)
class HintOnFailure(EpisodeTransform):
    """Resamples groups in which all completions failed, with prompt hints of increasing length.

    The hint is the first part of the task's demonstration. The group with the first hint that helps a completion to
    succeed, else the one with the longest hint, replaces the group, prompt and completions; the loss sees no other.
    Put it before transforms that drop groups without variance. The reward metrics are those without hints;
    `rollout/hints/groups` counts the groups that got one, `rollout/hints/solved` those that it helped, and
    `rollout/hints/episodes` the completions that were sampled for it.

    Source: GHPO, 2025, adaptive prompt refinement, arXiv:2507.10628.

    Args:
        fractions: of the solution's characters that a hint shows, in increasing order.
        score_name: "reward", or the name of a score; a completion failed where it is at most 0.
        start_iteration: iterations before it give no hints.
        instruction: text between the user's message and the hint.
    """

    fractions: Sequence[float] = (0.25, 0.5, 0.75)
    score_name: str = "exact"
    start_iteration: int = 0
    instruction: str = INSTRUCTION

    def __post_init__(self) -> None:
        fractions = check_fractions(self.fractions, "hint_on_failure")
        if list(fractions) != sorted(set(fractions)):
            raise ValueError(f"hint_on_failure.fractions must increase, got {list(fractions)}")

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        if ctx.iteration < self.start_iteration:
            return episodes
        groups = group_episodes(episodes)
        first = {slot: group[0] for slot, group in groups.items()}
        plain = {slot: self._without_hint(episode.prompt, ctx) for slot, episode in first.items()}
        failed = [slot for slot, group in groups.items() if self._fails(group)]
        further = dict.fromkeys(groups, 0)
        for fraction in self.fractions:
            sampled = self._sample([(plain[slot], groups[slot]) for slot in failed], fraction, ctx)
            further |= {slot: further[slot] + len(group) for slot, group in sampled.items()}
            groups |= sampled
            failed = [slot for slot in failed if self._fails(groups[slot])]
        for slot, episode in first.items():
            solved = further[slot] > 0 and slot not in failed
            counts = {"groups": float(further[slot] > 0), "solved": float(solved), "episodes": float(further[slot])}
            metrics = {f"hints/{name}": count for name, count in counts.items()}
            episode.info["counts"] = {**episode.info.get("counts", {}), **metrics}
        return [episode for group in groups.values() for episode in group]

    def _fails(self, group: Sequence[Episode]) -> bool:
        return all(get_score(episode, self.score_name) <= 0 for episode in group)

    def _without_hint(self, prompt: Prompt, ctx: Context) -> Prompt:
        """Return the prompt as the task gives it, where a cold start has added a hint."""
        return ctx.task[prompt.index] if "hint" in prompt.info else prompt

    def _sample(
        self, groups: Sequence[tuple[Prompt, Sequence[Episode]]], fraction: float, ctx: Context
    ) -> dict[int, list[Episode]]:
        """Sample these groups again with a hint; one whose completions all ended in an error is left out."""
        if not groups:
            return {}
        prompts = []
        for plain, group in groups:
            solution = ctx.task.demonstrate(plain.index)
            prompts.append((group[0].group, add_hint(plain, solution, fraction, self.instruction)))
        # random streams of its own, and as many completions as the group has
        sizes = {group[0].group: range(len(group)) for _, group in groups}
        purpose = f"{ctx.purpose}/hint/{fraction}"
        sampled = SingleTurn().collect(prompts, replace(ctx, purpose=purpose, requested_indices=sizes))
        ctx.collector.score(sampled)
        return group_episodes([episode for episode in sampled if episode.ended != "error"])
