"""HTTP client of one vLLM server: generation from token ids and images, and weight updates from files."""

from __future__ import annotations

import base64
import io
import math
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
from PIL import Image

from mmrl.engines.vllm.backend import EngineFailure, EngineOutput, EnginePrompt, EngineSampling, EngineWeights
from mmrl.engines.vllm.sampling import parse_finish_reason, parse_support, sampling_fields

NOWHERE = -9999.0  # the route's value for a log-prob of minus infinity
SOCKET = "unix:"
UNKNOWN = -1  # version of weights that mmrl has not sent, such as those of a server that has just started


class Refused(RuntimeError):
    """The server answered with an error."""

    def __init__(self, path: str, status: int, said: str):
        super().__init__(f"{path} answered {status}: {said[:500]}")
        self.status = status


class Client:
    """HTTP client of the server at `address`: http://host:port, or unix:/path/of/a/socket.

    All requests but sampling time out after `seconds`.
    """

    def __init__(self, address: str, seconds: float):
        self.address, self.seconds = address.rstrip("/"), seconds
        self._session: aiohttp.ClientSession | None = None

    async def ask(self, path: str, body: dict[str, Any] | None = None, seconds: float | None = None) -> Any:
        """Send a request: POST with a body, GET without. Raises Refused, or OSError without an answer."""
        limit = self.seconds if seconds is None else seconds
        timeout = aiohttp.ClientTimeout(total=None if limit == math.inf else limit)
        base = "http://server" if self.address.startswith(SOCKET) else self.address
        method = "GET" if body is None else "POST"
        try:
            async with self._open_session().request(method, base + path, json=body, timeout=timeout) as response:
                text = await response.text()
                if response.status != 200:
                    raise Refused(path, response.status, text)
                return await response.json() if text else None
        except aiohttp.ClientError as error:
            raise ConnectionError(f"{self.address} does not answer: {error or type(error).__name__}") from error

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            # a reused connection may have been closed, which would look like a dead server
            local = self.address.startswith(SOCKET)
            connector: aiohttp.BaseConnector = (
                aiohttp.UnixConnector(self.address.removeprefix(SOCKET), limit=0, force_close=True)
                if local
                else aiohttp.TCPConnector(limit=0, force_close=True)
            )
            self._session = aiohttp.ClientSession(connector=connector)
        return self._session

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    # ---------------------------------------------------------------- sampling

    async def healthy(self, seconds: float = 5.0) -> bool:
        try:
            await self.ask("/health", seconds=seconds)
        except (OSError, Refused):
            return False
        return True

    async def draws(self, prompt: EnginePrompt, seconds: float) -> bool:
        """Whether the engine can still sample one token; /health answers even while the engine hangs."""
        body = {"token_ids": list(prompt.ids[:1]), "sampling_params": {"max_tokens": 1}}
        try:
            await self.ask("/inference/v1/generate", body, seconds)
        except (OSError, Refused):
            return False
        return True

    async def generate(self, prompt: EnginePrompt, image_urls: list[str], drawing: EngineSampling) -> EngineOutput:
        body: dict[str, Any] = {
            "token_ids": list(prompt.ids),
            "sampling_params": sampling_fields(drawing, prompt.seed),
            "return_token_ids": True,
        }
        if image_urls:
            body["content_parts"] = [{"type": "image_url", "url": url} for url in image_urls]
        return output(await self.ask("/inference/v1/generate", body, math.inf), drawing)

    # ---------------------------------------------------------------- weights

    async def push(self, files: list[Path], version: int) -> None:
        """Load the tensors of files."""
        for file in files:
            self._refuse(await self._workers("mmrl_check", str(file)))
        await self.start_update()
        for file in files:
            await self.ask("/update_weights", {"update_info": {"path": str(file), "version": version}})
        await self.finish_update(version)

    async def check_broadcast(self, contents: dict[str, Any]) -> list[dict[str, Any]]:
        """Return each worker's answer to `mmrl_check_broadcast`; raises EngineFailure if it cannot load the tensors."""
        answers = await self._workers("mmrl_check_broadcast", contents["tensors"], contents["scales"])
        self._refuse(answers)
        return answers

    async def join(self, address: dict[str, Any], first_rank: int) -> None:
        """Make the workers members of a group, from a rank on; returns when all members are there."""
        info = {"address": address, "first_rank": first_rank}
        await self.ask("/init_weight_transfer_engine", {"init_info": info})

    async def receive(self, contents: dict[str, Any], version: int) -> None:
        """Load tensors that are broadcast meanwhile."""
        await self.ask("/update_weights", {"update_info": contents | {"version": version}})

    async def start_update(self) -> None:
        """Wait for running requests, and begin to load weights."""
        await self.ask("/pause?mode=wait", {})
        await self.ask("/start_weight_update", {})

    async def finish_update(self, version: int) -> None:
        """End a transfer, reset every cache of older weights, and answer requests again."""
        await self.ask("/finish_weight_update", {"weight_version": str(version)})
        if not (await self.ask("/reset_prefix_cache", {}))["success"]:
            raise EngineFailure(f"the vLLM server at {self.address} did not reset its prefix cache; restart it")
        await self.ask("/reset_mm_cache", {})
        await self.ask("/reset_encoder_cache", {})
        await self.ask("/resume", {})

    def _refuse(self, answers: list[dict[str, Any]]) -> None:
        for answer in answers:
            if answer["problems"]:
                raise EngineFailure(
                    f"the vLLM server at {self.address} cannot take the policy's weights: "
                    + "; ".join(answer["problems"])
                )

    async def name(self, version: int) -> None:
        """Set the version of the weights that the server holds."""
        await self.ask("/init_weight_transfer_engine", {"init_info": {}})
        await self.ask("/update_weight_version", {"new_version": str(version)})

    async def report_weights(self) -> list[EngineWeights]:
        """Return the weights that each worker of the server holds."""
        version = (await self.ask("/weight_info"))["weight_version"]
        return [EngineWeights.read(reply, int(version)) for reply in await self._workers("mmrl_report_weights")]

    async def _workers(self, question: str, *words: Any) -> list[dict[str, Any]]:
        return (await self.ask("/collective_rpc", {"method": question, "args": list(words)}))["results"]


