"""Low-rank adapters sent as factors: what arrives is what the learner has, and what does not fit is refused."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from mmrl.core.types import Sampling
from mmrl.engines.local import LocalEngine
from mmrl.engines.vllm.backend import EngineFailure
from mmrl.engines.vllm.engine import VllmEngine
from mmrl.engines.vllm.in_process.backend import InProcess
from mmrl.engines.vllm.weights.factors import Weights, merge_factors
from mmrl.engines.vllm.weights.update import AdapterFactors
from tests.engines.vllm.policies import moved, policy, requests

LORA = {"r": 4, "lora_alpha": 8, "target_modules": "all-linear"}


def adapted(kind, folder, **changes):
    model = policy(kind, folder, lora={**LORA, **changes})
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:  # begins at zero
                parameter.normal_(std=0.05)
    return model


def test_folding_by_hand():
    # W + 2 B A = [[1, 2], [3, 4]] + 2 [[1], [0]] [[5, 6]] = [[11, 14], [3, 4]]
    weight, a, b = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[5.0, 6.0]]), torch.tensor([[1.0], [0.0]])
    assert merge_factors(weight, (a, b, 2.0)).tolist() == [[11.0, 14.0], [3.0, 4.0]]


@pytest.mark.parametrize("kind", ["qwen2", "llava", "qwen2_5_vl"])
@pytest.mark.parametrize("changes", [{}, {"use_rslora": True}], ids=["plain", "rslora"])
def test_a_file_of_factors_and_its_base_are_the_merged_weights(tmp_path, kind, changes):
    model, sent = adapted(kind, tmp_path, **changes), AdapterFactors()
    sent.save(model, tmp_path / "start")
    exported = sent.write(model, tmp_path / "start", tmp_path / "factors.safetensors")
    merged = model.export_weights()
    assert exported.keys() == merged.keys()
    for name, tensor in merged.items():
        torch.testing.assert_close(exported[name], tensor, rtol=1e-5, atol=1e-6, msg=name)
    with Weights(tmp_path / "factors.safetensors") as weights:
        assert weights.problems() == []
        for name in weights:
            assert torch.equal(weights.tensor(name), exported[name]), name
            assert weights.shape(name) == list(exported[name].shape) and weights.dtype(name) == exported[name].dtype
    whole = sum(t.numel() * t.element_size() for t in merged.values())
    assert (tmp_path / "factors.safetensors").stat().st_size < whole / 2


def test_factors_that_do_not_fit_are_named(tmp_path):
    model, sent, path = adapted("qwen2", tmp_path), AdapterFactors(), tmp_path / "factors.safetensors"
    sent.save(model, tmp_path / "start")
    sent.write(model, tmp_path / "start", path)
    with Weights(path) as weights:
        about = dict(weights._own[next(iter(weights._own))].metadata())
    tensors = load_file(path)
    lost, turned = sorted(tensors)[0], sorted(tensors)[3]
    del tensors[lost]
    tensors[turned] = tensors[turned].T.contiguous()
    tensors["model.no_such.weight.lora_A"] = torch.zeros(2, 2)
    save_file(tensors, path, metadata=about)
    with Weights(path) as weights:
        message = weights.problems()
    assert [f"{lost} was not sent", "model.no_such.weight.lora_A is no factor of a tensor of the base"] == message[:2]
    assert len(message) == 3 and turned.rpartition(".")[0] in message[2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"use_dora": True}, "DoRA"), ({"modules_to_save": ["norm"]}, "norm.* learns"), ({"bias": "all"}, "bias learns")],
    ids=["dora", "modules_to_save", "bias"],
)
def test_a_policy_that_learns_more_than_factors(tmp_path, changes, message):
    with pytest.raises(ValueError, match=rf"engine\.adapters.*{message}"):
        adapted("qwen2", tmp_path, **changes).adapters()


def test_a_policy_without_adapters(tmp_path):
    with pytest.raises(ValueError, match=r"policy\.lora"):
        AdapterFactors().save(policy("qwen2", tmp_path), tmp_path / "start")


class Losing(InProcess):
    """Changes one number of a factor on its way."""

    tensor = ""

    def push(self, weights, version):
        if self.tensor:
            with Weights(weights) as opened:
                about = dict(opened._own[self.tensor].metadata())
            tensors = load_file(weights)
            tensors[self.tensor].view(-1)[3] += 1e-3
            save_file(tensors, weights, metadata=about)
        super().push(weights, version)


@pytest.mark.vllm
@pytest.mark.parametrize("kind", ["qwen2", "llava"])
def test_vllm_runs_on_what_the_learner_has(tmp_path, kind):
    model = adapted(kind, tmp_path)
    vllm, local = VllmEngine(Losing(cache_gib=0.25), adapters=True), LocalEngine()
    try:
        for version in range(3):
            vllm.sync(model, version)
            local.sync(model, version)
            asked, sampling = requests(model, group_size=1), Sampling(decode="argmax", max_tokens=16)
            for theirs, ours in zip(vllm.sample(asked, sampling), local.sample(asked, sampling), strict=True):
                assert theirs.action.tolist() == ours.action.tolist() and theirs.policy_version == version
                assert (theirs.behavior_logprobs - ours.behavior_logprobs).abs().max() < 1e-4
            moved(model, 1.2)  # what learns: the factors
        vllm.backend.tensor = next(n for n in load_file(next(vllm._folder.glob("weights-*"))) if "layers.1.mlp.up" in n)
        with pytest.raises(EngineFailure, match=r"did not reach the engine.*layers\.1\.mlp\.up_proj"):
            vllm.sync(model, 3)
    finally:
        vllm.close()
