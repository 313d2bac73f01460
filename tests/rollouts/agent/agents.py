"""Agents of the tests, each with a client of its own, and what they received."""

from __future__ import annotations

import asyncio
import json
import random
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from mmrl.engines.endpoint.images import write_data_url
from tests.rollouts.agent.policies import TOOL

RECEIVED: dict[tuple[int, int], list[dict[str, Any]]] = {}
"""By number of the row and seed of the episode: the request and the choice of each call."""


def ask(base_url: str, api_key: str, **body: Any) -> dict[str, Any]:
    """POST a request with Python's own client; an error of HTTP raises with the body."""
    headers = {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{base_url}/chat/completions", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        raise RuntimeError(error.read().decode()) from error


def add(arguments: str) -> str:
    """The result of a call, or why there is none."""
    values = json.loads(arguments)
    try:
        return str(values["a"] + values["b"])
    except (KeyError, TypeError):
        return "a and b must be numbers"


def answer_calls(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages of the results of a reply's calls."""
    return [
        {"role": "tool", "tool_call_id": call["id"], "content": add(call["function"]["arguments"])}
        for call in message.get("tool_calls", ())
    ]


def wander(number: int, seed: int, messages: Any, base_url: str, model: str, api_key: str) -> float:
    """A random conversation: calls and further questions, several choices, repeated branches, and edited histories."""
    draw, received = random.Random(seed), RECEIVED.setdefault((number, seed), [])
    tools = {"tools": [TOOL]} if draw.random() < 0.8 else {}
    histories = [list(messages)]
    for _ in range(draw.randint(1, 4)):
        history = draw.choice(histories)  # the latest one, or an earlier one once more: a branch
        if draw.random() < 0.1:
            history = [*history[:-1], {**history[-1], "content": "edited"}]
        options = {"n": draw.choice([1, 1, 2]), "max_tokens": draw.choice([4, 8]), **tools, "logprobs": True}
        body = {"model": model, "messages": history, **options}
        for choice in ask(base_url, api_key, **body)["choices"]:
            message = choice["message"]
            received.append({"messages": history, "tools": tools.get("tools", []), "choice": choice})
            further = answer_calls(message) or [{"role": "user", "content": draw.choice(["look again", "what is it"])}]
            histories.append([*history, message, *further])
    return draw.random()


def loop(number: int, seed: int, messages: Any, base_url: str, model: str, api_key: str) -> float:
    """Calls tools until there is an answer, as `ToolUse` does."""
    history = list(messages)
    for _ in range(4):
        message = ask(base_url, api_key, model=model, messages=history, tools=[TOOL])["choices"][0]["message"]
        history += [message, *answer_calls(message)]
        if not message.get("tool_calls"):
            break
    return float(len(str(message["content"])) % 3)


async def gather(number: int, messages: Any, base_url: str, model: str, api_key: str) -> dict[str, float]:
    """Three calls at the same time, in an order that differs from run to run."""

    def one(part: int) -> Any:
        time.sleep(random.random() / 500)
        body = {"model": model, "messages": [*messages, {"role": "user", "content": str(part)}]}
        return ask(base_url, api_key, **body)["choices"][0]["message"]["content"]

    with ThreadPoolExecutor(3) as pool:
        running = asyncio.get_running_loop()
        texts = await asyncio.gather(*(running.run_in_executor(pool, one, part) for part in range(3)))
    return {"reward": float(len("".join(texts)) % 5), "parts": 3.0}


def fail(number: int, messages: Any, base_url: str, model: str, api_key: str) -> Any:
    """Fails in a way that depends on the row, after a call in most cases."""
    if number == 4:
        return 1.0  # without a call
    if number == 5:
        ask(base_url, api_key, model=model, messages=messages, tool_choice="required")
    if number == 6:
        try:
            ask(base_url, api_key, model=model, messages=messages, frequency_penalty=1.0)
        except RuntimeError:
            return 1.0
    ask(base_url, api_key, model=model, messages=messages)
    if number == 1:
        raise KeyError("lost")
    if number == 2:
        while True:
            time.sleep(0.01)
    return {3: "good", 7: float("nan"), 8: {"score": 1.0}}.get(number, 1.0)


def ask_greedily(messages: Any, base_url: str, model: str, api_key: str) -> float:
    """Asks for the most likely tokens, and goes on where that is refused."""
    try:
        ask(base_url, api_key, model=model, messages=messages, temperature=0)
    except RuntimeError:
        return 0.0
    return 1.0


async def sleep(number: int, messages: Any, base_url: str, model: str, api_key: str) -> float:
    """Awaits forever in the first row."""
    if number == 0:
        await asyncio.sleep(10_000)
    return float(bool(ask(base_url, api_key, model=model, messages=messages)))


def look(seed: int, messages: Any, base_url: str, model: str, api_key: str) -> float:
    """Sends the row's messages, images included, and asks once more about the reply."""
    history = list(messages)
    for _ in range(2):
        message = ask(base_url, api_key, model=model, messages=history)["choices"][0]["message"]
        history += [message, {"role": "user", "content": "and now?"}]
    return float(seed % 5)


def look_twice(number: int, messages: Any, base_url: str, model: str, api_key: str) -> float:
    """Shows a further image after the reply."""
    message = ask(base_url, api_key, model=model, messages=messages)["choices"][0]["message"]
    pixels = np.full((28, 28, 3), 10 * number, dtype=np.uint8)
    part = {"type": "image_url", "image_url": {"url": write_data_url(pixels)}}
    further = {"role": "user", "content": [{"type": "text", "text": "this? "}, part]}
    ask(base_url, api_key, model=model, messages=[*messages, message, further])
    return 1.0


def chat(number: int, seed: int, messages: Any, base_url: str, model: str, api_key: str) -> float:
    """Three calls in one conversation, noted with their log-probs."""
    history, received = list(messages), RECEIVED.setdefault((number, seed), [])
    for _ in range(3):
        choice = ask(base_url, api_key, model=model, messages=history, logprobs=True)["choices"][0]
        received.append({"messages": list(history), "choice": choice})
        history += [choice["message"], {"role": "user", "content": "and now?"}]
    return float(seed % 5)
