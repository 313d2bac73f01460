"""Distribute the prompts of a call over the servers of a pool: the next free server takes the next prompt."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from mmrl.engines.vllm.backend import EngineOutput, EnginePrompt, EngineSampling
from mmrl.engines.vllm.servers.client import Refused, image_data_url
from mmrl.engines.vllm.servers.replica import Replica

PROBE_SECONDS = 30.0


class Down(RuntimeError):
    """A server stopped answering; the message has the observed error."""


class Dispatch:
    """Generate for every prompt once; a prompt whose server died before it answered is sent again.

    Args:
        replicas: the pool.
        revive: restarts a server, given its count of starts when it was found dead, and the reason.
        in_flight: maximum number of concurrent requests per server.
        seconds: time without an answer from a server after which its requests are abandoned.
        version: of the weights that every server must sample with; a server that names another one counts as down.
        probe_seconds: time in which a server that does not hang samples one token, under any load. It does not depend
        on `seconds`: a short limit of a request must not make a loaded server count as dead.
    """

    def __init__(
        self,
        replicas: Sequence[Replica],
        revive: Callable[[Replica, int, str], Awaitable[None]],
        in_flight: int,
        seconds: float,
        version: int | None = None,
        probe_seconds: float = PROBE_SECONDS,
    ):
        self.replicas, self.revive, self.in_flight, self.seconds = replicas, revive, in_flight, seconds
        self.version, self.probe_seconds = version, probe_seconds

    async def answers(self, prompts: Sequence[EnginePrompt], drawing: EngineSampling) -> list[EngineOutput]:
        self._prompts, self._drawing = prompts, drawing
        self._image_urls: dict[int, str] = {}  # completions of a group share their images
        self._waiting = deque(range(len(prompts)))
        self._answered: dict[int, EngineOutput] = {}
        places = [replica for _ in range(self.in_flight) for replica in self.replicas]
        tasks = [asyncio.create_task(self._place(replica)) for replica in places[: len(prompts)]]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return [self._answered[i] for i in range(len(prompts))]

    async def _place(self, replica: Replica) -> None:
        """Send prompts to a server one at a time until none waits."""
        while self._waiting:
            i, start = self._waiting.popleft(), replica.starts
            try:
                self._answered[i] = await self._answer(replica, self._prompts[i])
            except Down as why:
                self._waiting.appendleft(i)
                await self.revive(replica, start, str(why))

    async def _answer(self, replica: Replica, prompt: EnginePrompt) -> EngineOutput:
        request = asyncio.create_task(replica.client.generate(prompt, self._encode_images(prompt), self._drawing))
        start = time.monotonic()
        try:
            while not request.done():
                timeout = self.seconds - (time.monotonic() - max(start, replica.progress))
                if timeout <= 0:
                    request.cancel()  # closes the connection, so that vLLM aborts the request
                    return await self._diagnose_failure(replica, prompt, f"no answer in {self.seconds:g} s, aborted")
                await asyncio.wait({request}, timeout=timeout)
            answer = request.result()
        except Refused as refused:
            return await self._diagnose_failure(replica, prompt, str(refused), refused.status < 500)
        except OSError as error:
            raise Down(str(error)) from error
        finally:
            request.cancel()
        if self.version is not None and answer.version not in (None, self.version):
            # it was started again, and has not got the last weights yet
            raise Down(f"it samples with weights of version {answer.version} in place of {self.version}")
        replica.progress = time.monotonic()
        return answer

    async def _diagnose_failure(
        self, replica: Replica, prompt: EnginePrompt, why: str, healthy: bool = False
    ) -> EngineOutput:
        """Return the error as the prompt's own if the server can still sample; otherwise raise Down."""
        if healthy or await replica.client.draws(prompt, self.probe_seconds):
            return EngineOutput((), (), (), "error", error=why)
        raise Down(why)

    def _encode_images(self, prompt: EnginePrompt) -> list[str]:
        for image in prompt.images:
            if id(image) not in self._image_urls:
                self._image_urls[id(image)] = image_data_url(image)
        return [self._image_urls[id(image)] for image in prompt.images]
