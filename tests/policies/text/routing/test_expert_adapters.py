"""Adapters on experts that transformers stores in one tensor a layer: scores, gradients and exports."""

import subprocess
from types import SimpleNamespace

import pytest
import torch
from peft import PeftModel
from torch.testing import assert_close
from transformers import AutoModelForCausalLM

from mmrl.__main__ import main
from mmrl.callbacks.export import require_adapters, save_adapters
from mmrl.policies.text import loading
from mmrl.policies.text.adapters import adapters_of
from mmrl.policies.text.policy import TextPolicy
from tests.policies.text.oracle import TINY, decided
from tests.policies.text.routing.test_load_balancing import KINDS, sample
from tests.policies.text.test_exports import IDS, disturb, logprobs
from tests.quick_python import quick_python
from tests.tiny_recipes import QUIET, override
from tests.tiny_recipes import TEXT as TINY_RUN

LORA = {"r": 2, "lora_alpha": 3, "target_parameters": "experts"}
STORED = ("qwen3_moe", "gpt_oss")  # [experts, out, in] and [experts, in, out]


def build(kind, **lora):
    torch.manual_seed(0)
    return disturb(decided(TextPolicy(config=dict(KINDS[kind]), lora={**LORA, **lora}), 2.0))


@pytest.mark.parametrize("kind", STORED)
def test_weights_with_adapters_are_a_sum_and_a_product_for_each_expert(kind):
    """W_e + lora_alpha / r B_e A_e of every expert, set into a model without adapters."""
    policy = build(kind, target_modules=[])
    plain = TextPolicy(config=dict(KINDS[kind])).model.eval()
    weights = {name.replace(".base_layer", ""): w for name, w in policy.model.get_base_model().named_parameters()}
    with torch.no_grad():
        for name, weight in plain.named_parameters():
            weight.copy_(weights[name])
        for number, layer in enumerate(plain.model.layers):
            wrappers = policy.model.get_base_model().model.layers[number].mlp.experts
            for wrapper in (wrappers, wrappers.base_layer):
                a, b = wrapper.lora_A["default"].weight, wrapper.lora_B["default"].weight
                target = getattr(layer.mlp.experts, wrapper.parameter_name)
                for expert in range(len(target)):
                    own_a, own_b = a[2 * expert : 2 * expert + 2], b[:, expert :: len(target)]
                    delta = 1.5 * own_b @ own_a
                    target[expert] += delta if delta.shape == target[expert].shape else delta.T
        assert_close(logprobs(policy), plain(input_ids=IDS).logits.log_softmax(-1), atol=2e-5, rtol=0)
        without = policy.model.disable_adapter()
        with without:
            assert (logprobs(policy) - plain(input_ids=IDS).logits.log_softmax(-1)).abs().max() > 0.05


@pytest.mark.parametrize("options", [{}, {"gradient_checkpointing": True}, {"pack_prompts": True}])
def test_scores_and_gradients_are_those_of_merged_weights(options):
    """dL/dA and dL/dB by the chain rule, from the gradient of a model whose weights are merged."""
    torch.manual_seed(0)
    policy = TextPolicy(config=dict(KINDS["qwen3_moe"]), lora={**LORA, "target_modules": []}, router_replay=True)
    policy = disturb(decided(policy, 2.0))
    _, batch = sample(policy)
    merged = TextPolicy(config=dict(KINDS["qwen3_moe"]))
    merged.model = loading.merge_lora(policy.model).requires_grad_(True)
    out, expected = policy.train()(batch), merged.train()(batch)
    assert_close(out.logprobs, expected.logprobs, atol=1e-5, rtol=0)
    out.logprobs.sum().backward()
    expected.logprobs.sum().backward()
    for number, layer in enumerate(merged.model.model.layers):
        wrappers = policy.model.get_base_model().model.layers[number].mlp.experts
        for wrapper in (wrappers, wrappers.base_layer):
            gradient = getattr(layer.mlp.experts, wrapper.parameter_name).grad  # [E, out, in]
            a = wrapper.lora_A["default"].weight.unflatten(0, (len(gradient), 2))  # [E, r, in]
            b = wrapper.lora_B["default"].weight.unflatten(1, (2, len(gradient))).permute(2, 0, 1)  # [E, out, r]
            of_a, of_b = 1.5 * b.mT @ gradient, 1.5 * gradient @ a.mT
            assert_close(wrapper.lora_A["default"].weight.grad, of_a.flatten(0, 1), atol=1e-4, rtol=1e-3)
            assert_close(wrapper.lora_B["default"].weight.grad, of_b.permute(1, 2, 0).flatten(1), atol=1e-4, rtol=1e-3)
            assert of_b.abs().max() > 1e-3


