"""Requests of agents that wait for the engine, and the moment at which they are sampled together."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from mmrl.core.types import Episode
from mmrl.engines.endpoint.asynchronous import resolve
from mmrl.engines.endpoint.errors import RequestError
from mmrl.engines.endpoint.messages import conversation_key
from mmrl.engines.endpoint.reply import ChatReply
from mmrl.engines.endpoint.request import ChatRequest
from mmrl.rollouts.agent.conversation import AgentConversation
from mmrl.rollouts.agent.function import AgentRun

_POLL_S = 1.0


@dataclass(eq=False)
class AgentEpisode:
    """An episode that is being played: its conversation, its agent, and its calls."""

    episode: Episode
    number: int  # among the episodes of the collection
    key: str  # by which its requests are known
    conversation: AgentConversation
    counts: Counter[str] = field(default_factory=Counter)
    run: AgentRun | None = None  # None before it starts
    calls: int = 0  # choices that were asked for
    waiting: int = 0  # requests without an answer
    refusal: str | None = None  # the first refused request
    over: bool = False

    @property
    def is_busy(self) -> bool:
        """Whether the agent is running, and waits for no reply."""
        return self.run is not None and not self.run.done and not self.waiting

    @property
    def is_done(self) -> bool:
        """Whether the agent has returned or raised."""
        return self.run is not None and self.run.done

    def is_late(self, timeout_s: float) -> bool:
        """Whether the agent is running, and was last given something more than so many seconds ago."""
        return self.is_busy and self.run is not None and self.run.age_s() > timeout_s


@dataclass(eq=False)
class AgentCall:
    """A request that waits for its reply; `order` sorts those of a batch whenever they arrived."""

    play: AgentEpisode
    request: ChatRequest
    future: asyncio.Future[ChatReply]

    @property
    def order(self) -> tuple[int, str]:
        """The number of the episode, then the content of the request."""
        request = self.request
        return self.play.number, repr((conversation_key(request.messages, request.tools), request))


class CallDesk:
    """Waiting calls of all agents.

    Args:
        window_s: seconds without a new call after which the calls of agents that all wait are a batch.
    """

    def __init__(self, window_s: float):
        self.changed = threading.Condition()
        self._window_s = window_s
        self._calls: list[AgentCall] = []
        self._arrived_at = 0.0

    async def ask(self, play: AgentEpisode, request: ChatRequest) -> ChatReply:
        """Wait for the reply to a request. It runs in the event loop of the server.

        Raises:
            RequestError: the request is refused, or the episode is over.
        """
        call = AgentCall(play, request, asyncio.get_running_loop().create_future())
        with self.changed:
            if play.over:
                raise RequestError("the episode of this key is over", None, "episode_over", 400)
            self._calls.append(call)
            play.waiting += 1
            self._arrived_at = time.monotonic()
            self.changed.notify_all()
        try:
            return await call.future
        finally:
            with self.changed:
                if call in self._calls:  # its client is gone
                    self._calls.remove(call)
                    play.waiting -= 1
                    self.changed.notify_all()

    def wait(self, running: Sequence[AgentEpisode], timeout_s: float, batch_timeout_s: float | None) -> list[AgentCall]:
        """Wait until every running agent waits for a reply, and return the calls; fewer where an agent is done or late.

        Args:
            running: whose agents were started.
            timeout_s: seconds that an agent may take between two replies.
            batch_timeout_s: seconds after which calls no longer wait for the other agents; None for any.
        """
        started = time.monotonic()
        with self.changed:
            while True:
                now = time.monotonic()
                busy = [play for play in running if play.is_busy]
                if any(play.is_done or play.is_late(timeout_s) for play in running):
                    return []  # the batch is complete once these have ended
                settled = self._arrived_at + self._window_s - now
                if not busy and settled <= 0:
                    return self._take()
                overdue = None if batch_timeout_s is None else started + batch_timeout_s - now
                if overdue is not None and overdue <= 0 and self._calls:
                    return self._take()
                limits = [play.run.active_since + timeout_s - now for play in busy if play.run is not None]
                pause = min([_POLL_S, *limits, *([settled] if not busy else []), *([overdue] if overdue else [])])
                self.changed.wait(max(pause, 0.0) + 1e-4)

    def notify(self) -> None:
        """Let `wait` look at the agents again."""
        with self.changed:
            self.changed.notify_all()

    def _take(self) -> list[AgentCall]:
        """All calls in their order."""
        calls, self._calls = sorted(self._calls, key=lambda call: call.order), []
        return calls

    def reply(self, call: AgentCall, result: ChatReply | RequestError, loop: asyncio.AbstractEventLoop) -> None:
        """Answer a call; from then on the agent is busy again."""
        with self.changed:
            call.play.waiting -= 1
            if call.play.run is not None:
                call.play.run.active_since = time.monotonic()
        loop.call_soon_threadsafe(resolve, call.future, result)

    def end(self, play: AgentEpisode, loop: asyncio.AbstractEventLoop) -> None:
        """Refuse further calls of an episode, and those that wait."""
        with self.changed:
            play.over = True
            calls = [call for call in self._calls if call.play is play]
        for call in calls:
            error = RequestError("the episode of this key is over", None, "episode_over", 400)
            loop.call_soon_threadsafe(resolve, call.future, error)
