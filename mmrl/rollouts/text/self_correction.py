"""Sequential self-correction (SCoRe): several attempts at a question in a row, each in view of the ones before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from mmrl.rollouts.base import Rollout, turn_seed, worded
from mmrl.rollouts.text.transcript import Transcript
from mmrl.types import Completion, Context, Episode, Prompt, Turn


class SelfCorrection(Rollout):
    """Self-correction over several attempts; one row per attempt, whose context holds all attempts before it.

    With r_k the reward of attempt k alone, the reward of row k is first_reward_weight * r_1 for the first attempt and
    r_k + progress_coef * (r_k - r_{k-1}) for each later one; the last r_k is the episode's reward.
    `info["attempts"]` holds the scores of each attempt.

    Source: Kumar et al., "Training Language Models to Self-Correct via Reinforcement Learning", 2024, arXiv:2409.12917,
    equations 3 and 4.

    Args:
        num_attempts: attempts in a row.
        message: what the policy is told after an attempt, where {question} stands for the text of the prompt's last
            message; it says nothing about whether the attempt was right.
        first_reward_weight: weight of the first attempt's own reward.
        progress_coef: coefficient of the improvement over the attempt before.
    """

    writes = frozenset({"is_first"})

    def __init__(
        self, num_attempts: int = 2, message: str = "\n", first_reward_weight: float = 1.0, progress_coef: float = 0.0
    ):
        if num_attempts < 2:
            raise ValueError(
                f"rollout.num_attempts must be at least 2, got {num_attempts}; for one use rollout=single_turn"
            )
        if not message:
            raise ValueError(
                "rollout.message is empty: self-correction needs a follow-up message between attempts; "
                "set rollout.message"
            )
        self.num_attempts, self.message, self.first_reward_weight, self.progress_coef = (
            num_attempts,
            message,
            first_reward_weight,
            progress_coef,
        )

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        episodes, scripts = [], []
        for slot, prompt in prompts:
            raw = worded(prompt)
            for sample_index in ctx.sample_indices(slot):
                episodes.append(
                    Episode(prompt, group=slot, sample_index=sample_index, info={"attempts": [], "earned": []})
                )
                scripts.append(Transcript(raw, slot))
        for number in range(self.num_attempts):
            self._attempt(number, episodes, scripts, ctx)
            for episode, script in zip(episodes, scripts):
                script.read(ctx.policy.tokenize(asked_again(self.message, episode.prompt)))
            ctx.progress("rollout", (number + 1) * len(episodes) // self.num_attempts, len(episodes))
        for episode in episodes:
            self._pay(episode)
        return episodes

    def _attempt(self, number: int, episodes: list[Episode], scripts: list[Transcript], ctx: Context) -> None:
        """One more row of every episode, and what it alone would earn."""
        requests = []
        for episode, script in zip(episodes, scripts):
            requests.append(script.request(turn_seed(episode.group, episode.sample_index, ctx, number)))
        for episode, script, done in zip(episodes, scripts, ctx.engine.sample(requests, ctx.sampling)):
            script.write(done)
            episode.turns = [*episode.turns, Turn(_marked(done, number == 0))]
            failed = done.ended == "error" or episode.ended == "error"
            episode.ended = "error" if failed else done.ended
            if failed:
                episode.info["error"] = "the engine gave no completion for an attempt"
        alone = [replace(episode, turns=episode.turns[-1:], info={}) for episode in episodes]
        ctx.collector.score(alone)
        for episode, judged in zip(episodes, alone):
            episode.info["attempts"].append(dict(judged.scores))
            episode.info["earned"].append(judged.reward)

    def _pay(self, episode: Episode) -> None:
        earned: list[float] = episode.info["earned"]
        last = len(earned) - 1
        for k, (turn, own) in enumerate(zip(episode.turns, earned)):
            bonus = self.progress_coef * (own - earned[k - 1]) if k else 0.0
            # the episode's reward, which is that of the last attempt, is added to the last row in collation
            turn.reward = (self.first_reward_weight * own if k == 0 else own if k < last else 0.0) + bonus


def asked_again(message: str, prompt: Prompt) -> str:
    """The request to try again, with {question} filled in."""
    content = prompt.messages[-1]["content"]
    question = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
    return message.replace("{question}", question)


def _marked(done: Completion, first: bool) -> Completion:
    return replace(done, extra={**done.extra, "is_first": torch.tensor(first)})
