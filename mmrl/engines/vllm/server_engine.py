"""Engine on one or more vLLM servers; server options are keys of `engine`, as in engine.servers=2."""

from __future__ import annotations

from typing import Any

from mmrl.engines.vllm.engine import VllmEngine
from mmrl.engines.vllm.server import Server


class ServerEngine(VllmEngine):
    """VllmEngine with the backend `mmrl.engines.vllm.server.Server`, whose arguments it takes.

    Args:
        folder: for the checkpoint and the weights that the servers read; None creates one in shared memory. Servers on
            other machines than rank 0's need a folder on shared storage.
        adapters: send the factors of low-rank adapters alone, see VllmEngine.
    """

    def __init__(self, folder: str | None = None, adapters: bool = False, **server: Any):
        super().__init__(Server(**server), folder, adapters)
