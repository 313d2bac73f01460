"""A small VLA policy behind a server, in a thread of this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from mmrl.api.serving.server import PolicyServer
from mmrl.core.types import Sampling
from mmrl.policies.base import Policy
from mmrl.policies.vla.small.token import ActionTokenPolicy

SMALL: dict[str, Any] = {"hidden_size": 16, "layers": 1, "heads": 2, "intermediate_size": 16, "visual_tokens": 2}


def small_policy() -> ActionTokenPolicy:
    torch.manual_seed(0)
    policy = ActionTokenPolicy(bins=16, action_dims=3, chunk=4, proprio_dims=5, **SMALL)
    return policy.eval()


def observation(number: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(number)
    return {
        "image": rng.integers(0, 256, (64, 64, 3), dtype=np.uint8),
        "proprio": rng.normal(size=5).astype(np.float32),
        "instruction": "reach the red cube",
    }


class Running:
    """A server that is running: its port, and the lines that it reported."""

    def __init__(self, policy: Policy, **options: Any):
        self.lines: list[str] = []
        self.port = 0
        self._started, self._thread = threading.Event(), threading.Thread(target=self._run, daemon=True)
        self._server = PolicyServer(policy, options.pop("sampling", Sampling()), report=self.lines.append, **options)
        self._loop = asyncio.new_event_loop()
        self._stop: asyncio.Event | None = None

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    def start(self, port: int = 0) -> None:
        self._asked = port
        self._thread.start()
        assert self._started.wait(20)

    def stop(self) -> None:
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)

    def _run(self) -> None:
        async def serve() -> None:
            self._stop = asyncio.Event()
            await self._server.serve("127.0.0.1", self._asked, self._announce, self._stop)

        self._loop.run_until_complete(serve())
        self._loop.close()

    def _announce(self, port: int) -> None:
        self.port = port
        self._started.set()


@contextmanager
def serve(policy: Policy, port: int = 0, **options: Any) -> Iterator[Running]:
    """Serve a policy inside the context."""
    running = Running(policy, **options)
    running.start(port)
    try:
        yield running
    finally:
        running.stop()
