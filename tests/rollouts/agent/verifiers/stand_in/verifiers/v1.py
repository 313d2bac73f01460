"""What the host uses of verifiers.v1, for a taskset of five tasks that pays the length of the reply.

The episode of task 3 has an error, and that of task 4 ends the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

THREADS = ThreadPoolExecutor(16)  # calls of all episodes are answered together
SingleAgentEnvConfig = EvalClientConfig = ModelContext = SimpleNamespace


class SingleAgentEnv:
    def __init__(self, config: Any):
        assert config.taskset == {"id": "lengths"} and config.agent["runtime"] == {"type": "subprocess"}
        self.taskset = [
            SimpleNamespace(number=i, data=SimpleNamespace(prompt_text=f"task {i}", system_prompt=None))
            for i in range(5)
        ]

    @contextlib.asynccontextmanager
    async def serving(self) -> Any:
        print("an environment may print")
        yield

    async def run_episode(self, task: Any, ctx: Any) -> Any:
        if task.number == 4:
            os._exit(3)
        reply = await asyncio.get_running_loop().run_in_executor(THREADS, ask, ctx, task.data.prompt_text)
        reward = SimpleNamespace(value=float(len(reply)))
        errors = [SimpleNamespace(type="TaskError", message="no answer")] if task.number == 3 else []
        trace = SimpleNamespace(
            reward=reward.value, rewards={"length": reward}, metrics={"turns": 1.0, "skipped": None}, errors=errors
        )
        return SimpleNamespace(ok=not errors, errors=[], traces=[trace])


def ask(ctx: Any, text: str) -> str:
    body = {"model": ctx.model, "messages": [{"role": "user", "content": text}]}
    headers = {"Authorization": f"Bearer {os.environ[ctx.client.api_key_var]}"}
    url = f"{ctx.client.base_url}/chat/completions"
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as response:
        return json.load(response)["choices"][0]["message"]["content"]
