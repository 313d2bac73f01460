"""PEARL: answers to a checklist about the image come first, train perception, and gate the update of reasoning.

Perceptual-Evidence Anchored Reinforced Learning for Multimodal Reasoning, 2025, arXiv:2511.18437.

- the checklist in one prompt, and solutions where some of it is seen: `PerceptionFirst`
- rewards of both roles: `ChecklistReward`; advantages times min(mean of perception, .5), or .1: `GatedAdvantage`
- questions that both roles solve always or never are left out: `DropDecided`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from mmrl.annotators.base import Annotator
from mmrl.core.batch import Batch
from mmrl.core.columns import Column, register_columns
from mmrl.core.errors import check_at_least, check_fraction
from mmrl.core.groups import group_episodes
from mmrl.core.types import Context, Episode, Prompt, Request, Turn
from mmrl.files.patterns import fill_template
from mmrl.ops.advantage import group_advantage
from mmrl.rewards.compose import WeightedSum
from mmrl.rollouts.base import Rollout, text_observation, turn_seed
from mmrl.rollouts.text.single_turn import SingleTurn
from mmrl.transforms.base import EpisodeTransform

PERCEPTION = "perception"
"""Role of the episodes that answer a checklist; those that answer the question are actors."""

register_columns(
    {
        "perceived": Column(
            "[N]",
            "1",
            "PEARL: mean share of the checklist that is right in the answers to its prompt; -1 in rows that answer it",
        )
    }
)


class PerceptionFirst(Rollout):
    """Sample answers to the checklist of each prompt, and solutions of the prompts whose checklist is partly right.

    All questions of a checklist are in one prompt, with the images of the problem, and are answered a line each. Where
    every line of every answer is wrong, no solution is sampled. `info["perceived"]` is the share of an answer's lines
    that are right; blanks around them and capitals are free.

    Source: PEARL, 2025, arXiv:2511.18437: perception roll-outs, and the gate that skips reasoning.

    Args:
        template: of the checklist's prompt, in place of the user's text; {questions} stands for the questions.
        column: key of `Prompt.info` whose value lists the questions and answers of the checklist.
    """

    def __init__(
        self,
        template: str = "Answer each question in a line of its own, without an explanation.\n{questions}",
        column: str = "checklist",
    ):
        if "{questions}" not in template:
            raise ValueError(f"rollout.template={template!r} lacks {{questions}}; write it where they belong")
        self.template, self.column = template, column

    @classmethod
    def writes(cls) -> frozenset[str]:
        return frozenset({"perceived"})

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        answers = group_episodes(self._perceive(prompts, ctx))
        finished = {slot: [e for e in group if e.ended != "error"] for slot, group in answers.items()}
        means = {slot: _mean([e.info["perceived"] for e in group]) for slot, group in finished.items()}
        solutions = SingleTurn().collect([(slot, prompt) for slot, prompt in prompts if means.get(slot, 0) > 0], ctx)
        for episode in solutions:
            episode.turns = [turn.with_columns(perceived=torch.tensor(means[episode.group])) for turn in episode.turns]
        solved = group_episodes(solutions)
        for slot, group in answers.items():
            group[0].info["counts"] = {"perception/asked": 1, "perception/opened": int(means[slot] > 0)}
        return [episode for slot, _ in prompts for episode in (*answers.get(slot, ()), *solved.get(slot, ()))]

    def _perceive(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        """Sample and check the answers to the checklists; a random stream of their own keeps that of the solutions."""
        perception = replace(ctx, purpose=f"{ctx.purpose}/perception")
        episodes, requests = [], []
        for slot, prompt in prompts:
            asked = self.ask(prompt)
            for index in ctx.sample_indices(slot):
                # sample indices behind those of the solutions
                episodes.append(Episode(asked, slot, ctx.group_size + index, role=PERCEPTION))
                seed = turn_seed(slot, index, perception)
                requests.append(Request(text_observation(asked), seed, prompt_id=(PERCEPTION, slot)))
        for episode, done in zip(episodes, ctx.engine.sample(requests, ctx.sampling) if requests else []):
            episode.turns, episode.ended = [Turn(done).with_columns(perceived=torch.tensor(-1.0))], done.ended
            episode.info["perceived"] = self.share_right(str(done.output), episode.prompt)
        return episodes

    def ask(self, prompt: Prompt) -> Prompt:
        """Return the prompt of a checklist: the images, and all of its questions.

        Raises:
            ValueError: the row has no checklist.
        """
        questions = "\n".join(question for question, _ in self._list_items(prompt))
        text = fill_template(self.template, questions=questions)
        images = [{"type": "image"} for _ in prompt.images]
        content = [*images, {"type": "text", "text": text}] if images else text
        return replace(prompt, messages=({"role": "user", "content": content},))

    def share_right(self, output: str, prompt: Prompt) -> float:
        """Share of the questions whose line of the output is their answer."""
        items = self._list_items(prompt)
        lines = [line.strip().casefold() for line in output.strip().split("\n")]
        return sum(line == answer.strip().casefold() for line, (_, answer) in zip(lines, items)) / len(items)

    def _list_items(self, prompt: Prompt) -> list[tuple[str, str]]:
        """Questions and answers of a prompt's checklist."""
        items: Any = prompt.info.get(self.column)
        is_list = isinstance(items, list | tuple) and len(items) > 0
        if not is_list or not all(isinstance(i, dict) and {"question", "answer"} <= i.keys() for i in items):
            raise ValueError(
                f"{prompt.place or prompt.key}: {self.column!r} must list objects with a question and an answer, got "
                f"{items!r}; set rollout.column to the column that does"
            )
        return [(str(item["question"]), str(item["answer"])) for item in items]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


