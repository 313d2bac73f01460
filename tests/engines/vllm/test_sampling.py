"""What is asked of vLLM, and how its words are read. No vLLM needed."""

import json
from math import log

import pytest

from mmrl.engines.vllm.backend import EngineFailure, EngineSampling
from mmrl.engines.vllm.engine import check_prompt
from mmrl.engines.vllm.sampling import (
    TIED,
    WIDEST,
    parse_finish_reason,
    parse_support,
    refuse_videos,
    sampling_fields,
    support_of,
)
from tests.videos import ask

DRAWING = EngineSampling(0.7, 5, 0.9, 0.01, 16, False, (), (2,), (7,), 13)


def test_fields_survive_json():
    fields = sampling_fields(DRAWING, 2**64 - 1)
    assert json.loads(json.dumps(fields))["seed"] == 2**63 - 1
    assert fields["logprobs"] == 13 and fields["ignore_eos"] and fields["stop_token_ids"] == [2]


def test_all_that_was_kept_is_reported_or_refused():
    assert support_of(0, 50_000, truncated=False) == 0
    assert support_of(5, 50_000, truncated=True) == 5 + TIED
    assert support_of(0, 100, truncated=True) == 100
    for top_k, vocabulary in [(0, 50_000), (WIDEST + 1, 50_000)]:
        with pytest.raises(ValueError, match=r"sampling\.top_k"):
            support_of(top_k, vocabulary, truncated=True)


def test_kept_ids_hold_all_of_the_mass():
    assert parse_support({3: log(0.75), 1: log(0.25), 9: float("-inf")}) == (3, 1)
    with pytest.raises(ValueError, match=r"0\.7500 of the mass"):
        parse_support({3: log(0.75)})


def test_endings():
    assert [parse_finish_reason(reason) for reason in ("stop", "length", "abort", None)] == [
        "done",
        "length",
        "error",
        "error",
    ]


def test_another_prompt_is_named():
    check_prompt((1, 2, 3), [1, 2, 3])
    with pytest.raises(EngineFailure, match=r"5 and 4 tokens, of them 3 and 2 for images; from token 3 on \[9, 5\]"):
        check_prompt((1, 9, 9, 9, 5), [1, 9, 9, 5], [9])


def test_prompts_with_videos_are_refused():
    refuse_videos({"messages": (), "images": ()})
    with pytest.raises(EngineFailure, match=r"a prompt has a video.*engine=local.*task\.show_videos=images"):
        refuse_videos(ask(0, "a", "video").observation)
