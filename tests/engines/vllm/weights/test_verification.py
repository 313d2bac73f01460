"""Weights that did not arrive are noticed, by name, before anything is sampled with them."""

import pytest
import torch

from mmrl.core.types import Sampling
from mmrl.engines.vllm.backend import EngineFailure
from mmrl.engines.vllm.engine import VllmEngine
from mmrl.engines.vllm.in_process.backend import InProcess
from mmrl.engines.vllm.weights.sent_weights import SentWeights
from mmrl.engines.vllm.weights.verification import verify_weights
from tests.engines.vllm.policies import moved, policy, requests

pytestmark = pytest.mark.vllm
ADAPTERS = {"r": 4, "lora_alpha": 8, "target_modules": "all-linear"}
GREEDY = Sampling(decode="argmax", max_tokens=6)


class Faulty(InProcess):
    """Does one thing wrong at its pushes."""

    fault = ""
    tensor = ""

    def load(self, blocks, version):
        if self.fault != "lose":
            return super().load(blocks, version)
        sent = SentWeights()
        for tensors in blocks:
            sent.record(tensors, ["float32"])
        return sent

    def _ask_worker(self, question, *words):
        if question in ("mmrl_check_tensors", "mmrl_load"):
            words = (self.spoil(dict(words[0])), *words[1:])
        return super()._ask_worker(question, *words)

    def spoil(self, tensors):
        """What arrives in place of the tensors."""
        if self.fault == "perturb":
            tensors[self.tensor] = tensors[self.tensor].clone()
            if tensors[self.tensor].device.type != "meta":
                tensors[self.tensor].view(-1)[5] += 1e-3
        if self.fault == "drop":
            del tensors[self.tensor]
        if self.fault == "turn":
            tensors[self.tensor] = tensors[self.tensor].T.contiguous()
        if self.fault == "add":
            tensors["model.no_such.weight"] = torch.zeros(2, device=next(iter(tensors.values())).device)
        return tensors

    def forget(self):
        if self.fault != "remember":
            super().forget()


@pytest.fixture(scope="module", params=["qwen2", "llava"])
def engine(request, tmp_path_factory):
    model = policy(request.param, tmp_path_factory.mktemp("policy"), lora=ADAPTERS)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:  # begins at zero
                parameter.normal_(std=0.05)
    engine = VllmEngine(Faulty(cache_gib=0.25))
    engine.sync(model, 0)
    yield engine, model
    engine.close()


@pytest.fixture(autouse=True)
def sound(engine):
    """Every test begins with an engine that holds the policy."""
    engine, model = engine
    engine.backend.fault = ""
    engine.sync(model, engine._version + 1)


def sync(engine, model, fault, tensor=""):
    """A transfer after a step of learning, with something wrong."""
    engine.backend.fault, engine.backend.tensor = fault, _name(model, tensor)
    engine.sync(moved(model, 1.02), engine._version + 1)


def _name(model, ending):
    return next((name for name in model.export_weights() if ending and name.endswith(ending)), "")


def test_a_sound_transfer_reaches_every_tensor(engine):
    engine, model = engine
    before = engine.sample(requests(model, group_size=1), GREEDY)
    sync(engine, model, "")
    after = engine.sample(requests(model, group_size=1), GREEDY)
    assert any(not torch.equal(a.behavior_logprobs, b.behavior_logprobs) for a, b in zip(before, after))
    assert {c.policy_version for c in after} == {engine._version}
    stored = engine.backend.report_weights()
    assert any(len(parts) == 3 for parts in stored.parts.values()) and any(len(p) == 2 for p in stored.parts.values())
    assert engine.report()["engine/canary_difference"] < 1e-5


@pytest.mark.parametrize("tensor", ["layers.1.mlp.up_proj.weight", "layers.0.self_attn.v_proj.weight", "norm.weight"])
def test_one_changed_number(engine, tensor):
    with pytest.raises(EngineFailure, match=rf"did not reach the engine.*{tensor}"):
        sync(*engine, "perturb", tensor)


def test_one_adapter_weight_that_is_learned_after_the_transfer(engine):
    engine, model = engine
    adapter = next(p for n, p in model.named_parameters() if "layers.1.self_attn.q_proj.lora_A" in n)
    stored = engine.backend.report_weights()
    with torch.no_grad():
        adapter[0, 0] += 1e-4
    with pytest.raises(EngineFailure, match=r"did not reach the engine.*layers\.1\.self_attn\.qkv_proj"):
        verify_weights(SentWeights(model.export_weights()), stored, stored.version)


@pytest.mark.parametrize(
    ("fault", "tensor", "message"),
    [
        ("drop", "layers.0.mlp.gate_proj.weight", r"gate_up_proj.*cannot fill"),
        ("drop", "layers.1.mlp.down_proj.weight", r"down_proj.weight of the model is given by no tensor"),
        ("turn", "layers.1.mlp.down_proj.weight", r"down_proj.weight of the model is .* cannot fill"),
        ("add", "", r"no_such"),
    ],
)
def test_what_cannot_be_loaded_is_refused_before_anything_is_touched(engine, fault, tensor, message):
    engine, model = engine
    before = engine.backend.report_weights()
    with pytest.raises(EngineFailure, match=message):
        sync(engine, model, fault, tensor)
    assert engine.backend.report_weights() == before


def test_a_transfer_that_never_happened(engine):
    with pytest.raises(EngineFailure, match="holds version"):
        sync(*engine, "lose")


def test_caches_of_older_weights(engine):
    with pytest.raises(EngineFailure, match="caches of older weights"):
        sync(*engine, "remember")
