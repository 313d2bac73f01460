"""Record samples of held-out episodes: what the policy read and wrote, beside the metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mmrl.core.types import Context, Episode
from mmrl.policies.base import Policy
from mmrl.samples.record import SampleFormat
from mmrl.transforms.base import EpisodeTransform

PROMPT = ("key", "messages", "images", "answer")
"""Entries of a sample that belong to the prompt; the others belong to the episode."""


@dataclass(frozen=True)
class RecordSamples(EpisodeTransform):
    """Writes `info["sample"]` of every episode with text, before its tensors and images are dropped.

    Args:
        score_name: score of 0 or 1 that says whether an episode succeeded; None when there is none.
    """

    score_name: str | None = None

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        return [self._record(episode, ctx.policy) for episode in episodes]

    def _record(self, episode: Episode, policy: Policy) -> Episode:
        if not isinstance(episode.output, str):
            return episode
        form = SampleFormat(policy, self.score_name)
        sample = form.describe_prompt(episode) | form.describe_episode(episode)
        return replace(episode, info={**episode.info, "sample": sample})


def group_samples(episodes: Sequence[Episode], score_name: str | None) -> list[dict[str, Any]]:
    """Group the samples of episodes by prompt, in the order of the episodes; those without a sample are left out."""
    groups: dict[int, dict[str, Any]] = {}
    for episode in episodes:
        sample = episode.info.get("sample")
        if sample is None:
            continue
        prompt = {name: sample.get(name) for name in PROMPT} | {"group": episode.group, "score_name": score_name}
        group = groups.setdefault(episode.group, {**prompt, "images": sample.get("images", []), "episodes": []})
        group["episodes"].append({name: value for name, value in sample.items() if name not in PROMPT})
    return list(groups.values())
