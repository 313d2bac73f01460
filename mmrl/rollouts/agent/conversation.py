"""Conversations of an agent's calls: the sampled ids of earlier turns are kept, and a branch is a row of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from mmrl.core.types import Completion, Ended, Request, Sampling, Turn
from mmrl.engines.base import context_id
from mmrl.engines.endpoint.chat_format import ChatFormat
from mmrl.engines.endpoint.errors import RequestError
from mmrl.engines.endpoint.messages import Message, conversation_key, count_images
from mmrl.engines.endpoint.reply import ChatChoice
from mmrl.engines.endpoint.request import ChatRequest
from mmrl.rollouts.text.transcript import Transcript

DRIFT_CALLS, DRIFT_TOKENS, REWRITTEN = "agent/drift_calls", "agent/drift_tokens", "agent/rewritten"
"""Metrics: calls whose history would be other ids if it were tokenised again, how many, and calls whose template writes
earlier turns in another way."""
SHOWN = "agent/image_rows"
"""Metric: calls that bring images after a reply, each a row of its own."""


class AgentRow:
    """A row: a context, then sampled turns with the forced tokens between them.

    Args:
        raw: observation that the context starts from.
        context: [P] ids of that observation.
        sampling: of every turn of the row, without limits.
        start: [S] ids after the observation that belong to the context: turns that another row has as choices.
    """

    def __init__(self, raw: Mapping[str, Any], context: Tensor, sampling: Sampling, start: Tensor, prompt_id: Hashable):
        self.raw, self.context, self.sampling, self.start = raw, context, sampling, start
        self.script = Transcript(raw, prompt_id)
        self.last: Completion | None = None

    def ids(self, length: int) -> Tensor:
        """Return the ids after the observation up to the first `length` ones of the row's own."""
        return torch.cat([self.start, self.script.ids[:length]])

    def request(self, seed: int) -> Request:
        """Build the request of the next turn."""
        prefix = self.ids(len(self.script))
        return Request(self.raw, seed, prefix if len(prefix) else None, self.script.prompt_id)

    def write(self, done: Completion) -> None:
        """Append a sampled turn."""
        self.script.write(done)
        self.last = done

    def turn(self, ended: Ended) -> Turn:
        """Return the row."""
        assert self.last is not None
        row = self.script.completion(self.last.output, ended)
        if len(self.start):  # its context is longer than that of the others with this observation
            row = replace(row, prompt_id=context_id(Request(self.raw, 0, self.start, self.script.prompt_id)))
        return Turn(row)


@dataclass(eq=False)
class TurnEnd:
    """The state after a sampled turn: its row, the row's ids up to there, and whether the row goes on."""

    row: AgentRow
    length: int
    extended: bool = False


@dataclass(eq=False)
class PlannedTurn:
    """A turn that the engine shall sample."""

    row: AgentRow
    sampling: Sampling
    request: Request
    prompt_tokens: int


