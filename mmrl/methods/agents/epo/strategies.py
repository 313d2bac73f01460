"""EPO: rollouts in which a frozen actor follows the policy's strategies, and demonstrations for the actor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mmrl.core.rng import derive_seed
from mmrl.core.types import Completion, Context, Request
from mmrl.rollouts.base import turn_seed
from mmrl.rollouts.offline.demonstrations import demonstration
from mmrl.rollouts.text.environment import EnvironmentRollout, RunningEpisode
from mmrl.rollouts.text.environment_demonstrations import EnvironmentDemonstrations

TEMPLATE = "{strategy}\n>"


def add_strategy(raw: Mapping[str, Any], template: str, strategy: str) -> dict[str, Any]:
    """Return an observation with a strategy behind its last message.

    Args:
        raw: messages and images.
        template: text with {strategy} in the place of the strategy.
        strategy: the text that the policy wrote.
    """
    *before, last = raw["messages"]
    text, content = template.replace("{strategy}", strategy), last["content"]
    content = content + text if isinstance(content, str) else [*content, {"type": "text", "text": text}]
    return {**raw, "messages": (*before, {**last, "content": content})}


def check_template(template: str) -> str:
    """Return a template; raise ValueError if it has no place for the strategy."""
    if "{strategy}" not in template:
        raise ValueError(f"rollout.template={template!r} has no {{strategy}}, so the actor would not read it")
    return template


class StrategyRollout(EnvironmentRollout):
    """Episodes of text environments in which the policy advises a frozen model, which acts.

    In every turn the policy reads the observation and writes a strategy, its row; the actor reads the observation with
    the strategy behind it, and its text is the action, the output of the row. They exchange text, so that the actor
    may have another tokenizer. Source: EPO, 2025, arXiv:2502.12486.

    Args:
        actor: name of the actor in `model.frozen_models`.
        template: how the actor reads a strategy.
        options: those of `EnvironmentRollout`.
    """

    def __init__(self, actor: str = "actor", template: str = TEMPLATE, **options: Any):
        super().__init__(**options)
        self.actor, self.template = actor, check_template(template)

    def sampled_models(self) -> frozenset[str]:
        return frozenset({self.actor})

    def sample(self, ready: Sequence[RunningEpisode], ctx: Context) -> list[Completion]:
        strategies = super().sample(ready, ctx)
        requests = []
        for play, strategy in zip(ready, strategies):
            seed = turn_seed(play.episode.group, play.episode.sample_index, ctx, len(play.actions))
            raw = play.observation(self.history, self.image_history)
            raw = add_strategy(raw, self.template, str(strategy.output))
            requests.append(Request(raw, derive_seed("actor", seed), model=self.actor))
        actions = ctx.engine.sample(requests, ctx.sampling)
        pairs = [(done, action, "error" in (done.ended, action.ended)) for done, action in zip(strategies, actions)]
        return [
            replace(done, output=action.output, ended="error" if bad else done.ended) for done, action, bad in pairs
        ]


class StrategyDemonstrations(EnvironmentDemonstrations):
    """Demonstrations for an actor that follows strategies: the strategy that it reads is the action that it takes.

    With `random_fraction` above 0 some actions are random, so that only the strategy determines them.

    Args:
        template: how the actor reads a strategy.
        options: those of `EnvironmentDemonstrations`.
    """

    def __init__(self, template: str = TEMPLATE, **options: Any):
        super().__init__(**options)
        self.template = check_template(template)

    def sample(self, ready: Sequence[RunningEpisode], ctx: Context) -> list[Completion]:
        completions = []
        for play, done in zip(ready, super().sample(ready, ctx)):
            raw = play.observation(self.history, self.image_history)
            completions.append(demonstration(add_strategy(raw, self.template, str(done.output)), done.output, ctx))
        return completions
