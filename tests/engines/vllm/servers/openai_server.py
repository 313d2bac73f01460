"""vLLM's own server with OpenAI's interface, of a folder with weights."""

import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mmrl.engines.vllm.python import find_python
from mmrl.engines.vllm.servers.launch import ENVIRONMENT, ON_CPU

SECONDS = 300


@contextmanager
def serve(folder: Path, name: str, *options: str) -> Iterator[str]:
    """Serve the weights of a folder under a name on the CPU; yields the address once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        *(find_python(), "-m", "vllm.entrypoints.cli.main", "serve", str(folder), "--served-model-name", name),
        *("--port", str(port), "--host", "127.0.0.1", "--dtype", "float32", "--enforce-eager"),
        *("--kv-cache-memory-bytes", str(2**28), *options),
    ]
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(
            command, env={**os.environ, **ENVIRONMENT, **ON_CPU}, stdout=log, stderr=subprocess.STDOUT
        )
    url, end = f"http://127.0.0.1:{port}", time.monotonic() + SECONDS
    try:
        while True:
            assert process.poll() is None and time.monotonic() < end, (folder / "log").read_text()[-3000:]
            try:
                urllib.request.urlopen(f"{url}/health", timeout=2)
                break
            except OSError:
                time.sleep(1)
        yield url
    finally:
        process.terminate()
        process.wait(60)
