"""Adapters on recurrent blocks, routers and grouped layers: exact by default, or refused by name."""

import subprocess
from types import SimpleNamespace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.testing import assert_close
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

from mmrl.callbacks.export import save_adapters
from mmrl.core.types import Prompt, Sampling
from mmrl.policies.text.checks.adapted_layers import OTHER_OUTPUT, READ_WEIGHT, choose_targets, list_unadaptable
from mmrl.policies.text.policy import TextPolicy
from scripts.model_sweep.checkpoints import build_checkpoint
from scripts.model_sweep.processors import build_processor
from tests.policies.text.oracle import completions, plain_logits
from tests.policies.text.test_exports import IDS, disturb, logprobs
from tests.quick_python import quick_python

WITHOUT = {
    "mamba": {"x_proj", "dt_proj", "out_proj"},
    "falcon_h1": {"out_proj"},
    "nemotron_h": {"out_proj"},
    "llama4_text": {"router"},
    "deepseek_v4": {"o_a_proj"},
}
"""Layers without an adapter beside the output head, by the code of transformers."""
READ = """
import sys, torch
from peft import PeftModel
from transformers import AutoModelForCausalLM
assert "mmrl" not in sys.modules
ids, folder, kinds = torch.arange(4, 28).view(2, 12), sys.argv[1], sys.argv[2:]
read = {}
with torch.no_grad():
    for kind in kinds:
        load = lambda name: AutoModelForCausalLM.from_pretrained(f"{folder}/{kind}/{name}", dtype=torch.float32).eval()
        models = load("merged"), PeftModel.from_pretrained(load("start"), f"{folder}/{kind}/adapters").eval()
        read[kind] = [model(input_ids=ids, use_cache=False).logits.log_softmax(-1) for model in models]
torch.save(read, f"{folder}/read.pt")
"""


@pytest.fixture(scope="module")
def adapted(tmp_path_factory):
    """A policy with default adapters of every kind, and what other programs read from its exports."""
    folder, policies = tmp_path_factory.mktemp("adapted"), {}
    for kind in WITHOUT:
        build_checkpoint(kind, "text", folder / kind / "start")
        policies[kind] = disturb(TextPolicy(path=str(folder / kind / "start"), lora={"r": 2, "lora_alpha": 3}))
        policies[kind].save_pretrained(folder / kind / "merged")
        save_adapters(policies[kind], folder / kind / "adapters")
    (folder / "read.py").write_text(READ)
    subprocess.run([quick_python(), "read.py", str(folder), *WITHOUT], cwd=folder, check=True, timeout=300)
    return policies, torch.load(folder / "read.pt"), folder


@pytest.mark.parametrize("kind", WITHOUT)
def test_adapters_are_a_sum_of_weights(kind, adapted):
    """W + lora_alpha / r B A, set into a model that transformers loads; fresh processes read the same."""
    policies, exports, folder = adapted
    policy = policies[kind]
    plain = AutoModelForCausalLM.from_pretrained(folder / kind / "start", dtype=torch.float32).eval()
    linears = {name: layer for name, layer in plain.named_modules() if isinstance(layer, nn.Linear)}
    unadapted = set(linears)
    with torch.no_grad():
        before = plain(input_ids=IDS, use_cache=False).logits.log_softmax(-1)
        for name, layer in policy.model.get_base_model().named_modules():
            if hasattr(layer, "lora_A"):
                a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
                linears[name].weight += 1.5 * b @ a
                unadapted.remove(name)
        expected = plain(input_ids=IDS, use_cache=False).logits.log_softmax(-1)
    assert {name.rpartition(".")[2] for name in unadapted} == WITHOUT[kind] | {"lm_head"}
    assert (expected - before).abs().max() > 0.05
    assert_close(logprobs(policy), expected, atol=1e-4, rtol=0)
    for logprobs_of_export in exports[kind]:
        assert_close(logprobs_of_export, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", WITHOUT)
def test_completions_have_the_log_probs_of_merged_weights(kind, adapted):
    policy = adapted[0][kind]
    merged = SimpleNamespace(
        model=AutoModelForCausalLM.from_pretrained(adapted[2] / kind / "merged", dtype=torch.float32).eval(),
        per_token=policy.per_token,
        forbidden=policy.forbidden,
    )
    prompts = [Prompt(key=f"a/b/{text}", messages=({"role": "user", "content": text},)) for text in ("ab", "hello abc")]
    for completion in completions(policy, prompts, Sampling(max_tokens=4)):
        scores = plain_logits(merged, completion).log_softmax(-1).gather(1, completion.action[:, None])[:, 0]
        assert_close(completion.behavior_logprobs, scores, atol=1e-4, rtol=0)


def test_peft_alone_takes_what_is_not_linear_or_refuses_it(adapted):
    """The reason for the exclusions: the same adapters without them."""
    for kind, error in {"mamba": ValueError, "llama4_text": AttributeError, "deepseek_v4": RuntimeError}.items():
        model = AutoModelForCausalLM.from_pretrained(adapted[2] / kind / "start")
        with pytest.raises(error):
            get_peft_model(model, LoraConfig(r=2, target_modules="all-linear"))(input_ids=IDS, use_cache=False)


class Doubled(nn.Linear):
    def forward(self, inputs):
        return 2 * super().forward(inputs)


class Transposed(nn.Linear):
    def forward(self, inputs):
        return inputs @ self.weight.T + self.bias


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.plain, self.doubled, self.transposed = nn.Linear(3, 3), Doubled(3, 3), Transposed(3, 3)
        self.read, self.typed = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, inputs):
        inputs = self.plain(inputs).to(self.typed.weight.dtype)
        return self.typed(self.transposed(self.doubled(inputs))) @ self.read.weight