class AgentConversation:
    """All calls of one episode.

    A call whose messages extend those of an earlier call and its reply goes on from the ids that were sampled there.
    A second call from the same reply, or one with other sampling parameters, is a row of its own, whose context has
    these ids. So is every other call: its context is what the chat template writes. A call that brings images after a
    reply is one of these, as in `ToolUse`: the images of a row are those of its observation.

    Args:
        chat: template and parser.
        max_drift: largest share of a history's ids that tokenising it again may change.
    """

    def __init__(self, chat: ChatFormat, max_drift: float = 1.0):
        self.chat, self.max_drift = chat, max_drift
        self.rows: list[AgentRow] = []
        self.counts: Counter[str] = Counter({DRIFT_CALLS: 0, DRIFT_TOKENS: 0, REWRITTEN: 0, SHOWN: 0})
        self._ends: dict[tuple[Hashable, ...], list[TurnEnd]] = {}

    def plan(self, request: ChatRequest, sampling: Sampling, seeds: list[int]) -> list[PlannedTurn]:
        """Plan the turns of a call, one for each seed.

        Raises:
            RequestError: the template cannot write the messages, they are too long, or they drifted too far.
        """
        raw = self.chat.observe(request.messages, request.tools)
        written = self.chat.encode(raw)
        end = self._find_end(request)
        forced = None if end is None else self._continue(end, raw, request, written)
        if end is None or forced is None:
            end, base, context, start = None, raw, written, written[:0]
            forced, prompt_id = written[:0], conversation_key(request.messages, request.tools)
        else:
            row = end.row
            base, context, prompt_id = row.raw, row.context, row.script.prompt_id
            start = torch.cat([row.ids(end.length), forced])
        tokens = len(context) + len(start)
        sampling = self.chat.limit_tokens(sampling, tokens)
        common = replace(sampling, max_tokens=1, stop=())
        planned = []
        for seed in seeds:
            if end is not None and self._goes_on(end, common):
                end.extended, row = True, end.row
                row.script.read(forced)
            else:
                row = AgentRow(base, context, common, start, prompt_id)
                self.rows.append(row)
            planned.append(PlannedTurn(row, sampling, row.request(seed), tokens))
        return planned

    def _find_end(self, request: ChatRequest) -> TurnEnd | None:
        """The state after the last reply in the messages, if that was sampled after the messages before it."""
        messages = request.messages
        last = max((i for i, each in enumerate(messages) if each["role"] == "assistant"), default=len(messages) - 1)
        if last == len(messages) - 1:
            return None
        ends = self._ends.get(conversation_key(messages[: last + 1], request.tools), [])
        return next((end for end in ends if not end.extended), ends[0] if ends else None)

    def _continue(self, end: TurnEnd, raw: Mapping[str, Any], request: ChatRequest, written: Tensor) -> Tensor | None:
        """The ids between a reply and the next one; counts how the history differs from what the template writes."""
        history = end.row.ids(end.length)
        further = next(i for i, each in enumerate(reversed(request.messages)) if each["role"] == "assistant")
        if any(map(count_images, request.messages[-further:])):
            self.counts[SHOWN] += 1
            return None
        forced = self.chat.continue_turn(raw, further, int(history[-1]))
        if forced is None:
            self.counts[REWRITTEN] += 1
            return None
        changed, whole = count_changes(torch.cat([end.row.context, history, forced]), written)
        self.counts[DRIFT_CALLS] += changed > 0
        self.counts[DRIFT_TOKENS] += changed
        if changed > self.max_drift * whole:
            raise RequestError(
                f"tokenising this history again changes {changed} of {whole} ids, more than rollout.max_drift="
                f"{self.max_drift:g}; send replies back as they came",
                "messages",
                "drift",
            )
        return forced

    def _goes_on(self, end: TurnEnd, sampling: Sampling) -> bool:
        """Whether the row of a reply can go on: nothing was sampled after it, and its choices are drawn alike."""
        return not end.extended and end.length == len(end.row.script) and end.row.sampling == sampling

    def record(self, request: ChatRequest, planned: PlannedTurn, done: Completion) -> ChatChoice:
        """Append a sampled turn, and return it as the client reads it."""
        planned.row.write(done)
        choice = self.chat.read_choice(done, request, planned.sampling.stop)
        reply: Message = {**choice.message, "content": self.chat.clean(choice.message["content"])}
        key = conversation_key([*request.messages, reply], request.tools)
        self._ends.setdefault(key, []).append(TurnEnd(planned.row, len(planned.row.script)))
        return choice

    def turns(self) -> list[Turn]:
        """Return the rows, in the order in which they began."""
        return [row.turn("length" if row.last.ended == "length" else "done") for row in self.rows if row.last]


def count_changes(ids: Tensor, others: Tensor) -> tuple[int, int]:
    """Count the ids between the common beginning and the common end of two sequences, and those of the longer one."""
    shorter, longer = min(len(ids), len(others)), max(len(ids), len(others))
    same = (ids[:shorter] == others[:shorter]).long().cumprod(0).sum().item()
    rest = shorter - int(same)
    tail = (ids.flip(0)[:rest] == others.flip(0)[:rest]).long().cumprod(0).sum().item() if rest else 0
    return longer - int(same) - int(tail), longer
