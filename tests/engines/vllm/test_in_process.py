"""vLLM and the policy itself give the same: ids, log-probs, endings; and what cannot be the same is refused."""

import re
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from mmrl.config.option_files import CONF
from mmrl.core.types import Episode, Prompt, Request, Sampling, Turn
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.engines.vllm.backend import EngineFailure
from mmrl.engines.vllm.engine import VllmEngine
from mmrl.engines.vllm.in_process.backend import InProcess
from mmrl.policies.control.policy import ControlPolicy
from mmrl.policies.text.policy import TextPolicy
from scripts.model_sweep.vllm_types import transfer_once
from tests.engines.vllm.policies import KINDS, moved, policy, requests

pytestmark = pytest.mark.vllm
ROUNDED = 0.1
"""Nats between bfloat16 and float32."""


@pytest.fixture(scope="module", params=KINDS)
def engines(request, tmp_path_factory):
    """The same weights in vLLM, after one transfer, and in the policy."""
    model = policy(request.param, tmp_path_factory.mktemp("policy"))
    vllm, local = VllmEngine(InProcess(cache_gib=0.25)), LocalEngine()
    vllm.sync(model, 0)
    moved(model, 1.1)
    vllm.sync(model, 1)
    local.sync(model, 1)
    yield vllm, local, model
    vllm.close()


SCHEMA = {
    "type": "object",
    "properties": {"size": {"type": "integer"}, "kind": {"enum": ["red", "blue"]}},
    "required": ["size", "kind"],
    "additionalProperties": False,
}


def scored(model, completions):
    """The learner's log-probs of stored completions."""
    prompt = Prompt("test/train/0")
    batch = collate([Episode(prompt, 0, i, [Turn(c)]) for i, c in enumerate(completions)], model)
    with torch.no_grad():
        logprobs = model(batch).logprobs
    return [row[mask] for row, mask in zip(logprobs, batch["action_mask"])]


def test_greedy_choices_are_the_same(engines):
    vllm, local, model = engines
    asked = requests(model, group_size=1)
    sampling = Sampling(decode="argmax", max_tokens=24)
    for theirs, ours in zip(vllm.sample(asked, sampling), local.sample(asked, sampling), strict=True):
        assert theirs.action.tolist() == ours.action.tolist()
        assert (
            theirs.output == ours.output
            and theirs.ended == ours.ended
            and theirs.policy_version == ours.policy_version == 1
        )
        assert (theirs.behavior_logprobs - ours.behavior_logprobs).abs().max() < 1e-4
        assert theirs.observation.keys() == ours.observation.keys()


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(max_tokens=12),
        Sampling(max_tokens=12, temperature=0.6),
        Sampling(max_tokens=12, temperature=1.3, top_k=7),
        Sampling(max_tokens=12, top_p=0.7),
        Sampling(max_tokens=12, temperature=1.5, top_k=20, top_p=0.8, min_p=0.05),
        Sampling(max_tokens=12, regex="[a-z]{2}[0-9]+( and [a-z]+)?"),
        Sampling(max_tokens=12, regex="[a-z]{2}[0-9]+( and [a-z]+)?", temperature=0.8, top_k=9, top_p=0.9),
        Sampling(max_tokens=24, json_schema=SCHEMA),
    ],
    ids=["plain", "cool", "top_k", "top_p", "all", "regex", "truncated_regex", "json_schema"],
)
def test_the_learner_gives_what_was_drawn_the_same_probability(engines, sampling):
    vllm, _, model = engines
    drawn = vllm.sample(requests(model), sampling)
    for completion, logprobs in zip(drawn, scored(model, drawn), strict=True):
        assert (completion.behavior_logprobs - logprobs).abs().max() < 1e-4
    again = vllm.sample(requests(model), sampling)
    assert [c.action.tolist() for c in again] == [c.action.tolist() for c in drawn], "a seed is a draw"
    completions = {tuple(c.action.tolist()) for c in drawn[:4]}
    assert len(completions) > 1, "completions have seeds of their own"
    assert len({id(c.observation) for c in drawn}) == 3, "a group shares its observation"


def test_greedy_guided_choices_are_the_same_and_match(engines):
    vllm, local, model = engines
    asked = requests(model, group_size=1)
    sampling = Sampling(decode="argmax", max_tokens=24, regex="(yes|no|[a-c]{3}), [0-9]{2}")
    theirs, ours = vllm.sample(asked, sampling), local.sample(asked, sampling)
    assert [c.action.tolist() for c in theirs] == [c.action.tolist() for c in ours]
    assert all(re.fullmatch(sampling.regex, c.output) and c.ended == "done" for c in theirs)
    for completion, logprobs in zip(theirs, scored(model, theirs), strict=True):
        assert (completion.behavior_logprobs - logprobs).abs().max() < 1e-4


def test_more_prompts_than_a_pass_takes_are_drawn_with_their_seeds(engines):
    """vLLM would read some of them in parts, and a seeded draw of such a part cannot be taken back on a CPU."""
    vllm, _, model = engines
    asked = requests(model, groups=11, group_size=12)  # prompts of up to 400 tokens
    sampling = Sampling(max_tokens=3)
    drawn = vllm.sample(asked, sampling)
    assert {c.ended for c in drawn} <= {"done", "length"}
    for completion, logprobs in zip(drawn, scored(model, drawn), strict=True):
        assert (completion.behavior_logprobs - logprobs).abs().max() < 1e-4