def test_layers_are_found_by_a_pass_and_by_the_code_of_their_block():
    reasons = {"block.doubled": OTHER_OUTPUT, "block.read": READ_WEIGHT}
    model = nn.ModuleDict({"block": Block()})
    state = torch.get_rng_state()
    assert list_unadaptable(model) == reasons
    assert torch.equal(state, torch.get_rng_state())
    with torch.device("meta"):
        assert list_unadaptable(nn.ModuleDict({"block": Block()})) == reasons
    chosen = choose_targets(model, {"exclude_modules": ["typed"]})
    assert chosen["exclude_modules"] == ["block.doubled", "block.read", "typed"]
    adapted = get_peft_model(nn.ModuleDict({"block": Block()}), LoraConfig(**choose_targets(
        model, {"exclude_modules": r".*typed"}
    )))  # fmt: skip
    names = {name.rpartition(".")[2] for name, layer in adapted.named_modules() if hasattr(layer, "lora_A")}
    assert names == {"plain", "transposed"}


@pytest.mark.parametrize(
    "kind, targets, reason",
    [("falcon_h1", ["in_proj", "out_proj"], READ_WEIGHT), ("llama4_text", r".*\.router", r"x W\^T \+ b")],
)
def test_named_layers_that_cannot_have_adapters_are_refused(kind, targets, reason, adapted):
    match = rf"policy.lora.target_modules: \S+ of {kind} cannot have an adapter, because.*{reason}.*leave"
    with pytest.raises(ValueError, match=match):
        TextPolicy(path=str(adapted[2] / kind / "start"), lora={"r": 2, "target_modules": targets})


def test_blocks_with_the_number_of_a_linear_layer_have_no_adapter():
    """`visual.merger.mlp.0` beside `audio_tower.layers.0`, of which peft knows `0` alone for this type."""

    def build(**arguments):
        with torch.device("meta"):
            model = AutoModelForImageTextToText.from_config(config)
            return model, get_peft_model(model, LoraConfig(**(arguments or choose_targets(model, {"r": 2}))))

    config = build_processor("qwen3_omni_moe_thinker")[0]
    with pytest.raises(ValueError, match="AudioEncoderLayer"):
        build(r=2, target_modules="all-linear")
    model, adapted = build()
    bases = {name: layer.base_layer for name, layer in adapted.named_modules() if hasattr(layer, "base_layer")}
    linears = [layer for name, layer in model.named_modules() if isinstance(layer, nn.Linear) and "lora_" not in name]
    heads = {model.get_output_embeddings()}
    assert {layer for layer in bases.values() if isinstance(layer, nn.Linear)} == set(linears) - heads
    others = {name.rpartition(".")[2] for name, layer in bases.items() if not isinstance(layer, nn.Linear)}
    assert {"experts", "gate", "proj"} <= others and "0" not in others, others
