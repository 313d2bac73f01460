"""Host of a taskset of verifiers 0.4, run by the Python that has the package; it imports nothing of mmrl.

`python host.py TASKSET` writes a row for each task, for `task=dataset`. With `--serve` it reads a request a line from
stdin, {"id", "number", "base_url", "api_key", "model"}, plays the episodes at the same time, and writes {"id",
"reward", "metrics"} or {"id", "error"}. It ends with its stdin.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
from typing import Any


def build_environment(taskset: str, harness: str) -> Any:
    """Build verifiers' environment of one agent in this machine's processes."""
    import verifiers.v1 as vf

    agent = {"harness": {"id": harness}, "runtime": {"type": "subprocess"}}
    return vf.SingleAgentEnv(vf.SingleAgentEnvConfig(taskset={"id": taskset}, agent=agent))


def write_rows(environment: Any, count: int) -> None:
    """Write a row for each of the first tasks."""
    for number, task in enumerate(itertools.islice(environment.taskset, count)):
        text = task.data.prompt_text or task.data.system_prompt or f"task {number}"
        answer = str(getattr(task.data, "answer", "") or "what its rewards say")  # the task needs one to show
        print(json.dumps({"question": text, "answer": answer, "number": number}))


async def play(environment: Any, task: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Play one episode against the endpoint of a request, and return its reward and metrics."""
    import verifiers.v1 as vf

    key = f"MMRL_EPISODE_KEY_{request['id']}"  # the client reads keys from the environment
    os.environ[key] = request["api_key"]
    try:
        client = vf.EvalClientConfig(base_url=request["base_url"], api_key_var=key)
        episode = await environment.run_episode(task, vf.ModelContext(model=request["model"], client=client))
    finally:
        del os.environ[key]
    errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
    if not episode.ok or errors:
        reason = "; ".join(f"{error.type}: {error.message}" for error in errors) or "the episode is not ok"
        return {"id": request["id"], "error": reason[:1000]}
    [trace] = episode.traces
    metrics = {name: value for name, value in trace.metrics.items() if value is not None}
    rewards = {name: reward.value for name, reward in trace.rewards.items() if reward is not None}
    return {"id": request["id"], "reward": trace.reward, "metrics": {**metrics, **rewards}}


async def serve(environment: Any, replies: Any) -> None:
    """Play the episodes that stdin asks for."""
    tasks, iterator, running = [], iter(environment.taskset), set()

    async def answer(request: dict[str, Any]) -> None:
        try:
            while len(tasks) <= request["number"]:
                tasks.append(next(iterator))
            reply = await play(environment, tasks[request["number"]], request)
        except Exception as error:
            reply = {"id": request["id"], "error": f"{type(error).__name__}: {error}"[:1000]}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()

    async with environment.serving():
        while line := await asyncio.to_thread(sys.stdin.readline):
            job = asyncio.create_task(answer(json.loads(line)))
            running.add(job)
            job.add_done_callback(running.discard)


def main(arguments: list[str]) -> None:
    """Run one of the two commands: TASKSET [--harness=null] [--count=1000] [--serve]."""
    options = dict(word[2:].partition("=")[::2] for word in arguments if word.startswith("--"))
    [taskset] = [word for word in arguments if not word.startswith("--")]
    harness = options.get("harness", "null")
    if "serve" not in options:
        write_rows(build_environment(taskset, harness), int(options.get("count", 1000)))
        return
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the environment prints is no reply
    asyncio.run(serve(build_environment(taskset, harness), replies))


if __name__ == "__main__":
    main(sys.argv[1:])
