"""Reward functions of the tests; the file imports little, because each worker imports it."""

import asyncio
import json
import math
import os
import time


def length_error(completion: str, answer: int) -> float:
    return -abs(len(completion) - answer)


def rank(completions, prompts):
    assert len(set(prompts)) == 1 and prompts[0] == "Spell it."
    return [sorted(completions).index(text) for text in completions]


def parts(completion, num_tokens, truncated):
    return {"tokens": num_tokens, "truncated": truncated}


def needs_level(completion, level):
    return level


async def async_length(completion):
    return len(completion)


def varies(completion):
    return {completion: 1.0}


def divide(completion, answer):
    return 1 / (len(completion) - answer)


def hang(completion):
    time.sleep(60)


def hang_in_c(completion):
    return len(str(7 ** (10**8)))


async def hang_async(completion):
    time.sleep(60)


def sometimes(completion):
    if "dead" in completion:
        raise ConnectionError("the judge does not answer")
    return len(completion)


async def sometimes_async(completion):
    return sometimes(completion)


def sometimes_hangs(completion):
    if "dead" in completion:
        time.sleep(60)
    return len(completion)


async def sometimes_waits(completion):
    await asyncio.sleep(60 * ("dead" in completion))
    return len(completion)


def parse_json(completion):
    return json.loads(completion)


def die(completion):
    os._exit(9)


def nan(completions):
    return [1.0, *[math.nan] * (len(completions) - 1)]


def digits(completion):
    return 0


def length_error_of_text(completion: str, answer: str) -> float:
    return -abs(len(completion) - len(answer))
