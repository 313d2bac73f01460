"""Exports are read again by plain transformers in a fresh process: adapters, precisions and shards."""

import copy
import json
import subprocess
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.testing import assert_close
from transformers import AutoModelForCausalLM, GenerationConfig

from mmrl.policies.text.policy import TextPolicy
from mmrl.policies.text.vision import VisionLanguagePolicy
from tests.policies.text.oracle import TINY
from tests.policies.text.test_vision import LLAVA
from tests.quick_python import quick_python

ROOT = Path(__file__).parents[3]
IDS = torch.arange(4, 28).view(2, 12)
LORA = {
    "all-linear": {},
    "q_proj,lm_head": {"target_modules": ["q_proj", "lm_head"]},
    "embed_tokens": {"target_modules": ["embed_tokens"]},
    "embed_tokens,lm_head": {"target_modules": ["embed_tokens", "lm_head", "v_proj"]},
    "saved lm_head": {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
    "saved embed_tokens": {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]},
    "token indices": {"target_modules": ["q_proj"], "trainable_token_indices": [5, 6]},
    "dora,lm_head": {"target_modules": ["q_proj", "lm_head"], "use_dora": True},
}


def disturb(policy):
    """The policy with random numbers added to all that is trained."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in policy.parameters():
            if parameter.requires_grad:
                noise = torch.randn(parameter.shape, generator=generator) * 0.3
                parameter.add_(noise.to(parameter.dtype))
    return policy.eval()


@torch.no_grad()
def logprobs(policy):
    return policy.model(input_ids=IDS).logits.float().log_softmax(-1)


READ = """
import sys, torch
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, AutoProcessor, AutoTokenizer
assert "mmrl" not in sys.modules
stored = torch.load(sys.argv[1])
for folder, auto, ids in stored["cases"]:
    kind = AutoModelForCausalLM if auto == "text" else AutoModelForImageTextToText
    model, report = kind.from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
    assert not any(report[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys")), (folder, report)
    (AutoTokenizer if auto == "text" else AutoProcessor).from_pretrained(folder)
    with torch.no_grad():
        stored["found"].append(model.eval()(input_ids=ids).logits.log_softmax(-1))
torch.save(stored, sys.argv[1])
"""


def read_again(folder, cases):
    """Log-probs by transformers alone, in one process that does not import mmrl."""
    torch.save({"cases": [(str(place), auto, IDS) for place, auto in cases], "found": []}, folder / "cases.pt")
    (folder / "read.py").write_text(READ)
    subprocess.run([quick_python(), "read.py", "cases.pt"], cwd=folder, check=True, timeout=300)
    return torch.load(folder / "cases.pt")["found"]


def test_exports_are_the_trained_policy(tmp_path):
    expected, cases = [], []

    def export(policy, name, auto="text"):
        expected.append(logprobs(disturb(policy)))
        policy.save_pretrained(tmp_path / name)
        cases.append((tmp_path / name, auto))
        return policy

    for name, lora in LORA.items():
        for tied in (True, False):
            torch.manual_seed(0)
            config = {**TINY, "tie_word_embeddings": tied}
            export(TextPolicy(config=config, lora={"r": 4, **lora}), f"{name}, tied {tied}")
    whole = export(TextPolicy(config=dict(TINY)), "whole")
    base = copy.deepcopy(whole.model)
    base.save_pretrained(tmp_path / "shards", max_shard_size="20KB")
    whole.tokenizer.save_pretrained(tmp_path / "shards")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 2
    export(TextPolicy(path=str(tmp_path / "shards")), "from shards")
    GenerationConfig(eos_token_id=[2, 7], temperature=0.6, do_sample=True).save_pretrained(tmp_path / "shards")
    export(TextPolicy(path=str(tmp_path / "shards"), lora={"r": 2}), "generation")
    export(VisionLanguagePolicy(config=copy.deepcopy(LLAVA), freeze_vision=True), "sees", "image")
    export(
        VisionLanguagePolicy(config=copy.deepcopy(LLAVA), lora={"r": 2, "target_modules": "all-linear"}),
        "lora",
        "image",
    )
    for (place, _), found, wanted in zip(cases, read_again(tmp_path, cases), expected, strict=True):
        assert_close(found, wanted, atol=1e-4, rtol=1e-4, msg=place.name)
    written = json.loads((tmp_path / "generation" / "generation_config.json").read_text())
    assert (written["eos_token_id"], written["temperature"]) == ([2, 7], 0.6)


@pytest.mark.parametrize("lora", [LORA["q_proj,lm_head"], LORA["embed_tokens"], LORA["saved lm_head"]], ids=str)
def test_what_an_engine_is_sent_is_the_trained_policy(lora):
    policy = disturb(TextPolicy(config=dict(TINY), lora={"r": 4, **lora}))
    plain = AutoModelForCausalLM.from_config(copy.deepcopy(policy.model.get_base_model().config))
    plain.load_state_dict(policy.export_weights())
    with torch.no_grad():
        assert_close(plain.eval()(input_ids=IDS).logits.log_softmax(-1), logprobs(policy), atol=1e-4, rtol=1e-4)


def test_factors_of_an_output_layer_are_its_own():
    policy = disturb(TextPolicy(config=dict(TINY), lora={"r": 4, **LORA["q_proj,lm_head"]}))
    adapters = policy.adapters()
    assert "lm_head.weight" in adapters.pairs and "model.embed_tokens.weight" not in adapters.pairs
    merged, whole = dict(adapters.base), policy.export_weights()
    for name, (a, b, scale) in adapters.pairs.items():
        merged[name] = merged[name] + scale * (b @ a)
    for name, value in whole.items():
        assert_close(merged[name], value)


def test_merged_weights_of_low_precision_stay_in_it(tmp_path):
    policy = disturb(TextPolicy(config=dict(TINY), dtype="bfloat16", lora={"r": 2}))
    policy.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "bfloat16"
    assert {p.dtype for p in TextPolicy(path=str(tmp_path), dtype="auto").model.parameters()} == {torch.bfloat16}


def test_adapters_that_share_a_weight_are_refused():
    with pytest.raises(ValueError, match=r"ensure_weight_tying=true.*leave it out"):
        TextPolicy(config=dict(TINY), lora={"target_modules": ["embed_tokens"], "ensure_weight_tying": True})


def test_a_folder_of_adapters_is_refused(tmp_path):
    policy = TextPolicy(config=dict(TINY))
    policy.save_pretrained(tmp_path / "base")
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    get_peft_model(base, LoraConfig(r=2, target_modules=["q_proj"])).save_pretrained(tmp_path / "adapters")
    policy.tokenizer.save_pretrained(tmp_path / "adapters")
    with pytest.raises(ValueError, match=r"holds adapters alone.*merge_and_unload"):
        TextPolicy(path=str(tmp_path / "adapters"))
