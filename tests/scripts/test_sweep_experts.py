"""Replay, frozen routers, balance loss and adapters of every mixture of experts: some here, all of them when slow."""

import functools
import re
import shutil
from pathlib import Path

import pytest

from mmrl.policies.text.tiny import character_tokenizer, special_ids
from scripts.model_sweep.configs import every_type
from scripts.model_sweep.experts import CHECKS, check_experts, expert_types
from scripts.model_sweep.overrides import NOT_TINY
from scripts.model_sweep.page import PAGE, list_exact

LOADED = list_exact((Path(__file__).parents[2] / PAGE).read_text())
NO_LOSS = "transformers computes no load-balancing loss for"
SOME = {
    "qwen3_moe": {},
    "gpt_oss": {},
    "deepseek_v3": {"load_balancing": NO_LOSS},
    "qwen3_5_moe_text": {},
    "dbrx": {"router_replay": "selects experts in another way than by one torch.topk",
             "expert adapters": "stores no experts in one tensor"},
}  # fmt: skip
"""What is refused of a type, and why."""


@functools.cache
def types():
    return expert_types(special_ids(character_tokenizer()))


def test_types_are_found_by_their_configuration():
    kinds = {kind for kind, _ in types()}
    assert len(kinds) > 60 and set(SOME) <= kinds and not {"qwen2", "llama", "llava"} & kinds


@pytest.mark.parametrize("kind", SOME)
def test_some_types_do_it_or_refuse_it_by_name(kind, tmp_path):
    results = check_experts(kind, "text", tmp_path)
    assert set(results) == set(CHECKS)
    for name, result in results.items():
        assert SOME[kind].get(name, "yes") in result, (name, result)
        assert result == "yes" or kind in result, (name, result)


@pytest.mark.slow
@pytest.mark.parametrize("kind, family", [pair for pair in every_type() if pair[0] not in NOT_TINY])
def test_every_type_does_it_or_refuses_it(kind, family, tmp_path):
    """Types that docs/models.md says are not exact are refused as a whole."""
    if (kind, family) not in types():
        pytest.skip("its configuration has no number of experts")
    refusal = r"policy\.|trainer\." if (kind, family) in LOADED else rf"policy: {kind} computes something else here"
    for result in check_experts(kind, family, tmp_path).values():
        assert (result == "yes" and (kind, family) in LOADED) or re.search(refusal, result), result
    shutil.rmtree(tmp_path)
