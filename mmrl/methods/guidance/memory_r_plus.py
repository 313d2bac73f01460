"""Memory-R+: intrinsic rewards by embedding distance to earlier successes and to earlier failures.

Reasoning Under 1 Billion: Memory-Augmented Reinforcement Learning for Large Language Models, 2025, arXiv:2504.02273.

- embeddings of earlier answers, read by the nearest prompts: `EpisodicMemory`
- distance to the mean success and to the nearest failure: `exploit_reward`, `explore_reward`
- both scaled by a sliding window and added to the reward: `MemoryReward`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from mmrl.core.errors import check_at_least
from mmrl.core.groups import group_episodes
from mmrl.core.types import Context, Episode
from mmrl.transforms.base import StatefulTransform
from mmrl.transforms.text_embedding import embed_texts, prompt_text


def exploit_reward(answers: Tensor, successes: Tensor) -> Tensor:
    """-||a - mean(successes)|| of each answer [G], from embeddings [G, D] and [n, D], n > 0."""
    return -(answers - successes.mean(0)).norm(dim=1)


def explore_reward(answers: Tensor, failures: Tensor) -> Tensor:
    """1 - max_b cos(a, b) over the failures b of each answer [G], from embeddings [G, D] and [n, D], n > 0."""
    return 1 - cosine_similarity(answers[:, None], failures[None], dim=2).amax(1)


def scale_by_window(values: Sequence[float], window: list[float], size: int) -> list[float]:
    """Append values to a window of the last `size` and return (v - min) / (max - min + 1e-8) of the window.

    All new values are in the window, even if there are more than `size`.
    """
    window.extend(values)
    del window[: len(window) - max(size, len(values))]
    least, most = min(window), max(window)
    return [(value - least) / (most - least + 1e-8) for value in values]


class EpisodicMemory:
    """Embeddings of answers by prompt, read by the nearest prompts; the oldest answers and prompts are dropped."""

    def __init__(self) -> None:
        self.entries: dict[str, tuple[Tensor, Tensor]] = {}  # by the prompt's key: embeddings [D] and [n, D]

    def write(self, key: str, prompt: Tensor, answers: Tensor, max_prompts: int, max_answers: int) -> None:
        """Store the embedding [D] of a prompt and those of answers to it [n, D]."""
        if len(answers):
            _, before = self.entries.get(key, (prompt, answers[:0]))
            self.entries[key] = prompt, torch.cat([before, answers])[-max_answers:]
        for old in list(self.entries)[: max(0, len(self.entries) - max_prompts)]:
            del self.entries[old]

    def read(self, prompt: Tensor, neighbours: int) -> Tensor:
        """Embeddings [n, D] of the answers to the stored prompts whose cosine to the prompt's [D] is largest."""
        if not self.entries:
            return prompt.new_zeros(0, len(prompt))
        prompts, answers = zip(*self.entries.values())
        similarity = cosine_similarity(torch.stack(prompts), prompt[None], dim=1)
        return torch.cat([answers[k] for k in similarity.topk(min(neighbours, len(prompts))).indices.tolist()])


@dataclass
class MemoryReward(StatefulTransform):
    """Add an intrinsic reward from memories of earlier answers: r + exploit_coef s + explore_coef f.

    s is the scaled `exploit_reward` against the successes among the answers to the nearest prompts, f the scaled
    `explore_reward` against the failures; each is 0 where its memory is empty. The memories hold answers of earlier
    iterations, of all processes. Scores `exploit` and `explore` are s and f; curricula see the reward without them.
    Memory-R is explore_coef=0. Source: Memory-R+, 2025, sections 2.2 and 2.3, arXiv:2504.02273.

    Args:
        encoder: "reference", or one of model.frozen_models; it has `hidden_layers`.
        neighbours: stored prompts whose answers are read.
        max_answers: of a prompt, in each memory.
        max_prompts: in each memory; the paper has room for the whole training set.
        success_threshold: an answer with a higher reward is a success, any other a failure.
        window: values by whose minimum and maximum a reward is scaled.
        exploit_coef: factor of s.
        explore_coef: factor of f; the paper begins with it after about 50 steps, see `mmrl.schedules`.
        rows: texts per forward pass of the encoder.
    """

    encoder: str = "reference"
    neighbours: int = 1
    max_answers: int = 100
    max_prompts: int = 1000
    success_threshold: float = 0.5
    window: int = 100
    exploit_coef: float = 1.0
    explore_coef: float = 1.0
    rows: int = 64
    _memories: tuple[EpisodicMemory, EpisodicMemory] = field(init=False, repr=False)  # of successes, of failures
    _windows: tuple[list[float], list[float]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_at_least(1, "memory_reward", neighbours=self.neighbours, max_answers=self.max_answers)
        check_at_least(1, "memory_reward", max_prompts=self.max_prompts, window=self.window, rows=self.rows)
        self._memories, self._windows = (EpisodicMemory(), EpisodicMemory()), ([], [])

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        if self.encoder not in ctx.models:
            raise ValueError(
                f"memory_reward.encoder={self.encoder!r} is none of the learner's models {sorted(ctx.models)}; set "
                "model.reference=true or add it to model.frozen_models"
            )
        groups = group_episodes(episodes)
        prompts = [prompt_text(group[0].prompt) for group in groups.values()]
        answers = [str(episode.output) for group in groups.values() for episode in group]
        embedded = embed_texts([*prompts, *answers], ctx.models[self.encoder], self.rows)
        answer_embeddings = iter(embedded[len(groups) :].split([len(group) for group in groups.values()]))
        local_groups = []
        for prompt, (slot, group) in zip(embedded, groups.items()):
            success = torch.tensor([episode.reward > self.success_threshold for episode in group])
            local_groups.append((slot, group[0].prompt.key, prompt.clone(), next(answer_embeddings).clone(), success))
        everyone = sorted(ctx.collector.gather(local_groups), key=lambda part: part[0])
        scores = {slot: self._score(prompt, embeddings) for slot, _, prompt, embeddings, _ in everyone}
        for _, key, prompt, embeddings, success in everyone:
            for memory, mask in zip(self._memories, (success, ~success)):
                memory.write(key, prompt, embeddings[mask], self.max_prompts, self.max_answers)
        for slot, group in groups.items():
            for episode, exploit, explore in zip(group, *scores[slot]):
                episode.scores = {**episode.scores, "exploit": exploit, "explore": explore}
                episode.reward += self.exploit_coef * exploit + self.explore_coef * explore
        return episodes

    def _score(self, prompt: Tensor, answers: Tensor) -> list[list[float]]:
        """Scaled rewards of a group's answers [G, D]: to exploit successes, and to explore apart from failures."""
        out, measures = [], (exploit_reward, explore_reward)
        for measure, memory, window in zip(measures, self._memories, self._windows):
            embeddings = memory.read(prompt, self.neighbours)
            scaled = (
                scale_by_window(measure(answers, embeddings).tolist(), window, self.window) if len(embeddings) else None
            )
            out.append(scaled or [0.0] * len(answers))
        return out

    def state_dict(self) -> dict[str, Any]:
        return {"memories": [dict(memory.entries) for memory in self._memories], "windows": [*map(list, self._windows)]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for memory, window, entries, values in zip(self._memories, self._windows, state["memories"], state["windows"]):
            memory.entries, window[:] = dict(entries), values
