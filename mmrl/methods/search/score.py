"""SCoRe: self-correction over several attempts, each conditioned on the attempts before it.

SCoRe: Training Language Models to Self-Correct via Reinforcement Learning, 2024, arXiv:2409.12917.

- attempts and their rewards (equations 3 and 4): `SelfCorrection`
- demonstrated attempts, for the start: `SelfCorrectionDemonstrations`
- accuracy of the first and the last attempt (section 3): `CorrectionGain`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import nan

import torch

from mmrl.core.rng import derive_rng
from mmrl.core.types import Completion, Context, Episode, Prompt, Turn
from mmrl.evaluation.base import Evaluator
from mmrl.evaluation.metrics.finished_episodes import count_errors, drop_errors
from mmrl.rollouts.base import Rollout, text_observation, turn_seed
from mmrl.rollouts.offline.demonstrations import demonstration
from mmrl.rollouts.text.transcript import Transcript


class SelfCorrection(Rollout):
    """Self-correction over several attempts; one row per attempt, whose context holds all attempts before it.

    With r_k the reward of attempt k alone, the reward of row k is first_reward_weight * r_1 for the first attempt and
    r_k + progress_coef * (r_k - r_{k-1}) for each later one; the last r_k is the episode's reward.
    `info["attempts"]` holds the scores of each attempt.

    Source: Kumar et al., "Training Language Models to Self-Correct via Reinforcement Learning", 2024, arXiv:2409.12917,
    equations 3 and 4.

    Args:
        num_attempts: attempts in a row.
        message: follow-up message after an attempt, where {question} stands for the text of the prompt's last
            message; it says nothing about whether the attempt was right.
        first_reward_weight: weight of the first attempt's own reward.
        progress_coef: coefficient of the improvement over the attempt before.
    """

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

    @classmethod
    def writes(cls) -> frozenset[str]:
        return frozenset({"is_first"})

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        episodes, scripts = [], []
        for slot, prompt in prompts:
            raw = text_observation(prompt)
            for sample_index in ctx.sample_indices(slot):
                episodes.append(
                    Episode(prompt, group=slot, sample_index=sample_index, info={"attempts": [], "earned": []})
                )
                scripts.append(Transcript(raw, slot))
        for number in range(self.num_attempts):
            self._attempt(number, episodes, scripts, ctx)
            for episode, script in zip(episodes, scripts):
                script.read(ctx.policy.tokenize(format_message(self.message, episode.prompt)))
            ctx.progress("rollout", (number + 1) * len(episodes) // self.num_attempts, len(episodes))
        for episode in episodes:
            self._pay(episode)
        return episodes

    def _attempt(self, number: int, episodes: list[Episode], scripts: list[Transcript], ctx: Context) -> None:
        """Sample one more row of every episode, and score it alone."""
        requests = []
        for episode, script in zip(episodes, scripts):
            requests.append(script.request(turn_seed(episode.group, episode.sample_index, ctx, number)))
        for episode, script, done in zip(episodes, scripts, ctx.engine.sample(requests, ctx.sampling)):
            script.write(done)
            episode.turns = [*episode.turns, Turn(_mark_first(done, number == 0))]
            failed = done.ended == "error" or episode.ended == "error"
            episode.ended = "error" if failed else done.ended
            if failed:
                episode.info["error"] = "the engine gave no completion for an attempt"
        attempts = [replace(episode, turns=episode.turns[-1:], info={}) for episode in episodes]
        ctx.collector.score(attempts)
        for episode, attempt in zip(episodes, attempts):
            episode.info["attempts"].append(dict(attempt.scores))
            episode.info["earned"].append(attempt.reward)

    def _pay(self, episode: Episode) -> None:
        rewards: list[float] = episode.info["earned"]
        last = len(rewards) - 1
        for k, (turn, reward) in enumerate(zip(episode.turns, rewards)):
            bonus = self.progress_coef * (reward - rewards[k - 1]) if k else 0.0
            # the episode's reward, which is that of the last attempt, is added to the last row in collation
            turn.reward = (self.first_reward_weight * reward if k == 0 else reward if k < last else 0.0) + bonus


def format_message(message: str, prompt: Prompt) -> str:
    """The request to try again, with {question} filled in."""
    content = prompt.messages[-1]["content"]
    question = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
    return message.replace("{question}", question)


def _mark_first(done: Completion, first: bool) -> Completion:
    return replace(done, extra={**done.extra, "is_first": torch.tensor(first)})


class SelfCorrectionDemonstrations(Rollout):
    """Demonstrations of several attempts in one row, with follow-up messages between them; the last one is correct.

    Every attempt is the task's own answer, but a share of those before the last answers another problem of the task;
    such an attempt is not trained on.

    Args:
        num_attempts: attempts in a row.
        message: follow-up message after an attempt, as for `SelfCorrection`.
        wrong: share of the attempts before the last that are another problem's answer, in [0, 1].
    """

    samples = False

    def __init__(self, num_attempts: int = 2, message: str = "\n", wrong: float = 0.5):
        if num_attempts < 2 or not message or not 0 <= wrong <= 1:
            raise ValueError(
                f"rollout: need num_attempts >= 2, a message and wrong in [0, 1], "
                f"got {num_attempts}, {message!r}, {wrong}"
            )
        self.num_attempts, self.message, self.wrong = num_attempts, message, wrong

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        return [self._build_episode(slot, prompt, ctx) for slot, prompt in prompts]

    def _build_episode(self, slot: int, prompt: Prompt, ctx: Context) -> Episode:
        rng = derive_rng("attempts", ctx.seed, ctx.purpose, ctx.iteration, slot)
        script = Transcript(text_observation(prompt))
        answer = ctx.task.demonstrate(prompt.index)
        for number in range(self.num_attempts):
            if number:
                script.read(ctx.policy.tokenize(format_message(self.message, prompt)))
            other = ctx.task.demonstrate(int(rng.integers(len(ctx.task))))
            right = number == self.num_attempts - 1 or other == answer or rng.random() >= self.wrong
            attempt = demonstration(prompt.observation, answer if right else other, ctx)
            script.write(attempt if right else replace(attempt, action_mask=torch.zeros_like(attempt.action_mask)))
        row = script.completion(answer, attempt.ended)
        return Episode(prompt, group=slot, sample_index=0, turns=[Turn(row)], source="demo")


@dataclass(frozen=True)
class CorrectionGain(Evaluator):
    """Accuracy of the first and the last attempt (SCoRe).

    first, last, gain, corrected (wrong to right), spoiled: shares of the finished episodes; gain = corrected - spoiled.
    Source: Kumar et al., 2024, arXiv:2409.12917, section 3.

    Args:
        score_name: score of each attempt in `info["attempts"]`, 1 where the attempt is right.
    """

    score_name: str = "exact"

    def __call__(self, episodes: Sequence[Episode]) -> dict[str, float]:
        valid = drop_errors(episodes)
        pairs = [self._pair(episode) for episode in valid]
        n = len(pairs)

        def share(outcomes: Sequence[tuple[bool, bool]]) -> float:
            return sum(pair in outcomes for pair in pairs) / n if n else nan

        corrected, spoiled = share([(False, True)]), share([(True, False)])
        return {
            "first": share([(True, True), (True, False)]),
            "last": share([(True, True), (False, True)]),
            "gain": corrected - spoiled,
            "corrected": corrected,
            "spoiled": spoiled,
            "n": float(n),
            "errors": count_errors(episodes),
        }

    def _pair(self, episode: Episode) -> tuple[bool, bool]:
        attempts = episode.info.get("attempts")
        if not attempts:
            raise KeyError(
                f"the episode of {episode.prompt.key!r} has no info['attempts']; play it with rollout=self_correction"
            )
        missing = [one for one in (attempts[0], attempts[-1]) if self.score_name not in one]
        if missing:
            raise KeyError(
                f"no score {self.score_name!r} in an attempt at {episode.prompt.key!r}; it has {sorted(missing[0])}"
            )
        return attempts[0][self.score_name] == 1, attempts[-1][self.score_name] == 1
