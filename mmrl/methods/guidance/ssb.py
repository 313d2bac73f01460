"""SSB (semantic soft bootstrapping): distil the policy, with a correct and a wrong attempt as a hint, into itself.

Semantic Soft Bootstrapping: Long Context Reasoning in LLMs without Reinforcement Learning, 2025, arXiv:2512.05105.

- attempts, a hint from two of them, and an answer to the hinted problem: `HintedAnswers`
- that problem as the teacher's context: `HintedContext`
- answers to learn from: `KeepHintedSuccesses`
- demonstrations after such hints, for a small policy that has to learn to read them: `HintedExamples`
- KL(teacher || student) at every token: `GKDLoss(beta=0, teacher="reference@hinted")`
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mmrl.core.groups import group_episodes
from mmrl.core.rng import derive_rng
from mmrl.core.types import Context, Episode, Prompt, Request, Turn
from mmrl.rollouts.base import Rollout, text_observation, turn_seed
from mmrl.rollouts.text.hints import HintedPrompts
from mmrl.rollouts.text.single_turn import SingleTurn
from mmrl.transforms.base import EpisodeTransform

MESSAGE = "\nRight: {right}\nWrong: {wrong}\n"


class HintedAnswers(Rollout):
    """Sample attempts per prompt, then an answer with a correct and the most frequent wrong attempt as a hint.

    The answer is a row in the context of the plain prompt, to which `HintedContext` adds the hinted one. Where no
    attempt is right or none is wrong, the first attempt stands for it, and `info["hint"]` is None. Its log-probs are
    those in the hinted context: set data.parity=null.

    Source: Semantic Soft Bootstrapping, 2025, arXiv:2512.05105.

    Args:
        attempts: of each prompt, which are not trained on.
        message: is appended to the prompt's last message, with {right} and {wrong} filled in.
        success_threshold: smallest reward of a right attempt.
    """

    def __init__(self, attempts: int = 4, message: str = MESSAGE, success_threshold: float = 1.0):
        if attempts < 2:
            raise ValueError(f"rollout.attempts must be at least 2, a right and a wrong one, got {attempts}")
        self.attempts, self.message, self.success_threshold = attempts, check_message(message), success_threshold

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        # `attempts` completions of each prompt, scored, but not trained on
        tries = replace(ctx, requested_indices={slot: range(self.attempts) for slot, _ in prompts})
        attempts = SingleTurn().collect(prompts, tries)
        ctx.collector.score(attempts)
        groups = group_episodes(attempts)
        # one answer per sample index in the hinted context, or the first attempt where no hint can be written
        entries: list[tuple[Episode, Request]] = []
        episodes = []
        for slot, prompt in prompts:
            hint = self.write_hint(groups[slot])
            for sample_index in ctx.sample_indices(slot):
                episode = Episode(prompt, slot, sample_index, info={"hint": hint})
                episodes.append(episode)
                if hint is None:
                    first = groups[slot][0]
                    episode.turns, episode.ended = first.turns, first.ended
                else:
                    raw = add_hint(text_observation(prompt), hint)
                    seed = turn_seed(slot, sample_index, ctx, 1)  # of a second turn, after the attempts
                    entries.append((episode, Request(raw, seed, prompt_id=(slot, "hinted"))))
        answers = ctx.engine.sample([request for _, request in entries], ctx.sampling) if entries else []
        for (episode, _), done in zip(entries, answers):
            # the row has the context of the plain prompt, as the attempts have
            plain = groups[episode.group][0].turns[0].completion
            completion = replace(done, observation=plain.observation, prompt_id=plain.prompt_id)
            episode.turns, episode.ended = [Turn(completion)], done.ended
        return episodes

    def write_hint(self, attempts: Sequence[Episode]) -> str | None:
        """Return the hint from the attempts at a prompt: the first right one and the most frequent wrong one."""
        done = [episode for episode in attempts if episode.ended != "error"]
        right = [str(episode.output) for episode in done if episode.reward >= self.success_threshold]
        wrong = Counter(str(episode.output) for episode in done if episode.reward < self.success_threshold)
        if not right or not wrong:
            return None
        return fill_message(self.message, right[0], wrong.most_common(1)[0][0])


def check_message(message: str) -> str:
    """Return a message that shows both attempts; raise ValueError for another one."""
    if not all(name in message for name in ("{right}", "{wrong}")):
        raise ValueError("rollout.message must name {right} and {wrong}, the attempts that it shows")
    return message


def fill_message(message: str, right: str, wrong: str) -> str:
    """Write both attempts into a message."""
    return message.replace("{wrong}", wrong).replace("{right}", right)


def add_hint(raw: Mapping[str, Any], hint: str) -> dict[str, Any]:
    """Append a hint to the last message of a raw observation."""
    *before, last = raw["messages"]
    content = last["content"]
    longer = content + hint if isinstance(content, str) else [*content, {"type": "text", "text": hint}]
    return {**raw, "messages": (*before, {**last, "content": longer})}


class HintedExamples(HintedPrompts):
    """Show some prompts a right and a wrong attempt, in the message of `HintedAnswers`, before another rollout plays.

    With `Demonstrations` a policy with random weights learns to read the hints, as a pretrained one can. The right
    attempt is the task's demonstration, the wrong one its random guess. Differs from SSB: its model is pretrained.

    Args:
        rollout: what plays the prompts.
        probability: that a prompt gets a hint.
        message: is appended to the prompt's last message, with {right} and {wrong} filled in.
    """

    def __init__(self, rollout: Rollout, probability: float = 0.5, message: str = MESSAGE):
        super().__init__(rollout, (1.0,), probability)
        self.message = check_message(message)

    def hint(self, slot: int, prompt: Prompt, ctx: Context) -> Prompt:
        rng = derive_rng("hint", ctx.seed, ctx.purpose, ctx.iteration, slot)
        if rng.random() >= self.probability:
            return prompt
        hint = fill_message(self.message, ctx.task.demonstrate(prompt.index), ctx.task.guess(prompt, rng))
        return replace(prompt, messages=add_hint(prompt.observation, hint)["messages"])


@dataclass(frozen=True)
class HintedContext(EpisodeTransform):
    """Add the hinted prompt as a second context of each answer; without a hint the prompt itself.

    Args:
        name: of the context.
    """

    name: str = "hinted"

    def contexts(self) -> frozenset[str]:
        return frozenset({self.name})

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        return [replace(episode, turns=self._turns(episode, ctx)) for episode in episodes]

    def _turns(self, episode: Episode, ctx: Context) -> list[Turn]:
        hint, out = episode.info.get("hint"), []
        for turn in episode.turns:
            done = turn.completion
            raw = None if hint is None else add_hint(text_observation(episode.prompt), hint)
            observation = done.observation if raw is None else ctx.policy.encode(raw)
            out.append(replace(turn, completion=replace(done, others={**done.others, self.name: observation})))
        return out


@dataclass(frozen=True)
class KeepHintedSuccesses(EpisodeTransform):
    """Keeps the answers to hinted prompts whose reward reaches a threshold.

    Args:
        success_threshold: smallest reward of a success.
    """

    success_threshold: float = 1.0

    def __call__(self, episodes: list[Episode], ctx: Context) -> list[Episode]:
        return [e for e in episodes if e.info.get("hint") is not None and e.reward >= self.success_threshold]
