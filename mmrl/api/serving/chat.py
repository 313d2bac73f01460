"""Server of a text policy: the endpoint of OpenAI's form that agents have during training."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from mmrl.api.loaded_policy import build_part
from mmrl.api.serving.batching import Batcher
from mmrl.core.rng import derive_seed
from mmrl.core.types import Request, Sampling
from mmrl.engines.endpoint.chat_format import ChatFormat
from mmrl.engines.endpoint.errors import RequestError
from mmrl.engines.endpoint.reply import ChatReply
from mmrl.engines.endpoint.request import ChatRequest
from mmrl.engines.endpoint.server import ChatServer
from mmrl.policies.base import Policy
from mmrl.policies.remote.token import is_token
from mmrl.tools.call_parser import ToolCallParser
from mmrl.tools.chat_parser import ChatParser

MODEL = "policy"
"""The name of the policy in requests."""
CALL_S = 300.0
"""Seconds after which a request that the policy has not answered is an error for its client."""


class TextPolicyServer:
    """Answer conversations with the completions of a text or vision-language policy, at /v1/chat/completions.

    Requests that wait at the same time are one call of the policy. A request with a seed is answered alike whenever it
    comes; the others have a seed each. Nothing is kept between requests.

    Args:
        policy: with its weights.
        sampling: of requests that name no parameters of their own.
        seed: of the draws of requests that name none.
        token: that a client must send as its key; None asks for none.
        max_batch: most completions of one call of the policy.
        parser: of the calls of tools that the policy writes; None for the syntax of Hermes and Qwen.
    """

    def __init__(
        self,
        policy: Policy,
        sampling: Sampling,
        seed: int = 0,
        token: str | None = None,
        max_batch: int = 32,
        parser: ChatParser | None = None,
    ):
        self._chat, self._sampling, self._seed = ChatFormat(policy, parser), sampling, seed
        self._most = policy.context_length or sampling.max_tokens
        self._token = token
        self._batcher = Batcher.of(policy, max_batch)
        self._server = ChatServer(MODEL, self._admit, self._chat.clean, self._answer)
        self._requests = 0

    @property
    def busy(self) -> bool:
        """Whether a call of the policy is under way."""
        return self._batcher.busy_s > 0

    async def serve(self, host: str, port: int, ready: Callable[[int], None], stop: asyncio.Event) -> None:
        """Serve until `stop` is set.

        Args:
            host: address to listen at.
            port: 0 takes a free one.
            ready: called with the port once clients can connect.
        """
        async with self._batcher.running():
            await self._server.serve(host, port, ready, stop)

    def _admit(self, key: str) -> bool | None:
        return True if is_token(key, self._token) else None

    async def _answer(self, caller: Any, request: ChatRequest) -> ChatReply:
        number, self._requests = self._requests, self._requests + 1
        key = ("chat", self._seed, number) if request.seed is None else ("chat", request.seed)
        raw = self._chat.observe(request.messages, request.tools)
        tokens = len(self._chat.encode(raw))
        sampling = self._chat.limit_tokens(request.merge_sampling(self._sampling, self._most), tokens)
        if (busy_s := self._batcher.busy_s) > CALL_S:
            raise RequestError(f"the policy is busy for {busy_s:.0f} s; try again later", None, "busy", 503)
        requests = [Request(raw, derive_seed(*key, i), prompt_id=number) for i in range(request.n)]
        try:
            waiting = asyncio.gather(*(self._batcher.ask(each, sampling) for each in requests))
            served = await asyncio.wait_for(waiting, CALL_S)
        except TimeoutError as error:
            raise RequestError(f"the policy has not answered within {CALL_S:g} s", None, "timeout", 503) from error
        choices = [self._chat.read_choice(each.completion, request, sampling.stop) for each in served]
        return ChatReply(f"chatcmpl-{number}", choices, tokens)


def find_parser(config: Mapping[str, Any]) -> ChatParser | None:
    """Build the parser of calls with which a run was trained; None where it has none for a chat template.

    Args:
        config: content of the run's config.yaml.
    """
    rollout = (config.get("data") or {}).get("init_args", {}).get("rollout") or {}
    spec = (rollout.get("init_args") or {}).get("parser")
    parser = None if spec is None else build_part(ToolCallParser, spec, "parser")
    return parser if isinstance(parser, ChatParser) else None
