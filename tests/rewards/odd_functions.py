"""Reward functions as people write them, right and wrong; the file imports little, because each worker imports it."""

import functools
import sys
import time
from decimal import Decimal
from fractions import Fraction


def works(completion, answer):
    return float(completion == answer)


def gives_bool(completion):
    return completion == "4"


def gives_decimal(completion):
    return Decimal("0.5")


def gives_fraction(completion):
    return Fraction(1, 3)


def gives_array(completion):
    import numpy

    return numpy.float32(0.5)


def gives_tensor(completion):
    import torch

    return torch.tensor(0.5)


def gives_tensors(completions):
    import torch

    return torch.ones(len(completions))


def gives_dict(completion):
    return {"a": 1, "b": 0.5}


def gives_dict_of_lists(completions):
    return {"a": [1] * len(completions), "b": [0] * len(completions)}


async def is_async(completion):
    return 1.0


def takes_all(**columns):
    return float(len(columns["completion"]))


def with_default(completion, nothing=3):
    return nothing


def prints(completion):
    print("\x1b[31mred", completion)
    return 0


def changes_arguments(messages, completion):
    messages.clear()
    return 1


a_lambda = lambda completion: len(completion)  # noqa: E731
a_partial = functools.partial(lambda completion, scale: scale * len(completion), scale=2.0)


def decorate(function):
    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapped


@decorate
def decorated(completion):
    return 1.0


class Judge:
    def __call__(self, completion):
        return len(completion)


class Scorer:
    def score(self, completion):
        return 1.0

    @staticmethod
    def fixed(completion):
        return 2.0


def cached(completion):
    return 0.25


cached = functools.lru_cache(cached)


# ------------------------------------------------------------------ what is refused


def gives_none(completion):
    pass


def gives_text(completion):
    return "0.5"


def gives_nan(completion):
    return float("nan")


def gives_infinity(completion):
    return float("inf")


def gives_complex(completion):
    return 1j


def gives_vector(completion):
    import numpy

    return numpy.ones(2)


def gives_list(completion):
    return [1.0]


def gives_tuple(completion):
    return 1.0, "reason"


def gives_short_list(completions):
    return [1.0]


def gives_number_for_all(completions):
    return 1.0


def gives_generator(completions):
    return (1.0 for _ in completions)


def yields(completion):
    yield 1.0


async def yields_async(completion):
    yield 1.0


def gives_coroutine(completion):
    return is_async(completion)


def gives_empty_dict(completion):
    return {}


def gives_dict_of_texts(completion):
    return {"a": "good"}


def gives_keys_of_numbers(completion):
    return {1: 0.5}


def gives_other_names(completion):
    return {completion or "empty": 1.0}


def raises_on_empty(completion):
    return float(completion[0] == "4")


def divides(completion):
    return 1 / len(completion)


def exits(completion):
    sys.exit(3)


def interrupts_itself(completion):
    raise RuntimeError("CUDA out of memory")


def positional(completion, /):
    return 0.0


def unnamed(a, b):
    return 0.0


def old_trl(prompts, completions, ground_truth):
    return [0.0] * len(completions)


def both(completion, completions):
    return 0.0


def exact(completion):
    return 1.0


class Needs:
    def __init__(self, model):
        self.model = model

    def __call__(self, completion):
        return 0.0


NUMBER = 3


def slow(completion):
    time.sleep(0.4)
    return 1.0


def hangs(completion):
    time.sleep(60)


def ends_process(completion):
    import os

    os._exit(4)


def recurses(completion):
    return recurses(completion)


def asserts(completion):
    assert completion.startswith("<think>"), "no thought"
    return 1.0


def imports_missing(completion):
    import package_that_is_not_there

    return package_that_is_not_there.score(completion)