def test_a_stop_string_ends_a_completion_where_it_does_locally(engines):
    vllm, local, model = engines
    asked = requests(model, group_size=1)
    long = local.sample(asked, Sampling(decode="argmax", max_tokens=24))
    word = next(c.output[-3:-1] for c in long if c.output)  # two tokens; an empty output has only special ones
    sampling = Sampling(decode="argmax", max_tokens=24, stop=(word,))
    theirs, ours = vllm.sample(asked, sampling), local.sample(asked, sampling)
    assert [c.action.tolist() for c in theirs] == [c.action.tolist() for c in ours]
    assert [c.ended for c in theirs] == [c.ended for c in ours] and "done" in {c.ended for c in ours}


def test_a_prompt_that_does_not_fit_fails_alone(engines):
    vllm, _, model = engines
    asked = requests(model, group_size=1)
    text = asked[0].observation["messages"][0]["content"]
    longer = "x" * 600 if isinstance(text, str) else [text[0], {"type": "text", "text": "x" * 600}]
    raw = {**asked[0].observation, "messages": ({"role": "user", "content": longer},)}
    vllm.report()
    done = vllm.sample([asked[0], Request(raw, 1), asked[2]], Sampling(max_tokens=4, top_k=5))
    assert [c.ended == "error" for c in done] == [False, True, False]
    assert not done[1].action_mask.any() and len(done[1].action) == 1
    report = vllm.report()
    assert report["engine/failed"] == 1 and report["engine/tokens"] == sum(len(done[i].action) for i in (0, 2))
    collate([Episode(Prompt("test/train/0"), 0, i, [Turn(c)]) for i, c in enumerate(done)], model)


def test_refusals(engines):
    vllm, _, model = engines
    with pytest.raises(ValueError, match="temperature=3"):
        vllm.sample(requests(model), Sampling(temperature=3.0))
    with pytest.raises(ValueError, match="decode=mean"):
        vllm.sample(requests(model), Sampling(decode="mean"))


def test_a_policy_without_words_is_refused():
    control = ControlPolicy.__new__(ControlPolicy)
    with pytest.raises(NotImplementedError, match="text and vision-language"):
        VllmEngine(InProcess()).sync(control, 0)


def test_a_folder_that_is_no_checkpoint(tmp_path: Path):
    (tmp_path / "config.json").write_text('{"model_type": "no_such_model"}')
    with pytest.raises(EngineFailure, match="cannot start"):
        InProcess().start(tmp_path, 0)


def test_a_policy_of_a_gguf_file_is_served_with_its_dequantised_weights(tmp_path):
    pytest.importorskip("gguf")
    from tests.policies.text.gguf_file import write_gguf

    write_gguf(tmp_path / "tiny.gguf")
    model = TextPolicy(path=str(tmp_path / "tiny.gguf"))
    vllm, local = VllmEngine(InProcess(cache_gib=0.25)), LocalEngine()
    try:
        vllm.sync(model, 0)
        local.sync(model, 0)
        asked, sampling = requests(model, group_size=1), Sampling(decode="argmax", max_tokens=24)
        for theirs, ours in zip(vllm.sample(asked, sampling), local.sample(asked, sampling), strict=True):
            assert theirs.action.tolist() == ours.action.tolist()
            assert (theirs.behavior_logprobs - ours.behavior_logprobs).abs().max() < 1e-4
    finally:
        vllm.close()


def test_a_hybrid_is_sampled_with_its_weights_after_a_transfer():
    """vLLM's CPU build computes recurrent layers in bfloat16 alone, so log-probs agree to its rounding."""
    torch.manual_seed(0)
    config = OmegaConf.load(CONF / "policy" / "text" / "tiny_hybrid.yaml").config
    model = TextPolicy(config=OmegaConf.to_container(config)).eval()
    vllm = VllmEngine(InProcess(cache_gib=0.25, dtype="bfloat16"))
    try:
        vllm.sync(model, 0)
        stale = vllm.sample(requests(model), Sampling(max_tokens=8))
        moved(model, 3.0)
        vllm.sync(model, 1)
        completions = vllm.sample(requests(model), Sampling(max_tokens=8))
    finally:
        vllm.close()
    for completion, logprobs in zip(completions, scored(model, completions), strict=True):
        assert (completion.behavior_logprobs - logprobs).abs().max() < ROUNDED
    differences = [(c.behavior_logprobs - x).abs().max() for c, x in zip(stale, scored(model, stale), strict=True)]
    assert max(differences) > 3 * ROUNDED  # other weights are noticed


@pytest.mark.parametrize("kind", ["granitemoehybrid", "falcon_h1"])
def test_state_space_layers_are_exact_after_transfers(kind):
    """vLLM holds their decay -exp(A_log) in place of A_log; Mamba-2 runs in float32 on a CPU."""
    assert transfer_once(kind) == "yes"
