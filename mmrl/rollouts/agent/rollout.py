"""Rollout of agents that own their loop: during a collection the policy answers at an OpenAI-compatible endpoint."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from mmrl.core.errors import check_at_least, check_fraction, check_positive
from mmrl.core.rng import derive_seed
from mmrl.core.types import Completion, Context, Episode, Prompt, Sampling, Task
from mmrl.engines.endpoint.chat_format import ChatFormat
from mmrl.engines.endpoint.errors import RequestError
from mmrl.engines.endpoint.reply import ChatReply
from mmrl.engines.endpoint.request import ChatRequest
from mmrl.engines.endpoint.server import ChatServer
from mmrl.engines.endpoint.thread import ServerThread
from mmrl.rollouts.agent.calls import AgentCall, AgentEpisode, CallDesk
from mmrl.rollouts.agent.conversation import AgentConversation, PlannedTurn
from mmrl.rollouts.agent.function import AgentFunction, AgentRun, join_runs
from mmrl.rollouts.base import Rollout, turn_seed
from mmrl.tools.chat_parser import ChatParser

log = logging.getLogger(__name__)

MODEL = "policy"
"""The name of the policy in requests."""
_LINES = 3  # failed episodes of a collection that have a line each


class AgentRollout(Rollout):
    """Play the episodes of an agent, a function of the user with a loop and a client of its own.

    During a collection a server at 127.0.0.1 speaks /v1/chat/completions for the policy in training. The agent is
    called with the row, `base_url`, `model` and `api_key`, talks to the policy with any client, and returns the
    reward, a number, or named numbers with `reward`. Each episode has a key of its own, by which its calls are known.

    A conversation is one row: a call whose messages extend those of an earlier call and its reply goes on from the
    sampled ids, which are not tokenised again; what was read in between is masked. A call with an edited, shortened or
    branched history, with other sampling parameters, or whose template writes earlier turns in another way is a row of
    its own. All rows of an episode have its reward.

    The calls of the agents that wait at the same time are one batch of the engine. Their draws depend on seed, prompt,
    sample and the number of the call alone; of calls that one agent makes at the same time the content decides which
    is first. An agent that raises, takes too long, sends a request that is refused, makes no call or returns no number
    ends its episode as an error, which is counted and not trained on.

    Args:
        agent: the function, as my_agent.py:run; plain or async.
        parser: of the calls of tools that the policy writes; by default in the syntax of Hermes and Qwen.
        max_concurrent: agents that run at the same time, each in a thread.
        max_calls: completions that an episode may ask for.
        timeout_s: seconds that an agent may take between two replies; the policy's own time does not count.
        batch_timeout_s: seconds that waiting calls wait for agents that are busy. None waits for all: the batches, and
            so the last bits of their log-probs, then do not depend on how fast an agent is.
        window_s: seconds that a batch waits for further calls that an agent makes at the same time.
        max_drift: largest share of a history's ids that tokenising it again may change; a call with more is refused.
            1 refuses none. What changed is counted as `rollout/agent/drift_tokens`.
        max_failed: share of a collection's episodes that may end as errors before the run stops with an error.
    """

    def __init__(
        self,
        agent: str = "",
        parser: ChatParser | None = None,
        max_concurrent: int = 64,
        max_calls: int = 64,
        timeout_s: float = 60.0,
        batch_timeout_s: float | None = None,
        window_s: float = 0.005,
        max_drift: float = 1.0,
        max_failed: float = 0.5,
    ):
        check_at_least(1, "rollout", max_concurrent=max_concurrent, max_calls=max_calls)
        check_positive("rollout", timeout_s=timeout_s)
        check_at_least(0, "rollout", window_s=window_s)
        check_fraction("rollout", max_drift=max_drift, max_failed=max_failed)
        self.agent, self.parser, self.function = agent, parser, AgentFunction(agent)
        self.max_concurrent, self.max_calls, self.timeout_s = max_concurrent, max_calls, timeout_s
        self.batch_timeout_s, self.window_s, self.max_drift = batch_timeout_s, window_s, max_drift
        self.max_failed = max_failed

    def check_task(self, task: Task) -> None:
        """Refuse a task whose rows lack a parameter of the agent."""
        self.function.bind(task[0], {"base_url": "", "model": MODEL, "api_key": "", "seed": 0})

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        chat = ChatFormat(ctx.policy, self.parser)
        pairs = [(slot, prompt, i) for slot, prompt in prompts for i in ctx.sample_indices(slot)]
        plays = [
            AgentEpisode(Episode(prompt, slot, i), n, secrets.token_hex(16), AgentConversation(chat, self.max_drift))
            for n, (slot, prompt, i) in enumerate(pairs)
        ]
        by_key, desk = {play.key: play for play in plays}, CallDesk(self.window_s)
        server = ChatServer(MODEL, by_key.get, chat.clean, desk.ask, _note_refusal)
        failures: list[str] = []
        try:
            with ServerThread(server) as endpoint:
                try:
                    self._play(plays, desk, endpoint, ctx, failures)
                finally:  # agents that wait get an answer before the server ends
                    self._stop([play for play in plays if not play.over], desk, endpoint.loop)
        finally:
            if alive := join_runs([play.run for play in plays if play.run is not None]):
                log.warning("%d agents hang outside of Python's code; their threads end with the program", alive)
        if len(failures) > _LINES:
            log.warning("%d further episodes of the agent failed", len(failures) - _LINES)
        return [play.episode for play in plays]

    def _play(
        self, plays: list[AgentEpisode], desk: CallDesk, endpoint: ServerThread, ctx: Context, failures: list[str]
    ) -> None:
        """Run the agents, at most `max_concurrent` at the same time, and answer their calls in batches."""
        waiting, running, url = deque(plays), list[AgentEpisode](), f"http://127.0.0.1:{endpoint.port}/v1"
        while waiting or running:
            while waiting and len(running) < self.max_concurrent:
                running.append(waiting.popleft())
                self._start(running[-1], url, partial(endpoint.loop.call_soon_threadsafe, desk.notify), ctx)
            calls = desk.wait(running, self.timeout_s, self.batch_timeout_s)
            if calls:
                self._answer(calls, desk, endpoint.loop, ctx)
            for play in running:
                if play.is_done or play.is_late(self.timeout_s):
                    self._end(play, desk, endpoint.loop, failures, len(plays))
            running = [play for play in running if not play.over]
            ctx.progress("rollout", len(plays) - len(waiting) - len(running), len(plays))

    def _start(self, play: AgentEpisode, url: str, notify: Callable[[], Any], ctx: Context) -> None:
        episode = play.episode
        seed = derive_seed("agent", ctx.seed, ctx.purpose, ctx.iteration, episode.group, episode.sample_index)
        endpoint = {"base_url": url, "model": MODEL, "api_key": play.key, "seed": seed}
        play.run = AgentRun(self.function, self.function.bind(episode.prompt, endpoint), notify)

    def _answer(
        self, calls: Sequence[AgentCall], desk: CallDesk, loop: asyncio.AbstractEventLoop, ctx: Context
    ) -> None:
        """Plan the turns of all calls, sample those with equal parameters in one batch, and reply."""
        plans: list[tuple[AgentCall, list[PlannedTurn]]] = []
        for call in calls:
            try:
                plans.append((call, self._plan(call, ctx)))
            except RequestError as error:
                desk.reply(call, error, loop)
        groups: dict[Sampling, list[PlannedTurn]] = {}
        for turn in (turn for _, turns in plans for turn in turns):
            groups.setdefault(turn.sampling, []).append(turn)
        done: dict[int, Completion] = {}
        for sampling, turns in groups.items():
            completions = ctx.engine.sample([turn.request for turn in turns], sampling)
            done.update((id(turn), completion) for turn, completion in zip(turns, completions))
        for call, turns in plans:
            desk.reply(call, _record(call, turns, [done[id(turn)] for turn in turns]), loop)

    def _plan(self, call: AgentCall, ctx: Context) -> list[PlannedTurn]:
        """Plan the turns of a call. Raises RequestError where it is refused."""
        play, request = call.play, call.request
        if play.calls + request.n > self.max_calls:
            raise RequestError(
                f"an episode may ask for {self.max_calls} completions (rollout.max_calls)", None, "too_many_calls"
            )
        sampling = request.merge_sampling(ctx.sampling)
        if ctx.purpose == "train" and sampling.decode != ctx.sampling.decode:
            raise RequestError(
                f"temperature={0 if sampling.decode == 'argmax' else sampling.temperature:g}: the most likely token is "
                "no draw from the policy, so nothing can be learnt from it; leave temperature out during training",
                "temperature",
                "unsupported_value",
            )
        turns = play.conversation.plan(request, sampling, self._seeds(play, request, ctx))
        play.calls += request.n
        return turns

    def _seeds(self, play: AgentEpisode, request: ChatRequest, ctx: Context) -> list[int]:
        """Seeds of the choices of a call: of its number in the episode, or of the seed that it names."""
        group, sample = play.episode.group, play.episode.sample_index
        if request.seed is not None:
            return [derive_seed(turn_seed(group, sample, ctx), "seed", request.seed, i) for i in range(request.n)]
        return [turn_seed(group, sample, ctx, play.calls + i) for i in range(request.n)]

    def _end(
        self,
        play: AgentEpisode,
        desk: CallDesk,
        loop: asyncio.AbstractEventLoop,
        failures: list[str],
        episodes: int,
    ) -> None:
        """Read the reward of an agent that has ended, or count why there is none."""
        assert play.run is not None
        outcome, reason = self._judge(play)
        self._stop([play], desk, loop)
        episode, counts = play.episode, play.counts
        episode.turns = play.conversation.turns()
        counts.update(play.conversation.counts)
        counts.update(
            {"agent/calls": play.calls, "agent/rows": len(episode.turns), **({outcome: 1} if outcome else {})}
        )
        episode.info |= {"counts": dict(counts), "turns": play.calls}
        if reason is None:
            last = play.conversation.rows[-1].last
            episode.ended = "length" if last is not None and last.ended == "length" else "done"
            episode.info["agent"] = {name: float(value) for name, value in (play.run.rewards() or {}).items()}
            return
        episode.ended, episode.info["error"] = "error", f"{self.agent} {reason}"
        failures.append(f"{episode.prompt.key!r}: the agent {self.agent} {reason}")
        if len(failures) <= _LINES:
            log.warning("%s; counted as rollout/errors", failures[-1])
        if len(failures) > max(self.max_failed * episodes, 1):
            raise RuntimeError(
                f"{len(failures)} of {episodes} episodes ended by a failure of the agent, more than rollout.max_failed="
                f"{self.max_failed:g}; the last one: {failures[-1]}"
            )

    def _judge(self, play: AgentEpisode) -> tuple[str | None, str | None]:
        """The metric that counts a failure, and its reason; None for an agent that returned a reward."""
        assert play.run is not None
        if not play.run.done:
            return "agent/timed_out", f"took longer than rollout.timeout_s={self.timeout_s:g} s between two replies"
        refusal = "" if play.refusal is None else f"; its first refused request: {play.refusal}"
        failure = play.run.failure()
        if failure is not None:
            returned = not isinstance(play.run.result, BaseException)
            return "agent/no_reward" if returned else "agent/raised", failure + refusal
        if play.refusal is not None:
            return "agent/refused", f"sent a request that was refused: {play.refusal}"
        if not play.conversation.rows:
            return "agent/no_call", "returned without a call of the policy"
        return None, None

    def _stop(self, plays: Sequence[AgentEpisode], desk: CallDesk, loop: asyncio.AbstractEventLoop) -> None:
        """End the agents and their calls."""
        for play in plays:
            desk.end(play, loop)
            if play.run is not None:
                play.run.stop()


def _record(call: AgentCall, turns: Sequence[PlannedTurn], completions: Sequence[Completion]) -> ChatReply:
    """Write the completions of a call into its rows, and build its reply."""
    play = call.play
    name = f"chatcmpl-{play.episode.group}-{play.episode.sample_index}-{play.calls}"
    choices = [play.conversation.record(call.request, turn, done) for turn, done in zip(turns, completions)]
    play.counts["agent/malformed_calls"] += sum(choice.malformed for choice in choices)
    return ChatReply(name, choices, turns[0].prompt_tokens)


def _note_refusal(play: AgentEpisode, error: RequestError) -> None:
    """Keep the first refused request of an episode; the agent may shorten a conversation that is too long."""
    if play.refusal is None and not play.over and error.code != "context_length_exceeded":
        play.refusal = " ".join(str(error).split())[:300]