@dataclass(frozen=True)
class ChecklistReward(WeightedSum):
    """Reward of an answer to a checklist: the share that is right; of a solution: sum_k weights_k * scores_k.

    Args:
        weights: by name of the score.
    """

    def __call__(self, group: Sequence[Episode]) -> Sequence[float]:
        rewards = iter(super().__call__([episode for episode in group if episode.role != PERCEPTION]))
        return [e.info["perceived"] if e.role == PERCEPTION else next(rewards) for e in group]


@dataclass(frozen=True)
class DropDecided(EpisodeTransform):
    """Leave out prompts whose solutions all fail or all succeed and whose checklists are all wrong or all right.

    A prompt without solutions counts as one whose solutions fail. Source: PEARL, 2025, soft online filter.
    """

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        undecided = []
        for group in group_episodes(episodes).values():
            means = [_mean([e.reward for e in group if (e.role == PERCEPTION) == each]) for each in (False, True)]
            undecided += group if any(mean not in (0.0, 1.0) for mean in means) else []
        return undecided


@dataclass(frozen=True)
class GatedAdvantage(Annotator):
    """GRPO advantages within each role of a prompt: A = (r - mean) / (s + epsilon), s the sample standard deviation.

    A solution's is multiplied by min(mean share of the checklist, cap), that of an answer to the checklist by
    `perception`; 0 where all rewards are equal. Source: PEARL, 2025, arXiv:2511.18437: the gate of the reasoning
    update, and J = J_GRPO(reasoning) + lambda J_GRPO(perception).

    Args:
        perception: lambda, the weight of the answers to checklists.
        cap: most that the gate lets through.
        epsilon: added to the standard deviation.
    """

    perception: float = 0.1
    cap: float = 0.5
    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        check_fraction("gated_advantage:", cap=self.cap)
        check_at_least(0, "gated_advantage:", perception=self.perception, epsilon=self.epsilon)

    def reads(self) -> frozenset[str]:
        return frozenset({"group", "episode", "episode_reward", "action_mask", "perceived"})

    def writes(self) -> frozenset[str]:
        return frozenset({"advantages"})

    def __call__(self, batch: Batch, ctx: Context) -> Batch:
        entry, reward, group, perceived = batch.per_episode("episode_reward", "group", "perceived")
        is_perception = perceived < 0
        _, compared = torch.stack([group, is_perception.long()], 1).unique(dim=0, return_inverse=True)  # [E]
        advantage = group_advantage(reward.float(), compared, "mean", "sample", self.epsilon)
        gated = torch.where(is_perception, self.perception, perceived.clamp(max=self.cap)) * advantage
        return batch.with_columns(advantages=torch.where(batch["action_mask"], gated[entry][:, None], 0.0))
