"""Convert groups of episodes to plain rows: prompt, images, completions by token, tool calls, scores, reward.

A group is {key, group, messages, images, answer, episodes}. An episode with text has its turns, each with its tokens
and a number per token in every other list: `chosen` (1 where the policy wrote it), `logprobs`, and where the batch has
them `advantages` and `ratios`. An episode of a simulator has its length and no tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.groups import group_episodes
from mmrl.core.types import Completion, Episode, Prompt
from mmrl.policies.base import Policy
from mmrl.samples.images import encode_thumbnail
from mmrl.samples.view import count_repeated

MAX_CHARACTERS = 20_000  # of a text
MAX_TURNS = 16  # of an episode
MAX_IMAGES = 8  # of a prompt
CONTEXT_TOKENS = 256  # of the context of a further turn


@dataclass(frozen=True)
class SampleFormat:
    """Converts episodes to plain rows.

    Args:
        policy: that wrote them.
        score_name: score of 0 or 1 that says whether an episode succeeded; None when there is none.
        max_tokens: of a turn; of a longer one the first and the last half are kept.
        max_episodes: of a group.
    """

    policy: Policy
    score_name: str | None = None
    max_tokens: int = 1024
    max_episodes: int = 16

    def describe_groups(self, groups: Sequence[Sequence[Episode]], rows: EpisodeRows | None = None) -> list[dict]:
        """Convert groups of episodes of one prompt; `rows` has the columns of those that are trained on."""
        return [self._describe_group(group, rows or EpisodeRows()) for group in groups]

    def _describe_group(self, group: Sequence[Episode], rows: EpisodeRows) -> dict[str, Any]:
        row = {"group": group[0].group, **self.describe_prompt(group[0]), "score_name": self.score_name}
        episodes = group[: self.max_episodes]
        return {**row, "group_size": len(group), "episodes": [self.describe_episode(each, rows) for each in episodes]}

    def describe_prompt(self, episode: Episode) -> dict[str, Any]:
        """Convert the prompt: its key, messages, thumbnails of its images and of frames of videos, the right answer.

        With tools, calls or reasoning the messages are one text, as the model read it, because the rollout or the chat
        template adds them to it.
        """
        prompt, messages = episode.prompt, [to_plain(message) for message in episode.prompt.messages]
        further = prompt.tools or any(message.keys() - {"role", "content"} for message in prompt.messages)
        if ("calls" in episode.info or further) and len(episode.turns):
            ids = episode.turns[0].completion.observation["input_ids"].tolist()
            text = count_repeated("".join(self.policy.token_texts(ids)))
            messages = [{"role": "context", "content": clip_text(text)}]
        return {
            "key": prompt.key,
            "messages": messages,
            "images": [encode_thumbnail(image) for image in choose_images(prompt)],
            "answer": None if prompt.answer is None else to_plain(prompt.answer),
        }

    def describe_episode(self, episode: Episode, rows: EpisodeRows | None = None) -> dict[str, Any]:
        """Convert one episode."""
        columns = None if rows is None else rows.find(episode)
        info = episode.info
        row = {
            "sample_index": episode.sample_index,
            "ended": episode.ended,
            "reward": to_number(episode.reward),
            "scores": {name: to_number(score) for name, score in episode.scores.items()},
            "trained": columns is not None,
            "source": episode.source,
            "role": episode.role,
            "error": clip_text(info.get("error")),
            "extracted": clip_text(info.get("extracted")),
        }
        if isinstance(episode.output, str):
            turns = list(episode.turns[:MAX_TURNS])
            row["output"] = clip_text(episode.output)
            row["turns"] = [
                self._describe_turn(turn.completion, None if columns is None else columns[i], i > 0)
                for i, turn in enumerate(turns)
            ]
            row["calls"] = describe_calls(info.get("calls") or (), row["turns"])
        else:
            row["instruction"] = clip_text(info.get("instruction"))
            row["decisions"] = info.get("decisions", len(episode.turns))
        return {name: value for name, value in row.items() if value not in (None, [], "policy", "actor")}

    def _describe_turn(self, done: Completion, columns: Batch | None, later: bool) -> dict[str, Any]:
        length = len(done.action)
        indices = list(range(length))
        if length > self.max_tokens:
            half = self.max_tokens // 2
            indices = [*range(half), *range(length - half, length)]
        ids = done.action.tolist()
        texts = self.policy.token_texts([ids[i] for i in indices])
        row: dict[str, Any] = {
            "tokens": texts if self.policy.chooses_tokens else [done.output],
            "chosen": [int(done.action_mask[i]) for i in indices],
            "logprobs": _numbers(done.behavior_logprobs, indices),
        }
        if len(indices) < length:
            row["omitted"] = {"after": len(indices) // 2, "tokens": length - len(indices)}
        if later:
            context = done.observation.get("input_ids", torch.zeros(0, dtype=torch.long))
            row["context"] = "".join(self.policy.token_texts(context[-CONTEXT_TOKENS:].tolist()))
        if columns is not None:
            for name, values in _choice_columns(columns).items():
                row[name] = _numbers(values, indices)
        return row


@dataclass(frozen=True)
class EpisodeRows:
    """The rows of a batch by the episode that they belong to.

    Args:
        episodes: in the order in which they were collated.
        batch: their rows with annotated columns; empty for none.
    """

    episodes: Sequence[Episode] = ()
    batch: Batch = field(default_factory=Batch)

    @cached_property
    def _numbers(self) -> dict[tuple[int, int, str, str], int]:
        """Position of each episode that has rows."""
        return {_identify(each): number for number, each in enumerate(self.episodes) if len(each.turns)}

    def find(self, episode: Episode) -> list[Batch] | None:
        """Return the rows of an episode, one for each of its turns; None where it is not in the batch."""
        number = self._numbers.get(_identify(episode))
        if number is None or not self.batch:
            return None
        index = (self.batch["episode"] == number).nonzero().flatten()
        columns = Batch({name: self.batch[name] for name in _COLUMNS if name in self.batch}).select(index)
        return columns.cut([1] * len(index))

    def add_trained(self, groups: Mapping[int, list[Episode]]) -> list[list[Episode]]:
        """Append to each group the episodes of the batch that it lacks, such as demonstrations."""
        out = {number: list(group) for number, group in groups.items()}
        for episode in self.episodes:
            group = out.get(episode.group)
            if group is not None and _identify(episode) not in map(_identify, group):
                group.append(episode)
        return list(out.values())


_COLUMNS = ("action_mask", "advantages", "behavior_logprobs", "old_logprobs", "importance_weights")


def choose_images(prompt: Prompt) -> list[np.ndarray]:
    """Choose at most `MAX_IMAGES` images: those of the prompt, then evenly spaced frames of each of its videos."""
    images = list(prompt.images[:MAX_IMAGES])
    for number, video in enumerate(prompt.videos):
        count = min((MAX_IMAGES - len(images)) // (len(prompt.videos) - number), len(video.frames))
        images += [video.frames[i] for i in np.linspace(0, len(video.frames) - 1, count).round().astype(int)]
    return images


def _identify(episode: Episode) -> tuple[int, int, str, str]:
    return episode.group, episode.sample_index, episode.source, episode.role


def first_groups(episodes: Sequence[Episode], count: int) -> dict[int, list[Episode]]:
    """Return the first groups in the order in which they were sampled, whatever they earned."""
    groups = list(dict.fromkeys(episode.group for episode in episodes))[:count]
    return group_episodes([episode for episode in episodes if episode.group in groups])


def describe_calls(calls: Sequence[Sequence[Any]], turns: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """List tool calls with their outcome and result; results are the forced tokens of the turns, in order."""
    texts = [text for turn in turns for text in _forced_texts(turn)]
    results = texts if len(texts) == len(calls) else [None] * len(calls)
    return [
        {"name": name, "arguments": to_plain(arguments), "outcome": outcome, "result": result}
        for (name, arguments, outcome), result in zip(calls, results)
    ]


def _forced_texts(turn: Mapping[str, Any]) -> list[str]:
    """Texts of the runs of tokens that the policy did not choose."""
    texts: list[str] = []
    before = 1
    for text, is_choice in zip(turn["tokens"], turn["chosen"]):
        if not is_choice:
            texts[-1:] = [texts[-1] + text] if not before else [*texts[-1:], text]
        before = is_choice
    return texts


def _choice_columns(columns: Batch) -> dict[str, Tensor]:
    """Advantages and importance ratios [T] of one row, where the batch has them."""
    out = {}
    if "advantages" in columns:
        out["advantages"] = columns["advantages"][0]
    if "importance_weights" in columns:
        out["ratios"] = columns["importance_weights"][0]
    elif "old_logprobs" in columns:
        out["ratios"] = (columns["old_logprobs"] - columns["behavior_logprobs"])[0].exp()
    return out


def _numbers(values: Tensor, indices: Sequence[int]) -> list[float | None]:
    flat = values.float().tolist()
    return [to_number(flat[i]) for i in indices]


def to_number(value: float) -> float | None:
    """Round to five significant digits; None for a number that JSON cannot hold."""
    value = float(value)
    return float(f"{value:.5g}") if math.isfinite(value) else None


def to_plain(value: Any) -> Any:
    """Convert to values that JSON can hold; what is no text, number, list or mapping becomes its repr."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return to_number(value)
    if isinstance(value, Mapping):
        return {str(name): to_plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(part) for part in value]
    return clip_text(value if isinstance(value, str) else repr(value))


def clip_text(text: Any) -> str | None:
    """Cut a text to `MAX_CHARACTERS`; None stays None."""
    if text is None:
        return None
    text = str(text)
    excess = len(text) - MAX_CHARACTERS
    return text if excess <= 0 else f"{text[:MAX_CHARACTERS]} [{excess} characters more]"