def output(reply: dict[str, Any], drawing: EngineSampling) -> EngineOutput:
    """Convert a reply of /inference/v1/generate."""
    (choice,) = reply["choices"]
    ended, error, support_ids = parse_finish_reason(choice["finish_reason"], choice["stop_reason"]), "", None
    steps = choice["logprobs"]["content"] if choice["logprobs"] else []
    if ended == "error":
        error = f"vLLM ended it with {choice['finish_reason']!r}"
    elif drawing.support:
        try:
            support_ids = tuple(
                parse_support({e["token_id"]: _real(e["logprob"]) for e in s["top_logprobs"]}) for s in steps
            )
        except ValueError as refused:
            ended, error = "error", str(refused)
    names = [span["version"] for span in choice["weight_versions"] or ()]
    versions = [int(version) if version.isdigit() else UNKNOWN for version in names]
    return EngineOutput(
        prompt_ids=tuple(reply["prompt_token_ids"]),
        ids=tuple(choice["token_ids"]),
        logprobs=tuple(_real(step["logprob"]) for step in steps),
        ended=ended,
        support_ids=support_ids,
        version=min(versions, default=None),
        error=error,
        prompt_logprobs=tuple(
            _real(step[str(i)]["logprob"])
            for i, step in zip(reply["prompt_token_ids"][1:], (reply.get("prompt_logprobs") or ())[1:])
        ),
    )


def _real(logprob: float) -> float:
    return -math.inf if logprob <= NOWHERE else logprob


def image_data_url(image: np.ndarray) -> str:
    """Encode an image as a data URL, lossless."""
    file = io.BytesIO()
    Image.fromarray(image).save(file, "png", compress_level=1)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
