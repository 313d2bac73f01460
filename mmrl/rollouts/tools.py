"""Answers in several turns, between which tools are called."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mmrl.rollouts.base import Rollout, turn_seed, worded
from mmrl.rollouts.transcript import Transcript
from mmrl.tools.base import Tool, ToolError
from mmrl.tools.hands import Answer, Hands, Pending, refusal
from mmrl.tools.markup import Markup, Tags
from mmrl.types import Completion, Context, Ended, Episode, Observation, Prompt, Request, Sampling, Turn


class ToolUse(Rollout):
    """The policy writes until it calls a tool or answers; the tool's answer is written after it, and it goes on.

    An episode is one row: what was read between is in it with mask False. All episodes that are due share one batch of
    the engine, at whatever turn they are. A call that is at fault is told so and the episode goes on; a fault of the
    tool itself (it raised, hung or gave no text) ends the episode as an error, which is counted and not learnt from.
    `info["counts"]` says how often each outcome came, `info["calls"]` what was called.

    Source: Jin et al., "Search-R1", 2025, arXiv:2503.09516, algorithm 1; tools after VerlTool, 2025, arXiv:2509.01055.

    Args:
        tools: what may be called, by the name in the call.
        markup: how calls and answers are written.
        turns: calls that are served; in the turn after the last one the policy can only answer.
        forgiving: let the policy read of a tool's own fault too, and go on.
        at_once: episodes under way; the next one begins when one ends.
        patience: seconds to wait for slow tools before the others go on without them. None waits for all: the batches,
            and so the last bits of their log-probs, then do not depend on how fast a tool is.
        most_lost: calls of a tool that may hang before the run stops with a message.
    """

    def __init__(
        self,
        tools: dict[str, Tool],
        markup: Markup | None = None,
        turns: int = 4,
        forgiving: bool = False,
        at_once: int = 256,
        patience: float | None = None,
        most_lost: int = 64,
    ):
        if not tools:
            raise ValueError("rollout.tools is empty: name at least one tool, or use rollout=single_turn")
        for name, value in (("turns", turns), ("at_once", at_once)):
            if value < 1:
                raise ValueError(f"rollout.{name} must be at least 1, got {value}")
        self.tools, self.markup, self.turns, self.forgiving = tools, markup or Tags(), turns, forgiving
        self.at_once, self.patience, self.hands = at_once, patience, Hands(most_lost)
        for tool in tools.values():
            _ = tool.parameters  # refuses a tool that cannot be called

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        sampling = replace(ctx.sampling, stop=(*ctx.sampling.stop, *self.markup.stops(self.tools)))
        known: dict[int, Observation] = {}
        plays = []
        for slot, prompt in prompts:
            raw = worded(prompt)
            plays += [
                Play(Episode(prompt, group=slot, sample_index=sample_index), Transcript(raw, known))
                for sample_index in ctx.sample_indices(slot)
            ]
        waiting, ready, busy, ended = deque(plays), list[Play](), list[Play](), 0
        while waiting or ready or busy:
            while waiting and len(ready) + len(busy) < self.at_once:
                ready.append(waiting.popleft())
                ready[-1].begin(self.tools)
            self._write(ready, ctx, sampling)
            busy += [play for play in ready if play.pending is not None]
            self.hands.wait([play.pending for play in busy if play.pending], self.patience)
            answered = [play.pending is not None and play.pending.done() for play in busy]
            ready = [play for play, done in zip(busy, answered) if done]
            busy = [play for play, done in zip(busy, answered) if not done]
            for play in ready:
                self._read(play, ctx)
            ready = [play for play in ready if not play.over]
            ended = len(plays) - len(waiting) - len(ready) - len(busy)
            ctx.progress("rollout", ended, len(plays))
        return [play.episode for play in plays]

    def _write(self, ready: Sequence[Play], ctx: Context, sampling: Sampling) -> None:
        """One turn of each, in one batch."""
        if not ready:
            return
        for play, done in zip(ready, self.sample(ready, ctx, sampling)):
            play.script.write(done)
            play.last = done
            if done.ended != "done":
                play.end(done.ended)
                continue
            try:
                call = self.markup.call(str(done.output), play.tools)
            except ToolError as error:
                play.pending, play.called = refusal(error), ("none", str(done.output))
            else:
                if call is None:
                    play.end("done")
                    continue
                play.pending, play.called = None, (call.name, call.given)
                if play.script.turns <= self.turns:
                    play.pending = self.hands.begin(call, play.tools)
            if play.script.turns > self.turns:
                play.pending = None
                play.counts["tools/out_of_turns"] += 1
                play.end("length")

    def sample(self, ready: Sequence[Play], ctx: Context, sampling: Sampling) -> list[Completion]:
        """The next turn of each."""
        return ctx.engine.sample([play.request(ctx) for play in ready], sampling)

    def _read(self, play: Play, ctx: Context) -> None:
        """The answer to the call that is done."""
        assert play.pending is not None
        answer = self.hands.end(play.pending)
        play.counts[f"tools/{play.pending.tool}/{answer.outcome}"] += 1
        play.calls.append((*play.called, answer.outcome))
        play.pending = None
        if answer.fault and not self.forgiving:
            play.episode.info["error"] = f"tool {play.called[0]!r} {answer.outcome}: {answer.text}"
            play.end("error")
            return
        play.script.read(ctx.policy.tokenize(self._told(answer)))

    def _told(self, answer: Answer) -> str:
        if answer.served:
            return self.markup.reply(answer.text)
        return self.markup.refusal(answer.outcome, answer.text)


@dataclass(eq=False)
class Play:
    """One episode under way."""

    episode: Episode
    script: Transcript
    tools: Mapping[str, Tool] = field(default_factory=dict)
    pending: Pending | None = None
    called: tuple[str, Any] = ("none", "")
    calls: list[tuple[str, Any, str]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    last: Completion | None = None
    over: bool = False

    def begin(self, tools: Mapping[str, Tool]) -> None:
        self.tools = {name: tool.start(self.episode.prompt) for name, tool in tools.items()}

    def request(self, ctx: Context) -> Request:
        return self.script.request(turn_seed(self.episode.group, self.episode.sample_index, ctx, self.script.turns))

    def end(self, ended: Ended) -> None:
        assert self.last is not None
        self.over, self.episode.ended = True, ended
        self.episode.turns = [Turn(self.script.completion(self.last.output, ended))]
        self.episode.info |= {"calls": self.calls, "counts": dict(self.counts), "turns": self.script.turns}
        for tool in self.tools.values():
            tool.finish()
