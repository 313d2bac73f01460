"""4-bit frozen weights below adapters: LoRA on the dequantised weights, in less memory, exported in full precision."""

import copy
import sys

import pytest
import torch
from peft import set_peft_model_state_dict
from torch.testing import assert_close
from transformers import AutoModelForCausalLM

from mmrl.__main__ import main
from mmrl.policies.quantization import QuantizedLinear, dequantize_linears
from mmrl.policies.text.policy import TextPolicy
from tests.policies.text.oracle import TINY

IDS = torch.tensor([[6, 7, 76, 8, 9, 40, 41, 30], [5, 7, 8, 8, 10, 11, 41, 99]])
CONFIG = dict(TINY)  # of qwen2, whose queries, keys and values have biases


def test_the_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)  # Python's own mark of a module that cannot be imported
    with pytest.raises(
        ValueError, match=r"policy\.quantization=nf4 needs the package bitsandbytes: pip install '.*\[qlora\]'"
    ):
        TextPolicy(config=TINY, lora={"r": 4}, quantization="nf4")


def test_weights_in_4_bits_cannot_be_trained():
    with pytest.raises(ValueError, match=r"policy\.quantization=nf4 freezes the weights.*policy\.lora"):
        TextPolicy(config=TINY, quantization="nf4")


@pytest.fixture(params=["nf4", "fp4"])
def policy(request):
    pytest.importorskip("bitsandbytes")
    torch.manual_seed(0)
    policy = TextPolicy(config=CONFIG, lora={"r": 4}, quantization=request.param)
    with torch.no_grad():
        for weight in trainable(policy).values():
            weight.normal_(std=0.1)
    return policy


def trainable(policy):
    return {name: weight for name, weight in policy.named_parameters() if weight.requires_grad}


def gradients(policy):
    policy.zero_grad()
    policy.model(IDS).logits.log_softmax(-1)[..., 7].sum().backward()
    return {name: weight.grad.clone() for name, weight in trainable(policy).items()}


def logits(model):
    with torch.no_grad():
        return model.eval()(IDS).logits


@pytest.mark.parametrize("kind", ["nf4", "fp4"])
@pytest.mark.parametrize("size", [(8, 32), (7, 96), (5, 48), (8, 64), (3, 63), (16, 100), (1, 1), (10, 160)], ids=str)
def test_weights_are_the_nearest_codes_of_their_blocks(kind, size):
    """The arithmetic of the paper, written out: blocks of 64 along a row, each divided by its largest number."""
    functional = pytest.importorskip("bitsandbytes.functional")
    torch.manual_seed(0)
    linear = torch.nn.Linear(size[1], size[0])
    weight = linear.weight.detach().clone()
    code = functional.get_4bit_type(kind, device="cpu")
    blocks = torch.nn.functional.pad(weight, (0, -size[1] % 64)).view(size[0], -1, 64)
    scale = blocks.abs().amax(-1, keepdim=True)
    nearest = code[((blocks / scale.clamp(min=1e-9))[..., None] - code).abs().argmin(-1)] * scale
    expected = nearest.flatten(1)[:, : size[1]]
    layer = QuantizedLinear(linear, kind)
    largest = float(weight.abs().max())
    found = layer.dequantize().weight
    assert_close(found, expected, atol=0.01 * largest, rtol=0)  # scales have 8 bits
    given = torch.randn(3, size[1], requires_grad=True)
    assert_close(layer(given), given @ found.T + linear.bias, atol=1e-5, rtol=1e-5)
    (slope,) = torch.autograd.grad(layer(given).sum(), given)
    assert_close(slope, found.sum(0).expand(3, -1), atol=1e-5, rtol=1e-5)


def test_only_linear_layers_below_adapters_take_4_bits(policy):
    quantized = [name for name, module in policy.named_modules() if isinstance(module, QuantizedLinear)]
    assert len(quantized) == 2 * 7 and all("base_layer" in name for name in quantized)
    for module in (policy.get_submodule(name) for name in quantized):
        ordinary = 4 * (module.in_features + module.padding) * module.out_features
        assert module.weight.nbytes == ordinary // 8 and module.scales.nbytes == ordinary // 4 // 64
    assert all(".lora_" in name for name in trainable(policy))


