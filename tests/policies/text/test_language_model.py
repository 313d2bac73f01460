"""`LanguageModelPolicy`: names of exported weights, prompts before expansion, stop ids and strings, the canary."""

import pytest
import torch
from safetensors.torch import load_file

from mmrl.policies.text.language_model import CANARY_TOKENS
from mmrl.policies.text.vision import VisionLanguagePolicy
from tests.engines.vllm.policies import KINDS, policy, requests


@pytest.fixture(scope="module", params=KINDS)
def model(request, tmp_path_factory):
    return policy(request.param, tmp_path_factory.mktemp("policy"))


def test_published_is_what_a_checkpoint_holds_and_the_tied_head(model, tmp_path):
    tied = model.model.config.get_text_config().tie_word_embeddings
    model.save_pretrained(tmp_path)
    stored, exported = load_file(tmp_path / "model.safetensors"), model.export_weights()
    heads = [name for name in exported if name.endswith("lm_head.weight")]
    assert [name for name in exported if name not in stored] == (heads if tied else [])
    assert len(heads) == 1 and len(exported) == len(stored) + tied
    for name, tensor in stored.items():
        assert torch.equal(tensor, exported[name]), name
    embeddings = {t.data_ptr() for name, t in exported.items() if name.endswith("embed_tokens.weight")}
    assert (exported[heads[0]].data_ptr() in embeddings) == tied


def test_adapters_are_merged_under_the_names_of_the_base(tmp_path):
    adapted = policy("qwen2", tmp_path, lora={"r": 4, "target_modules": ["q_proj", "v_proj"]})
    before = adapted.export_weights()
    assert before.keys() == policy("qwen2", tmp_path).export_weights().keys()
    with torch.no_grad():
        next(p for name, p in adapted.named_parameters() if "layers.1.self_attn.q_proj.lora_B" in name)[3, 0] = 1.0
    after = adapted.export_weights()
    changed = [name for name in before if not torch.equal(before[name], after[name])]
    assert changed == ["model.layers.1.self_attn.q_proj.weight"]
    assert any("lora" in name for name, _ in adapted.named_parameters()), "publishing changed the policy"


def test_the_prompt_of_an_engine_has_one_placeholder_per_image(model):
    raw = requests(model)[-1].observation
    ids, images = model.engine_prompt(raw)
    encoded = model.encode(raw)["input_ids"].tolist()
    if not isinstance(model, VisionLanguagePolicy):
        assert ids == encoded and images == []
        return
    (placeholder,) = {i for i in model.forbidden if encoded.count(i) > ids.count(i)}
    assert len(images) == ids.count(placeholder) == 1
    first = ids.index(placeholder)
    expanded = encoded.count(placeholder)
    assert encoded == [*ids[:first], *[placeholder] * expanded, *ids[first + 1 :]]


def test_endings(model):
    eos = model.tokenizer.eos_token_id
    assert model.stop_ids(["</answer>", "<pad>"]) == (sorted({eos, model.tokenizer.pad_token_id}), ["</answer>"])
    assert model.decode([*model.tokenizer.encode("so be it"), eos]) == "so be it"


def test_the_canary_is_longer_than_two_blocks(model):
    canary = model.canary()
    assert len(model.encode(canary)["input_ids"]) >= CANARY_TOKENS
    assert len(canary["images"]) == isinstance(model, VisionLanguagePolicy)