READ = """
import sys, torch
from peft import PeftModel
from transformers import AutoModelForCausalLM
stored = torch.load(sys.argv[1])
for base, merged, adapters, ids in stored["cases"]:
    models = [AutoModelForCausalLM.from_pretrained(merged)]
    models.append(PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapters))
    with torch.no_grad():
        stored["results"] += [model.eval()(input_ids=ids).logits.log_softmax(-1) for model in models]
assert "mmrl" not in sys.modules
torch.save(stored, sys.argv[1])
"""


def test_exports_are_read_by_transformers_and_peft_alone(tmp_path):
    expected, cases = [], []
    for kind in STORED:
        base, merged, adapters = (tmp_path / f"{kind}_{part}" for part in ("base", "merged", "adapters"))
        torch.manual_seed(0)
        decided(TextPolicy(config=dict(KINDS[kind])), 2.0).save_pretrained(base)
        policy = disturb(TextPolicy(path=str(base), lora=LORA))
        expected += [logprobs(policy)] * 2
        policy.save_pretrained(merged)
        save_adapters(policy, adapters)
        cases.append((str(base), str(merged), str(adapters), IDS))
    torch.save({"cases": cases, "results": []}, tmp_path / "cases.pt")
    (tmp_path / "read.py").write_text(READ)
    subprocess.run([quick_python(), "read.py", "cases.pt"], cwd=tmp_path, check=True, timeout=300)
    results = torch.load(tmp_path / "cases.pt")["results"]
    assert_close(results, expected, atol=2e-5, rtol=0)
    assert (results[0] - results[2]).abs().max() > 0.1  # of two models


WORDS = [*TINY_RUN, *(word for word in QUIET if "logger" not in word), "trainer.logger.tensorboard=null",
         "policy.config=null", "policy.lora={r: 2, target_parameters: experts}", "data.evaluation=null", "run_dir=run",
         "trainer.callbacks.export.adapters=true", "optimizer.lr=0.05"]  # fmt: skip


def test_a_run_writes_its_adapters_beside_merged_weights(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    decided(TextPolicy(config=dict(KINDS["qwen3_moe"])), 2.0).save_pretrained(tmp_path / "base")
    assert main(["fit", *override(WORDS, [f"policy.path={tmp_path / 'base'}", "trainer.max_epochs=1"])]) == 0
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    before = base(input_ids=IDS).logits
    logits = PeftModel.from_pretrained(base, "run/adapters")(input_ids=IDS).logits
    assert_close(logits, AutoModelForCausalLM.from_pretrained("run/policy")(input_ids=IDS).logits, atol=1e-4, rtol=0)
    assert (logits - before).abs().max() > 1e-3


def test_what_cannot_be_done_is_refused_by_name():
    with pytest.raises(ValueError, match=r"target_parameters=experts: qwen2 stores no experts in one tensor"):
        TextPolicy(config=TINY, lora=LORA)
    shared = torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)])
    shared[1].weight, shared.config = shared[0].weight, SimpleNamespace(model_type="zamba", tie_word_embeddings=False)
    with pytest.raises(ValueError, match=r"policy\.lora: layers of zamba share a weight"):
        loading.add_lora(shared, {"r": 2, "target_modules": ["0", "1"]})
    with pytest.raises(ValueError, match=r"cannot send the adapter of .*engine\.adapters=false folds it in"):
        adapters_of(build("qwen3_moe").model)
    with pytest.raises(ValueError, match=r"saves low-rank adapters, and the policy has none: give it policy\.lora"):
        require_adapters(TextPolicy(config=TINY))
