"""Multi-turn rollouts with tool calls between the turns."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mmrl.rollouts.base import Rollout, text_observation, turn_seed
from mmrl.rollouts.text.transcript import Transcript
from mmrl.tools.base import Tool, ToolError
from mmrl.tools.call_parser import TagParser, ToolCallParser
from mmrl.tools.executor import PendingCall, ToolExecutor, ToolResult, reject
from mmrl.types import Completion, Context, Ended, Episode, Prompt, Request, Sampling, Turn


class ToolUse(Rollout):
    """Multi-turn tool use (Search-R1): generate until a call or the final answer, append the result, and continue.

    An episode is one row, in which the tokens of results are masked. Episodes at different turns share a batch of the
    engine. A call that is at fault gets an error message and the episode goes on; a fault of the tool (it raised, timed
    out or returned no text) ends the episode as an error, which is counted and not trained on.
    `info["counts"]` counts the outcomes, `info["calls"]` lists the calls.

    Source: Jin et al., "Search-R1", 2025, arXiv:2503.09516, algorithm 1; tools after VerlTool, 2025, arXiv:2509.01055.

    Args:
        tools: by the name in the call.
        parser: of calls, and format of their results.
        max_turns: calls that are executed; in the turn after the last one the policy can only answer.
        continue_on_fault: give the policy an error message after a fault of the tool too, and continue.
        max_concurrent: running episodes; the next one starts when one ends.
        batch_timeout_s: seconds that the next batch waits for slow tools. None waits for all: the batches, and so the
            last bits of their log-probs, then do not depend on how fast a tool is.
        max_timeouts: abandoned calls of one tool before the run stops with an error.
    """

    def __init__(
        self,
        tools: dict[str, Tool],
        parser: ToolCallParser | None = None,
        max_turns: int = 4,
        continue_on_fault: bool = False,
        max_concurrent: int = 256,
        batch_timeout_s: float | None = None,
        max_timeouts: int = 64,
    ):
        if not tools:
            raise ValueError("rollout.tools is empty: name at least one tool, or use rollout=single_turn")
        for name, value in (("max_turns", max_turns), ("max_concurrent", max_concurrent)):
            if value < 1:
                raise ValueError(f"rollout.{name} must be at least 1, got {value}")
        self.tools, self.parser, self.max_turns, self.continue_on_fault = (
            tools,
            parser or TagParser(),
            max_turns,
            continue_on_fault,
        )
        self.max_concurrent, self.batch_timeout_s, self.executor = (
            max_concurrent,
            batch_timeout_s,
            ToolExecutor(max_timeouts),
        )
        for tool in tools.values():
            _ = tool.parameters  # refuses a tool that cannot be called

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        sampling = replace(ctx.sampling, stop=(*ctx.sampling.stop, *self.parser.stop_strings(self.tools)))
        plays = []
        for slot, prompt in prompts:
            raw = text_observation(prompt)
            plays += [
                ActiveEpisode(Episode(prompt, group=slot, sample_index=sample_index), Transcript(raw, slot))
                for sample_index in ctx.sample_indices(slot)
            ]
        waiting, ready, busy, ended = deque(plays), list[ActiveEpisode](), list[ActiveEpisode](), 0
        while waiting or ready or busy:
            while waiting and len(ready) + len(busy) < self.max_concurrent:
                ready.append(waiting.popleft())
                ready[-1].begin(self.tools)
            self._write(ready, ctx, sampling)
            busy += [play for play in ready if play.pending is not None]
            self.executor.wait([play.pending for play in busy if play.pending], self.batch_timeout_s)
            answered = [play.pending is not None and play.pending.is_done() for play in busy]
            ready = [play for play, done in zip(busy, answered) if done]
            busy = [play for play, done in zip(busy, answered) if not done]
            for play in ready:
                self._read(play, ctx)
            ready = [play for play in ready if not play.over]
            ended = len(plays) - len(waiting) - len(ready) - len(busy)
            ctx.progress("rollout", ended, len(plays))
        return [play.episode for play in plays]

    def _write(self, ready: Sequence[ActiveEpisode], ctx: Context, sampling: Sampling) -> None:
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
                call = self.parser.parse(str(done.output), play.tools)
            except ToolError as error:
                play.pending, play.called = reject(error), ("none", str(done.output))
            else:
                if call is None:
                    play.end("done")
                    continue
                play.pending, play.called = None, (call.name, call.arguments)
                if play.script.turns <= self.max_turns:
                    play.pending = self.executor.submit(call, play.tools)
            if play.script.turns > self.max_turns:
                play.pending = None
                play.counts["tools/out_of_turns"] += 1
                play.end("length")

    def sample(self, ready: Sequence[ActiveEpisode], ctx: Context, sampling: Sampling) -> list[Completion]:
        """The next turn of each."""
        return ctx.engine.sample([play.request(ctx) for play in ready], sampling)

    def _read(self, play: ActiveEpisode, ctx: Context) -> None:
        """Append the result of the call that is done."""
        assert play.pending is not None
        result = self.executor.result(play.pending)
        play.counts[f"tools/{play.pending.tool}/{result.outcome}"] += 1
        play.calls.append((*play.called, result.outcome))
        play.pending = None
        if result.fault and not self.continue_on_fault:
            play.episode.info["error"] = f"tool {play.called[0]!r} {result.outcome}: {result.text}"
            play.end("error")
            return
        play.script.read(ctx.policy.tokenize(self._format(result)))

    def _format(self, result: ToolResult) -> str:
        if result.succeeded:
            return self.parser.format_result(result.text)
        return self.parser.format_error(result.outcome, result.text)


@dataclass(eq=False)
class ActiveEpisode:
    """ActiveEpisode: an unfinished episode, its transcript and its pending call."""

    episode: Episode
    script: Transcript
    tools: Mapping[str, Tool] = field(default_factory=dict)
    pending: PendingCall | None = None
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
