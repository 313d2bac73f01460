"""Multi-turn rollouts with tool calls between the turns."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mmrl.core.errors import check_at_least
from mmrl.core.types import Completion, Context, Ended, Episode, Prompt, Request, Sampling, Turn
from mmrl.rollouts.base import Rollout, text_observation, turn_seed
from mmrl.rollouts.text.transcript import Transcript
from mmrl.tools.base import Tool, ToolError
from mmrl.tools.call_parser import TagParser, ToolCall, ToolCallParser
from mmrl.tools.chat_parser import ChatParser, add_to_system
from mmrl.tools.executor import ToolExecutor, ToolResult, reject
from mmrl.tools.function import FunctionTool
from mmrl.tools.mcp.server import McpServer, merge_tools
from mmrl.tools.threads import PendingCall

if TYPE_CHECKING:
    from mmrl.policies.base import Policy


class ToolUse(Rollout):
    """Multi-turn tool use (Search-R1): generate until a call or the final answer, append the result, and continue.

    An episode is one row, in which the tokens of results are masked. Where a result has images, the row ends with the
    call, and the next row's context is the conversation with the images: a row a turn, as in VRAG-RL. Episodes at
    different turns share a batch of the engine. A call that is at fault gets an error message and the episode goes on;
    a fault of the tool (it raised, timed out or returned no text) ends the episode as an error, which is counted and
    not trained on. A successful call of a tool with `ends_episode` is the final answer, and its result the episode's
    output.
    `info["counts"]` counts the outcomes, `info["calls"]` lists the calls, `info["notes"]` has what tools note.

    Source: Jin et al., "Search-R1", 2025, arXiv:2503.09516, algorithm 1; tools after VerlTool, 2025, arXiv:2509.01055;
    images in results after Wang et al., "VRAG-RL", 2025, arXiv:2505.22019.

    Args:
        tools: by the name in the call.
        functions: further tools: plain functions, as tools.py:multiply, called by their names.
        servers: by a name, MCP servers, whose tools are further ones.
        parser: of calls, and format of their results. With a ChatParser the model's chat template shows the tools and
            formats the results.
        max_turns: calls that are executed; in the turn after the last one the policy can only answer.
        continue_on_fault: give the policy an error message after a fault of the tool too, and continue.
        max_concurrent: running episodes; the next one starts when one ends.
        batch_timeout_s: seconds that the next batch waits for slow tools. None waits for all: the batches, and so the
            last bits of their log-probs, then do not depend on how fast a tool is.
        max_timeouts: abandoned calls of one tool before the run stops with an error.
    """

    def __init__(
        self,
        tools: dict[str, Tool] | None = None,
        parser: ToolCallParser | None = None,
        max_turns: int = 4,
        functions: list[str] | None = None,
        continue_on_fault: bool = False,
        max_concurrent: int = 256,
        batch_timeout_s: float | None = None,
        max_timeouts: int = 64,
        servers: dict[str, McpServer] | None = None,
    ):
        function_tools = [FunctionTool(function) for function in functions or ()]
        self.servers = dict(servers or {})
        tools = merge_tools({**(tools or {}), **{tool.name: tool for tool in function_tools}}, self.servers)
        if not tools:
            raise ValueError(
                "rollout.tools is empty: name a function, as in rollout.functions=[tools.py:multiply], or use "
                "rollout=single_turn"
            )
        check_at_least(1, "rollout", max_turns=max_turns, max_concurrent=max_concurrent)
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
        self.chat = self.parser if isinstance(self.parser, ChatParser) else None
        for tool in tools.values():
            _ = tool.parameters  # refuses a tool that cannot be called
        self.schemas = [tool.schema_as(name) for name, tool in tools.items()] if self.chat else []

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        sampling = replace(ctx.sampling, stop=(*ctx.sampling.stop, *self.parser.stop_strings(self.tools)))
        in_template = self._shows_tools(ctx.policy)
        # one active episode per prompt and sample
        plays = []
        for slot, prompt in prompts:
            raw = self._observe(prompt, in_template)
            plays += [
                ActiveEpisode(Episode(prompt, group=slot, sample_index=sample_index), Transcript(raw, slot))
                for sample_index in ctx.sample_indices(slot)
            ]
        waiting, ready, busy, ended = deque(plays), list[ActiveEpisode](), list[ActiveEpisode](), 0
        while waiting or ready or busy:
            # at most max_concurrent conversations are generated or wait for tools
            while waiting and len(ready) + len(busy) < self.max_concurrent:
                ready.append(waiting.popleft())
                ready[-1].begin(self.tools)
            self._write(ready, ctx, sampling)
            busy += [play for play in ready if play.pending]
            # wait for all tool calls; after batch_timeout_s seconds only until one of them is done
            self.executor.wait([call for play in busy for call in play.pending], self.batch_timeout_s)
            answered = [all(call.is_done() for call in play.pending) for play in busy]
            ready = [play for play, done in zip(busy, answered) if done]
            busy = [play for play, done in zip(busy, answered) if not done]
            for play in ready:
                self._read(play, ctx)
            ready = [play for play in ready if not play.over]
            ended = len(plays) - len(waiting) - len(ready) - len(busy)
            ctx.progress("rollout", ended, len(plays))
        return [play.episode for play in plays]

    def close(self) -> None:
        for server in self.servers.values():
            server.close()

    def build_observation(self, prompt: Prompt, policy: Policy) -> Mapping[str, Any]:
        return self._observe(prompt, self._shows_tools(policy))

    def _shows_tools(self, policy: Policy) -> bool:
        """Whether the policy's chat template shows the tools."""
        return self.chat is not None and policy.template_shows_tools(self.schemas)

    def _observe(self, prompt: Prompt, in_template: bool) -> Mapping[str, Any]:
        """Return the observation of a prompt; a chat model's one has the tools in its template or system message."""
        raw = text_observation(prompt)
        if "tools" in raw:
            raise ValueError(
                f"{prompt.place or prompt.key}: the row brings tools of its own, and the rollout calls "
                f"{sorted(self.tools)}; leave the column out of the rows, or use rollout=single_turn"
            )
        if self.chat is None:
            return raw
        if in_template:
            return {**raw, "tools": self.schemas}
        return {**raw, "messages": add_to_system(raw["messages"], self.chat.describe_tools(self.schemas))}

    def _write(self, ready: Sequence[ActiveEpisode], ctx: Context, sampling: Sampling) -> None:
        """One turn of each, in one batch."""
        if not ready:
            return
        for play, done in zip(ready, self.sample(ready, ctx, sampling)):
            play.script.write(done)
            play.last = done
            # a turn without its end, such as one cut off at max_tokens, ends the episode
            if done.ended != "done":
                play.end(done.ended)
                continue
            text = ctx.policy.turn_text(done.action.tolist()) if self.chat else str(done.output)
            try:
                calls = self.parser.parse(text, play.tools)
            except ToolError as error:
                play.called, play.pending = [ToolCall("none", text)], [reject(error)]
            else:
                if not calls:
                    play.end("done")
                    continue
                play.called = calls
                if play.turns <= self.max_turns:
                    play.pending = [self.executor.submit(call, play.tools) for call in calls]
            if play.turns > self.max_turns:
                play.pending = []
                play.counts["tools/out_of_turns"] += 1
                play.end("length")

    def sample(self, ready: Sequence[ActiveEpisode], ctx: Context, sampling: Sampling) -> list[Completion]:
        """The next turn of each."""
        return ctx.engine.sample([play.request(ctx) for play in ready], sampling)

    def _read(self, play: ActiveEpisode, ctx: Context) -> None:
        """Append the results of the calls that are done."""
        results = []
        for call, pending in zip(play.called, play.pending):
            result = self.executor.result(pending)
            play.counts[f"tools/{pending.name}/{result.outcome}"] += 1
            play.calls.append((call.name, call.arguments, result.outcome))
            if result.fault and not self.continue_on_fault:
                play.episode.info["error"] = f"tool {call.name!r} {result.outcome}: {result.text}"
                play.end("error")
                return
            if result.succeeded and play.tools[call.name].ends_episode:
                play.end("done", result.text)
                return
            results.append(result)
        play.pending = []
        if any(result.images for result in results):
            self._begin_row(play, results, ctx)
        elif self.chat:
            play.script.read(self._encode_results(play, results, ctx))
        else:
            play.script.read(ctx.policy.tokenize("".join(map(self._format, results))))

    def _begin_row(self, play: ActiveEpisode, results: Sequence[ToolResult], ctx: Context) -> None:
        """Continue in a new row, whose context is the conversation with the images of the results."""
        safe = ctx.policy.break_special_tokens
        if self.chat:
            before, answers = self._write_results(play, results)
            if play.last is not None and not ctx.policy.template_shows_calls(before[-1]["tool_calls"]):
                # the text as sampled: the template would leave the call out of the new row
                content = safe(ctx.policy.turn_text(play.last.action.tolist()))
                before[-1] = {"role": "assistant", "content": content}
        else:
            content = safe(ctx.policy.decode(play.script.ids.tolist()))
            before = [*play.messages, {"role": "assistant", "content": content}]
            answers = [{"role": "user", "content": self._format(result)} for result in results]
        for answer, result in zip(answers, results):
            text = {"type": "text", "text": safe(answer["content"])}
            answer["content"] = [*({"type": "image"} for _ in result.images), text]
        play.messages = [*before, *answers]
        images = [image for result in results for image in result.images]
        play.begin_row({**play.script.raw, "messages": play.messages, "images": [*play.script.raw["images"], *images]})

    def _format(self, result: ToolResult) -> str:
        if result.succeeded:
            return self.parser.format_result(result.text)
        return self.parser.format_error(result.outcome, result.text)

    def _encode_results(self, play: ActiveEpisode, results: Sequence[ToolResult], ctx: Context) -> Tensor:
        """Encode the results of a turn's calls as the chat template writes them."""
        before, answers = self._write_results(play, results)
        play.messages = [*before, *answers]
        encoded = ctx.policy.encode_tool_results(
            before, answers, play.script.raw.get("tools"), int(play.script.ids[-1])
        )
        return torch.tensor(encoded, dtype=torch.long)

    def _write_results(
        self, play: ActiveEpisode, results: Sequence[ToolResult]
    ) -> tuple[list[Mapping[str, Any]], list[dict[str, Any]]]:
        """Return the conversation up to the calls, and the messages of their results."""
        ids = [f"call{len(play.calls) - len(results) + n:05}" for n in range(len(results))]  # Mistral wants 9 letters
        functions = [
            {"name": c.name, "arguments": c.arguments if isinstance(c.arguments, dict) else {}} for c in play.called
        ]
        calls = [{"type": "function", "id": i, "function": function} for i, function in zip(ids, functions)]
        answers = [
            {"role": "tool", "tool_call_id": i, "name": call.name, "content": self._format(result)}
            for i, call, result in zip(ids, play.called, results)
        ]
        return [*play.messages, {"role": "assistant", "content": "", "tool_calls": calls}], answers


