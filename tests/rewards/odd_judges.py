"""Reward functions that ask a judge over HTTP; the address is in JUDGE."""

import asyncio
import json
import os
import socket
import urllib.request


def url(path: str = "/v1/chat/completions") -> str:
    return os.environ["JUDGE"] + path


def ask(path: str, completion: str, timeout: float = 5, model: str = "judge") -> dict:
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": completion}]}).encode()
    request = urllib.request.Request(url(path), body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return json.loads(answer.read())


def right(completion):
    return float(ask("/v1/chat/completions", completion)["choices"][0]["message"]["content"])


async def right_async(completion):
    return await asyncio.to_thread(right, completion)


def right_for_all(completions):
    return [right(text) for text in completions]


def right_by_requests(completion):
    import requests

    body = {"model": "judge", "messages": [{"role": "user", "content": completion}]}
    answer = requests.post(url(), json=body, timeout=5)
    answer.raise_for_status()
    return float(answer.json()["choices"][0]["message"]["content"])


def wrong_path(completion):
    return float(ask("/v1/completion", completion)["score"])


def wrong_path_by_requests(completion):
    import requests

    answer = requests.post(url("/v1/judge"), json={"messages": []}, timeout=5)
    answer.raise_for_status()
    return float(answer.json()["score"])


def wrong_model(completion):
    return float(ask("/v1/chat/completions", completion, model="gpt-5")["choices"][0]["message"]["content"])


def wrong_format(completion):
    return float(ask("/v1/chat/completions", completion)["score"])


def words_in_place_of_a_number(completion):
    return float(ask("/words", completion)["choices"][0]["message"]["content"])


def no_json(completion):
    return float(ask("/html", completion)["score"])


def no_json_by_requests(completion):
    import requests

    return requests.post(url("/html"), json={"messages": []}, timeout=5).json()["score"]


def needs_key(completion):
    return float(ask("/key", completion)["score"])


def busy(completion):
    return float(ask("/busy", completion)["score"])


def broken(completion):
    return float(ask("/broken", completion)["score"])


def slow(completion):
    return float(ask("/slow", completion, timeout=0.3)["score"])


def hangs_up(completion):
    return float(ask("/close", completion)["score"])


def dead(completion):
    with urllib.request.urlopen(os.environ["NOBODY"] + "/v1", timeout=2) as answer:
        return float(answer.read())


def dead_by_requests(completion):
    import requests

    return requests.get(os.environ["NOBODY"] + "/v1", timeout=2).json()["score"]


async def dead_async(completion):
    host, _, port = os.environ["NOBODY"].removeprefix("http://").partition(":")
    await asyncio.open_connection(host, int(port))


def unknown_host(completion):
    with socket.create_connection(("judge.invalid", 80), timeout=2):
        return 1.0


def gives_text(completion):
    return ask("/v1/chat/completions", completion)["choices"][0]["message"]["content"]


def no_address(completion):
    with urllib.request.urlopen("localhost:8000/v1", timeout=2) as answer:
        return float(answer.read())
