"""Penalties of a checkpoint's generation_config.json change no draw: the learner computes no counts of tokens again."""

import json

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModelForCausalLM, GenerationConfig

from mmrl.core.types import Prompt, Sampling
from mmrl.policies.text.policy import TextPolicy
from tests.checkpoints import TEXT
from tests.engines.vllm.policies import moved, requests
from tests.policies.text.oracle import batch_of, completions

PENALTIES = {
    **{"repetition_penalty": 1.1, "no_repeat_ngram_size": 2, "eos_token_id": 1, "do_sample": True},
    **{"temperature": 0.6, "top_k": 5, "top_p": 0.5},
}
"""As checkpoints of Qwen2.5 bring them: `repetition_penalty` 1.05 to 1.1 beside temperature, top_k and top_p."""
GREEDY = Sampling(decode="argmax", max_tokens=24)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A checkpoint whose greedy completions repeat tokens, and which asks that they do not."""
    folder = tmp_path_factory.mktemp("policy")
    torch.manual_seed(0)
    model = moved(TextPolicy(config={"model_type": "qwen2", **TEXT}), 3.0)
    model.save_pretrained(folder)
    GenerationConfig(**PENALTIES).save_pretrained(folder)
    return folder


def plain_generation(folder, prompt, **options):
    """Greedy ids of transformers' own `generate` after a prompt's ids."""
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    sampling = {"do_sample": False, "temperature": None, "top_k": None, "top_p": None, **options}
    return model.generate(prompt[None], max_new_tokens=24, pad_token_id=0, **sampling)[0, len(prompt) :].tolist()


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(max_tokens=24)], ids=["greedy", "sampled"])
def test_the_local_engine_samples_what_the_learner_scores(checkpoint, sampling):
    """The oracle is transformers without penalties, row by row; with those of the checkpoint it writes another text."""
    policy = TextPolicy(path=str(checkpoint)).eval()
    assert policy.model.generation_config.repetition_penalty == 1.1  # it is read, and kept for an export
    prompts = [Prompt(key=f"a/b/{i}", messages=each.observation["messages"])
               for i, each in enumerate(requests(policy, group_size=1))]  # fmt: skip
    done, plain = completions(policy, prompts, sampling), AutoModelForCausalLM.from_pretrained(checkpoint).eval()
    batch = batch_of(policy, prompts, done)
    with torch.no_grad():
        scored = policy(batch).logprobs
    for row, each in enumerate(done):
        prompt, ids = each.observation["input_ids"], each.action
        with torch.no_grad():
            logits = plain(torch.cat([prompt, ids])[None]).logits[0, len(prompt) - 1 : -1]
        expected = logits.log_softmax(-1).gather(1, ids[:, None])[:, 0]
        assert_close(each.behavior_logprobs, expected, atol=1e-5, rtol=1e-5)
        assert_close(scored[row, : len(ids)], expected, atol=1e-5, rtol=1e-5)
        if sampling is GREEDY:
            free = plain_generation(checkpoint, prompt, repetition_penalty=1.0, no_repeat_ngram_size=0)
            assert free == ids.tolist()
    if sampling is GREEDY:  # the penalties of the checkpoint matter to transformers
        penalised = [plain_generation(checkpoint, each.observation["input_ids"]) for each in done]
        assert penalised != [each.action.tolist() for each in done]


def test_an_export_brings_the_file_of_the_checkpoint(checkpoint, tmp_path):
    TextPolicy(path=str(checkpoint)).save_pretrained(tmp_path)
    assert json.loads((tmp_path / "generation_config.json").read_text())["repetition_penalty"] == 1.1


@pytest.mark.vllm
@pytest.mark.parametrize("where", ["process", "server", "server of the user"])
def test_vllm_samples_what_the_learner_scores(checkpoint, where, tmp_path):
    """A server of the user's own was started without `--generation-config vllm`, so it has read the penalties."""
    from mmrl.engines.vllm.engine import VllmEngine
    from mmrl.engines.vllm.in_process.backend import InProcess
    from mmrl.engines.vllm.servers.engine import ServerEngine

    policy = TextPolicy(path=str(checkpoint)).eval()
    options = {"options": {"generation_config": "auto"}} if "user" in where else {}
    small = {"cache_gib": 0.25, "max_model_len": 512}
    engine = VllmEngine(InProcess(**small)) if where == "process" else ServerEngine(**small, **options)
    asked = requests(policy, group_size=1)
    prompts = [Prompt(key=f"a/b/{i}", messages=each.observation["messages"]) for i, each in enumerate(asked)]
    try:
        engine.sync(policy, 0)
        completions_by_sampling = {
            sampling: engine.sample(asked, sampling) for sampling in (GREEDY, Sampling(max_tokens=24))
        }
    finally:
        engine.close()
    for sampling, done in completions_by_sampling.items():
        batch = batch_of(policy, prompts, done)
        with torch.no_grad():
            difference = policy(batch).logprobs - batch["behavior_logprobs"]
        assert difference[batch["action_mask"]].abs().max() < 1e-4, sampling
    ours = completions(policy, prompts, GREEDY)
    assert [each.action.tolist() for each in completions_by_sampling[GREEDY]] == [each.action.tolist() for each in ours]