@dataclass(eq=False)
class ActiveEpisode:
    """ActiveEpisode: an unfinished episode, the transcript of its current row and its pending call."""

    episode: Episode
    script: Transcript
    rows: list[Turn] = field(default_factory=list)  # that an image ended
    earlier: int = 0  # turns in those rows
    tools: Mapping[str, Tool] = field(default_factory=dict)
    called: Sequence[ToolCall] = ()  # of the last turn
    pending: list[PendingCall] = field(default_factory=list)
    calls: list[tuple[str, Any, str]] = field(default_factory=list)
    messages: list[Mapping[str, Any]] = field(default_factory=list)  # of the conversation, with a ChatParser
    counts: Counter[str] = field(default_factory=Counter)
    last: Completion | None = None
    over: bool = False

    def begin(self, tools: Mapping[str, Tool]) -> None:
        self.messages = list(self.script.raw["messages"])
        self.tools = {name: tool.start(self.episode.prompt) for name, tool in tools.items()}
        for tool in self.tools.values():
            tool.meet(self.tools)

    @property
    def turns(self) -> int:
        """Number of turns so far."""
        return self.earlier + self.script.turns

    def begin_row(self, raw: Mapping[str, Any]) -> None:
        """Close the current row and begin another one."""
        assert self.last is not None
        self.rows.append(Turn(self.script.completion(self.last.output, "done")))
        self.earlier, self.script = self.turns, Transcript(raw)

    def request(self, ctx: Context) -> Request:
        return self.script.request(turn_seed(self.episode.group, self.episode.sample_index, ctx, self.turns))

    def end(self, ended: Ended, output: str | None = None) -> None:
        assert self.last is not None
        self.over, self.episode.ended = True, ended
        answer = self.last.output if output is None else output
        self.episode.turns = [*self.rows, Turn(self.script.completion(answer, ended))]
        self.episode.info |= {"calls": self.calls, "counts": dict(self.counts), "turns": self.turns}
        self.episode.info["notes"] = {name: tool.notes() for name, tool in self.tools.items()}
        for tool in self.tools.values():
            tool.finish()
