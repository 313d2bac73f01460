"""Plain rows of episodes: cut texts, numbers that JSON holds, calls with the result that followed them."""

import math

import torch

from mmrl.core.types import Completion, Episode, Prompt, Turn
from mmrl.samples.record import MAX_CHARACTERS, SampleFormat, clip_text, describe_calls, to_number, to_plain


class Spelled:
    """Stands for a policy's tokenizer: id 7 is the text '7 '."""

    chooses_tokens = True

    def token_texts(self, ids):
        return [f"{i} " for i in ids]


def episode(length: int) -> Episode:
    done = Completion(
        {}, torch.arange(length), -torch.ones(length), torch.ones(length, dtype=torch.bool), output="text"
    )
    return Episode(Prompt("a/train/0"), 0, 0, [Turn(done)], {"exact": math.nan}, 1.0)


def test_of_a_long_completion_both_ends_are_kept():
    (turn,) = SampleFormat(Spelled(), max_tokens=4).describe_episode(episode(10))["turns"]
    assert turn["tokens"] == ["0 ", "1 ", "8 ", "9 "] and turn["logprobs"] == [-1] * 4
    assert turn["omitted"] == {"after": 2, "tokens": 6}
    assert "omitted" not in SampleFormat(Spelled(), max_tokens=10).describe_episode(episode(10))["turns"][0]


def test_numbers_are_short_and_what_is_not_finite_is_null():
    assert to_number(1 / 3) == 0.33333 and to_number(math.inf) is None
    assert SampleFormat(Spelled()).describe_episode(episode(1))["scores"] == {"exact": None}


def test_values_without_a_json_form_become_their_repr():
    assert to_plain({"a": (1, 2.5, {3}), 4: None}) == {"a": [1, 2.5, "{3}"], "4": None}
    assert clip_text("x" * (MAX_CHARACTERS + 5)).endswith("x [5 characters more]")


def test_results_stand_beside_their_calls_in_order():
    turn = {"tokens": [*"ab", "[", "1", "]", "c", "[2]", "d"], "chosen": [1, 1, 0, 0, 0, 1, 0, 1]}
    calls = describe_calls([("search", {"query": "x"}, "ok"), ("none", "c", "NoCall")], [turn])
    assert [call["result"] for call in calls] == ["[1]", "[2]"]
    assert calls[0] == {"name": "search", "arguments": {"query": "x"}, "outcome": "ok", "result": "[1]"}
    assert describe_calls([("search", {}, "ok")], [turn])[0]["result"] is None  # not one result for each call