def test_logits_and_gradients_are_those_of_lora_on_the_dequantised_weights(policy):
    ordinary = dequantize_linears(copy.deepcopy(policy))
    assert not any(isinstance(module, QuantizedLinear) for module in ordinary.modules())
    ours, theirs = gradients(policy), gradients(ordinary)
    assert len(ours) == 2 * 2 * 7 and min(gradient.abs().max() for gradient in ours.values()) > 1e-3
    assert_close(ours, theirs, atol=1e-6, rtol=1e-5)
    assert_close(logits(policy.model), logits(ordinary.model), atol=1e-6, rtol=0)


def test_the_dequantised_weights_are_near_those_of_the_model():
    pytest.importorskip("bitsandbytes")
    torch.manual_seed(0)
    linear = torch.nn.Linear(256, 128)
    found = QuantizedLinear(linear, "nf4").dequantize()
    error = (found.weight - linear.weight).abs().max() / linear.weight.abs().max()
    assert 0.01 < error < 0.16 and torch.equal(found.bias, linear.bias)  # the widest gap of NF4 is 0.304, half of it


def test_a_conversion_to_bfloat16_keeps_the_scales(policy):
    module = next(module for module in policy.modules() if isinstance(module, QuantizedLinear))
    before = module.dequantize().weight
    assert torch.equal(module.to(torch.bfloat16).dequantize().weight, before)


def test_the_export_loads_with_transformers_alone(policy, tmp_path):
    policy.save_pretrained(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert not hasattr(model.config, "quantization_config")
    assert (logits(model) - logits(policy.model.get_base_model().__class__(model.config))).abs().max() > 0.1
    assert_close(logits(model), logits(policy.model), atol=1e-5, rtol=0)
    weights = policy.export_weights()
    assert_close({name: weights[name] for name in model.state_dict()}, dict(model.state_dict()), atol=0, rtol=0)


def test_base_and_factors_make_the_exported_weights(policy, tmp_path):
    """What an engine gets that adds the adapters by itself."""
    policy.save_base(tmp_path)
    state = AutoModelForCausalLM.from_pretrained(tmp_path).state_dict()
    adapters, whole = policy.adapters(), policy.export_weights()
    assert len(adapters.pairs) == 2 * 7
    for name, (a, b, scale) in adapters.pairs.items():
        assert_close(state[name], adapters.base[name], atol=0, rtol=0)
        assert_close(whole[name], state[name] + scale * b @ a, atol=1e-6, rtol=0)


def test_the_adapters_load_with_peft_on_the_exported_base(policy, tmp_path):
    from peft import get_peft_model, get_peft_model_state_dict

    policy.save_base(tmp_path)
    config = policy.model.peft_config["default"]
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(tmp_path), config)
    set_peft_model_state_dict(model, get_peft_model_state_dict(policy.model))
    assert_close(logits(model), logits(policy.model), atol=1e-6, rtol=0)


def test_a_state_dictionary_is_loaded(policy):
    torch.manual_seed(1)
    kind = next(module.kind for module in policy.modules() if isinstance(module, QuantizedLinear))
    other = TextPolicy(config=CONFIG, lora={"r": 4}, quantization=kind)
    assert (logits(other.model) - logits(policy.model)).abs().max() > 0.1
    other.load_state_dict(policy.state_dict())
    assert torch.equal(logits(other.model), logits(policy.model))


def test_a_run_trains_the_adapters_and_resumes(tmp_path):
    pytest.importorskip("bitsandbytes")
    words = ["recipe=sft", "policy.lora.r=4", "policy.quantization=nf4", f"run_dir={tmp_path}/run", "optimizer.lr=1e-2",
             "data.num_prompts=8", "data.num_minibatches=1", "data.evaluation=null", "trainer.logger=false",
             "trainer.accelerator=cpu", "trainer.enable_progress_bar=false",
             "trainer.callbacks.progress=null"]  # fmt: skip
    assert main(["fit", *words, "trainer.max_epochs=1"]) == 0
    before = AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "policy").state_dict()
    last = tmp_path / "run" / "checkpoints" / "last.ckpt"
    assert main(["fit", *words, "trainer.max_epochs=2", f"ckpt_path={last}"]) == 0
    after = AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "policy").state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved == {name for name in before if name.endswith("proj.weight")}
