"""Long episodes of text environments: a limit of the context, kept by truncation or by the policy's own summaries."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from mmrl.core.errors import check_at_least
from mmrl.core.text_environment import EnvironmentTask, TextStep
from mmrl.core.types import Completion, Context, Ended, Episode, Prompt, Request, Turn
from mmrl.rollouts.base import turn_seed
from mmrl.rollouts.text.environment import EnvironmentRollout, RunningEpisode
from mmrl.tools.chat_parser import add_to_system

if TYPE_CHECKING:
    from mmrl.policies.base import Policy

SUMMARIES, FULL = "environment/summaries", "environment/context_full"


@dataclass(eq=False)
class LongEpisode(RunningEpisode):
    """An unfinished episode some of whose rows are summaries, which are no turns of the environment.

    Args:
        turns_left: text before an observation, with {left}; None for none.
        shown: earlier turns in the next observation.
        first: the first turn that no summary stands for.
        summary: of the turns before it.
    """

    turns_left: str | None = None
    shown: int = 0
    first: int = 0
    summary: str = ""
    _summary_rows: set[int] = field(default_factory=set)

    def observation(self, history: int = 0, image_history: int = 0) -> Mapping[str, Any]:
        raw = super().observation(history, image_history)
        messages = raw["messages"]
        if self.summary:
            messages = add_to_system(messages, self.summary)
        if self.turns_left is not None:
            budget = self.turns_left.format(left=self.max_turns - len(self.actions))
            messages = (*messages[:-1], {**messages[-1], "content": _put_before(messages[-1]["content"], budget)})
        return {**raw, "messages": messages}

    def write_summary(self, completion: Completion, template: str) -> None:
        """Append a row that is a summary of all turns so far; it has no reward of its own."""
        self._summary_rows.add(len(self.episode.turns))
        self.episode.turns.append(Turn(completion))  # type: ignore[attr-defined]
        self.summary = template.format(summary=str(completion.output).strip())
        self.first = len(self.actions)
        self.counts[SUMMARIES] += 1

    def read(self, step: TextStep) -> None:
        turns = self.max_turns
        self.max_turns = turns + self.counts[SUMMARIES]  # the limit is compared with the number of rows
        super().read(step)
        self.max_turns = turns

    def end(self, ended: Ended, error: str | None = None) -> None:
        super().end(ended, error)
        rewards = [turn.reward for row, turn in enumerate(self.episode.turns) if row not in self._summary_rows]
        self.episode.info["turns"] = len(rewards)
        if "scores" in self.episode.info:
            earned = sum(self.gamma**turn * reward for turn, reward in enumerate(rewards))
            self.episode.info["scores"] |= {"return": float(earned), "turns": float(len(rewards))}


class LongEpisodeRollout(EnvironmentRollout):
    """Play text environments with at most `max_context` tokens before a turn.

    Where the turns so far no longer fit, `context` decides: "truncate" leaves out the oldest ones, and "summary" asks
    the policy for a summary of all of them, which stands in the system message from then on, with the turns after it.
    A summary is a row of the episode without a reward of its own: it has the outcome's advantage. An observation that
    alone does not fit ends the episode, as the turn limit does; both are counted. Where everything fits, the episodes
    are those of `EnvironmentRollout`.

    Args:
        max_context: tokens of the prompt of a turn.
        context: what happens to turns that no longer fit.
        history: earlier turns at most, as in EnvironmentRollout.
        summary_prompt: message of the user that asks for a summary.
        summary_template: how it stands in the system message, with {summary}.
        turns_left: text before each observation, with {left}, the turns that are left; None for none.
        options: further arguments of EnvironmentRollout.
    """

    def __init__(
        self,
        max_context: int,
        context: Literal["truncate", "summary"] = "truncate",
        history: int = 1000,
        summary_prompt: str = "\nSummarize what matters for the next turns.\n>",
        summary_template: str = "Summary of the earlier turns: {summary}",
        turns_left: str | None = None,
        **options: Any,
    ):
        super().__init__(history=history, **options)
        check_at_least(1, "rollout", max_context=max_context)
        if "{summary}" not in summary_template:
            raise ValueError(f"rollout.summary_template={summary_template!r} has no {{summary}}")
        if turns_left is not None and "{left}" not in turns_left:
            raise ValueError(f"rollout.turns_left={turns_left!r} has no {{left}}")
        self.max_context, self.context = max_context, context
        self.summary_prompt, self.summary_template, self.turns_left = summary_prompt, summary_template, turns_left

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        positions = ctx.policy.context_length
        needed = self.max_context + ctx.sampling.max_tokens
        if positions is not None and needed > positions:
            raise ValueError(
                f"rollout.max_context={self.max_context} and sampling.max_tokens={ctx.sampling.max_tokens} are "
                f"{needed} tokens, more than the {positions} positions of the model"
            )
        return super().collect(prompts, ctx)

    def sample(self, ready: Sequence[RunningEpisode], ctx: Context) -> list[Completion]:
        return ctx.engine.sample(
            [self._request(play, self._observe(play, play.shown), ctx) for play in ready], ctx.sampling
        )

    def _act(self, ready: Sequence[LongEpisode], task: EnvironmentTask, ctx: Context) -> None:
        """Fit the contexts, with summaries where they are asked for, and sample the next turns."""
        if self.context == "summary":
            self._summarize(
                [play for play in ready if self._fit(play, ctx.policy) < len(play.actions) - play.first], ctx
            )
        for play in (play for play in ready if not play.over):
            play.shown = self._fit(play, ctx.policy)
            if play.shown < 0:
                self._end_full(play)
        super()._act([play for play in ready if not play.over], task, ctx)

    def _end_full(self, play: LongEpisode) -> None:
        """End an episode of which nothing more fits into the context."""
        play.counts[FULL] += 1
        play.end("time")
        self._idle.append(play.environment)

    def _summarize(self, plays: Sequence[LongEpisode], ctx: Context) -> None:
        """Sample a summary for each, in one batch, from as many of its turns as fit."""
        asked = []
        for play in plays:
            raw = self._ask_summary(play, ctx.policy) if len(play.actions) > play.first else None
            if raw is None:
                self._end_full(play)
            else:
                asked.append((play, self._request(play, raw, ctx)))
        samples = ctx.engine.sample([request for _, request in asked], ctx.sampling) if asked else []
        for (play, _), done in zip(asked, samples):
            if done.ended == "error":
                play.end("error", "the engine gave no completion for a summary")
                self._idle.append(play.environment)
            else:
                play.write_summary(done, self.summary_template)

    def _ask_summary(self, play: LongEpisode, policy: Policy) -> Mapping[str, Any] | None:
        """Return the observation that asks for a summary, in place of the new one; None where no turn fits."""

        def ask(history: int) -> Mapping[str, Any]:
            raw = self._observe(play, history)
            if raw["images"]:
                raise ValueError("rollout.context=summary reads no images; use rollout.context=truncate")
            return {**raw, "messages": (*raw["messages"][:-1], {"role": "user", "content": self.summary_prompt})}

        turns = self._most(play, ask, policy)
        return ask(turns) if turns > 0 else None

    def _fit(self, play: LongEpisode, policy: Policy) -> int:
        """Return how many earlier turns fit into the context; -1 where the new observation alone does not."""
        return self._most(play, partial(self._observe, play), policy)

    def _most(self, play: LongEpisode, observe: Callable[[int], Mapping[str, Any]], policy: Policy) -> int:
        """Return the largest number of earlier turns with which an observation fits; -1 for none."""
        most = min(self.history, len(play.actions) - play.first)

        def is_long(history: int) -> bool:
            return len(policy.encode(observe(history))["input_ids"]) > self.max_context

        return bisect_left(range(most + 1), True, key=is_long) - 1 if is_long(most) else most

    def _observe(self, play: LongEpisode, history: int) -> Mapping[str, Any]:
        return play.observation(history, min(self.image_history, history))

    def _request(self, play: LongEpisode, raw: Mapping[str, Any], ctx: Context) -> Request:
        row = len(play.episode.turns)
        seed = turn_seed(play.episode.group, play.episode.sample_index, ctx, row)
        return Request(raw, seed, prompt_id=None if row else play.first_id)

    def _play(self, slot: int, prompt: Prompt, sample_index: int, task: EnvironmentTask, ctx: Context) -> LongEpisode:
        plain = super()._play(slot, prompt, sample_index, task, ctx)
        play = LongEpisode(
            plain.episode, plain.max_turns, plain.gamma, first_id=plain.first_id, turns_left=self.turns_left
        )
        play.counts.update({FULL: 0, **({SUMMARIES: 0} if self.context == "summary" else {})})
        return play


def _put_before(content: Any, text: str) -> Any:
    """Put a text before the content of a message, which is a text or a list of images with a text."""
    if isinstance(content, str):
        return text + content
    return [*content[:-1], {**content[-1], "text": text + content[-1]["text"]}]
