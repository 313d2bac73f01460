"""Hints in the prompt: the first part of a reference solution at the end of the user's message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mmrl.core.errors import check_fraction
from mmrl.core.rng import derive_rng
from mmrl.core.types import Context, Episode, Prompt
from mmrl.rollouts.base import Rollout

INSTRUCTION = "\nThe solution begins as follows; continue from there:\n"


def add_hint(prompt: Prompt, solution: str, fraction: float, instruction: str = INSTRUCTION) -> Prompt:
    """Return the prompt with the first round(fraction * len(solution)) characters of a solution in its last message.

    The hint is part of the prompt: its tokens are read and not trained on. Key and answer stay; `info["hint"]` is the
    fraction. Without a character the prompt stays as it is.

    Args:
        prompt: with messages of which the last one is the user's.
        solution: the reference solution.
        fraction: of its characters, in [0, 1].
        instruction: text between the user's message and the hint.
    """
    hint = solution[: round(fraction * len(solution))]
    if not hint:
        return prompt
    if not prompt.messages or prompt.messages[-1].get("role") != "user":
        raise ValueError(f"hints stand in the user's message, with which {prompt.key!r} does not end")
    last, text = prompt.messages[-1], instruction + hint
    content = last["content"]
    content = content + text if isinstance(content, str) else [*content, {"type": "text", "text": text}]
    return replace(
        prompt,
        messages=(*prompt.messages[:-1], {**last, "content": content}),
        info={**prompt.info, "hint": fraction},
    )


def check_fractions(fractions: Sequence[float], part: str) -> tuple[float, ...]:
    """Return the fractions of a solution as a tuple; raise ValueError unless there are some, all of them in [0, 1]."""
    if not fractions or not all(0 <= fraction <= 1 for fraction in fractions):
        raise ValueError(f"{part}.fractions must name at least one number, all in [0, 1], got {list(fractions)}")
    return tuple(fractions)


class HintedPrompts(Rollout):
    """Give some prompts a hint, the first part of the task's demonstration, and let another rollout play them.

    A group has one hint. With `SingleTurn` the policy learns to continue from hints, with `Demonstrations` supervised
    fine-tuning teaches it to read them. Held-out problems are played by `data.evaluation.rollout`, without hints.
    Source: Beyond Accuracy: Dissecting Mathematical Reasoning for LLMs Under Reinforcement Learning, 2025, second
    stage, arXiv:2506.04723; with one fraction and a probability that falls to 0: GHPO, 2025, cold start,
    arXiv:2507.10628.

    Args:
        rollout: what plays the prompts.
        fractions: of the solution's characters; each prompt draws one of them in every iteration.
        probability: that a prompt gets a hint. A schedule can end the hints.
        instruction: text between the user's message and the hint.
    """

    def __init__(
        self,
        rollout: Rollout,
        fractions: Sequence[float] = (0.0, 0.25, 0.5, 0.75),
        probability: float = 1.0,
        instruction: str = INSTRUCTION,
    ):
        check_fraction("rollout", probability=probability)
        if getattr(rollout, "cache_episodes", False):
            raise ValueError("rollout.rollout.cache_episodes=true stores a prompt with one hint; set it to false")
        if getattr(rollout, "cuts", False):
            raise ValueError("rollout.rollout cuts completions, whose hints a checkpoint would lose; use single_turn")
        self.rollout, self.probability, self.instruction = rollout, probability, instruction
        self.fractions = check_fractions(fractions, "rollout")
        self.samples = rollout.samples

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        return self.rollout.collect([(slot, self.hint(slot, prompt, ctx)) for slot, prompt in prompts], ctx)

    def hint(self, slot: int, prompt: Prompt, ctx: Context) -> Prompt:
        """Draw whether and how much of the solution a prompt shows."""
        rng = derive_rng("hint", ctx.seed, ctx.purpose, ctx.iteration, slot)
        if rng.random() >= self.probability:
            return prompt
        fraction = self.fractions[int(rng.integers(len(self.fractions)))]
        return add_hint(prompt, ctx.task.demonstrate(prompt.index), fraction, self.instruction)

    def observe(self, groups: Sequence[Sequence[Episode]]) -> None:
        self.rollout.observe(groups)

    def metrics(self) -> dict[str, float]:
        return self.rollout.metrics()

    def state_dict(self) -> dict[str, Any]:
        return self.rollout.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rollout.load_state_dict(state)

    def close(self) -> None:
        self.rollout.close()
