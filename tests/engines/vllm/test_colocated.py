"""vLLM in several training processes: each has one of its own, and the run is that of one process."""

from __future__ import annotations

import copy
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.testing import assert_close

from mmrl.core.types import Sampling
from mmrl.distributed.sharding import shard
from mmrl.engines.local import LocalEngine
from mmrl.engines.vllm.backend import EngineFailure, EnginePrompt, EngineSampling
from mmrl.engines.vllm.engine import VllmEngine
from mmrl.engines.vllm.in_process.backend import InProcess
from mmrl.engines.vllm.in_process.colocation import launcher_variables
from mmrl.engines.vllm.weights.blocks import WeightBlocks
from tests.engines.vllm.policies import moved, policy, requests
from tests.engines.vllm.test_several_processes import plain, run_in_ranks
from tests.runs.processes import run_ranks
from tests.tiny_recipes import command, record, words

LORA = {"r": 4, "lora_alpha": 8, "target_modules": "all-linear"}
GREEDY = Sampling(decode="argmax", max_tokens=16)


def trained_adapters(model: Any) -> Any:
    """Adapters that change the weights: their second factor begins at zero."""
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.05)
    return model


# ---------------------------------------------------------------- weights, block by block


def stream_blocks(rank: int, folder: Path) -> Any:
    """Both ranks get every tensor once, and hold one block at a time."""
    found = []
    for kind, options in (("qwen2", {}), ("llava", {}), ("qwen2", {"lora": LORA})):
        (folder / f"{rank}").mkdir(exist_ok=True)
        model = trained_adapters(policy(kind, folder / f"{rank}", **options))
        whole = {name: tensor.detach() for name, tensor in copy.deepcopy(model).export_weights().items()}
        shard(model, init_device_mesh("cpu", (2,)))
        blocks = WeightBlocks(model)
        got, largest = {}, 0
        for tensors in blocks:
            assert not set(tensors) & set(got)
            largest = max(
                largest, sum(tensor.nbytes for tensor in {t.data_ptr(): t for t in tensors.values()}.values())
            )
            got |= {name: tensor.clone() for name, tensor in tensors.items()}
        same = list(got) != [] and set(got) == set(whole) == set(blocks.headers)
        same = same and all(torch.equal(got[name], whole[name]) for name in whole)
        found.append([same, largest < 0.7 * count_bytes(whole)])
    return found


def count_bytes(tensors: dict[str, torch.Tensor]) -> int:
    """Bytes of tensors, of which some are tied."""
    return sum(tensor.nbytes for tensor in {tensor.data_ptr(): tensor for tensor in tensors.values()}.values())


def test_every_rank_gets_every_tensor_of_a_sharded_policy_once(tmp_path):
    first, second = run_in_ranks(stream_blocks, tmp_path)
    assert first == second == [[True, True]] * 3


# ---------------------------------------------------------------- control flow, without vLLM


class Stand:
    """Stands in for `vllm.LLM`: notes what is called; holds the tensors that it was given."""

    def __init__(self, problems: tuple[str, ...] = ()):
        self.calls: list[str] = []
        self.problems = problems
        self.llm_engine = self.model_config = self
        self.enable_sleep_mode = True

    def collective_rpc(self, question: str, args: tuple = ()) -> list[Any]:
        self.calls.append(question)
        return [{"problems": list(self.problems), "dtypes": ["float32"]}]

    def sleep(self, level: int) -> None:
        self.calls.append(f"sleep {level}")

    def wake_up(self, tags: list[str]) -> None:
        self.calls.append(f"wake {' '.join(tags)}")

    def generate(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("the device is gone")

    def reset_prefix_cache(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self.calls.append(name)


def backend(**options: Any) -> InProcess:
    made = InProcess(**options)
    made._llm = Stand()
    return made


@pytest.mark.parametrize("level", [1, 2])
def test_memory_is_free_while_the_learner_computes(level, tmp_path):
    """A transfer takes the memory of the weights alone; the cache's is taken when prompts come."""
    made, model = backend(sleep_level=level), policy("qwen2", tmp_path)
    made.sleep()
    made.sleep()
    made.load(WeightBlocks(model), 3)
    assert made._llm.calls[:3] == [f"sleep {level}", "wake weights", "mmrl_check_tensors"]
    assert made._llm.calls[3:6] == ["start_weight_update", "mmrl_load", "finish_weight_update"]
    assert not [call for call in made._llm.calls if "kv_cache" in call]
    made._wake("weights", "kv_cache")
    made._wake("weights", "kv_cache")
    assert [call for call in made._llm.calls if "kv_cache" in call] == ["wake kv_cache"]


def test_levels_of_sleep():
    with pytest.raises(ValueError, match="sleep_level must be 1 or 2"):
        InProcess(sleep_level=3)


def refuse_on_one_rank(rank: int, folder: Path) -> Any:
    """Rank 1's vLLM refuses the weights while rank 0 waits for the next block of rank 1."""
    (folder / f"{rank}").mkdir(exist_ok=True)
    model = policy("qwen2", folder / f"{rank}")
    shard(model, init_device_mesh("cpu", (2,)))
    made = backend()
    made._llm.problems = ("the test refuses it",) if rank == 1 else ()
    made.load(WeightBlocks(model), 0)


def test_a_transfer_that_fails_on_one_rank_ends_all(tmp_path):
    first, second = run_in_ranks(refuse_on_one_rank, tmp_path)
    assert first == second == "vLLM cannot take the policy's weights: the test refuses it"


def fail_while_sampling(rank: int, folder: Path) -> Any:
    sys.modules.setdefault("vllm", type(sys)("vllm"))  # where there is none
    made, prompts = backend(), [EnginePrompt((1, 2), (), 0)] * 3
    drawing = EngineSampling(1.0, 0, 1.0, 0.0, 4, False, (), (), (), 0)
    made._generate = lambda prompts, drawing: (_ for _ in ()).throw(EngineFailure("the device is gone"))
    if rank == 1:
        errors = [[output.ended, output.error] for output in made.generate(prompts, drawing)]
        assert errors == [["error", "rank 1: the device is gone"]] * 3
    made.sleep()


def test_a_rank_whose_vllm_fails_ends_all_with_one_message(tmp_path):
    """It samples between collective steps, so the others learn of it at the next one."""
    first, second = run_in_ranks(fail_while_sampling, tmp_path)
    assert first == second == "rank 1: the device is gone"


def find_devices(rank: int, folder: Path) -> Any:
    torch.cuda.is_available = lambda: True
    torch.cuda.current_device = lambda: 4 + rank  # trainer.devices=[4,5]
    os.environ["LOCAL_RANK"] = str(rank)
    with launcher_variables():
        inside = [os.environ[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")]
    return [inside, os.environ["LOCAL_RANK"], "RANK" in os.environ]


def test_each_vllm_is_on_the_gpu_of_its_learner(tmp_path):
    first, second = run_in_ranks(find_devices, tmp_path)
    assert first == [["0", "4", "2"], "0", False] and second == [["1", "5", "2"], "1", False]


# ---------------------------------------------------------------- vLLM itself


def sample_in_both(rank: int, folder: Path) -> Any:
    """Ranks sample different numbers of prompts from sharded weights, which change; full weights, then adapters."""
    found = []
    for adapters in (False, True):
        (folder / f"{rank}").mkdir(exist_ok=True)
        alone = trained_adapters(policy("qwen2", folder / f"{rank}", lora=LORA))
        model = trained_adapters(policy("qwen2", folder / f"{rank}", lora=LORA))
        shard(model, init_device_mesh("cpu", (2,)))
        vllm, local = VllmEngine(InProcess(cache_gib=0.25, max_model_len=512), adapters=adapters), LocalEngine()
        try:
            for version in range(2):
                vllm.sync(model, version)
                local.sync(alone, version)
                asked = requests(alone, group_size=2)[: 6 if rank else 1]
                for _ in range(1 + rank):
                    ours, theirs = local.sample(asked, GREEDY), vllm.sample(asked, GREEDY)
                same = plain(ours) == plain(theirs)
                near = max(float((a.behavior_logprobs - b.behavior_logprobs).abs().max()) for a, b in zip(ours, theirs))
                found.append([same, near < 1e-4, vllm.measured["engine/canary_difference"] < 1e-4])
                vllm.release_memory()
                moved(alone, 1.2)
                moved(model, 1.2)
        finally:
            vllm.close()
        assert dist.get_world_size() == 2
        dist.barrier()  # the training group is still there
    return found


@pytest.mark.vllm
def test_two_processes_have_a_vllm_each(tmp_path):
    first, second = run_in_ranks(sample_in_both, tmp_path, seconds=400)
    assert first == second == [[True] * 3] * 4


CHOSEN = (
    "engine=vllm",
    "engine.backend.cache_gib=0.25",
    "policy.config.num_attention_heads=1",  # a head has 32 numbers
    "policy.config.num_key_value_heads=1",
    "trainer.max_epochs=2",
)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The record of a run in one process."""
    return command(tmp_path_factory.mktemp("alone"), *CHOSEN)


@pytest.mark.vllm
@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_a_run_with_a_vllm_in_each_process_is_that_of_one(strategy, alone, tmp_path):
    """Same minibatches and weights, from the draws of the same seeds."""
    both = words(tmp_path / "both", *CHOSEN, "trainer.devices=2", f"strategy={strategy}")
    run_ranks(["fit", *both], tmp_path, seconds=400)
    first, second = record(tmp_path / "both", 0), record(tmp_path / "both", 1)
    for whole, mine, theirs in zip(*(part["minibatches"] for part in (alone, first, second)), strict=True):
        assert sorted(whole) == sorted(mine + theirs) and mine and theirs
    assert_close(first["weights"], second["weights"], atol=0, rtol=0)
    assert_close(first["weights"], alone["weights"], atol=2e-6, rtol=0)


@pytest.mark.vllm
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("level", [1, 2])
def test_sleep_frees_memory_of_the_gpu(level, tmp_path):
    model = policy("qwen2", tmp_path).to("cuda")
    vllm = VllmEngine(InProcess(max_model_len=512, memory_share=0.3, sleep_level=level))
    try:
        vllm.sync(model, 0)
        before = torch.cuda.mem_get_info()[0]
        vllm.release_memory()
        assert torch.cuda.mem_get_info()[0] - before > 0.2 * torch.cuda.mem_get_info()[1]
        vllm.sync(moved(model, 1.1), 1)  # verified
        local = LocalEngine()
        local.sync(model, 1)
        asked = requests(model, group_size=1)
        assert [c.output for c in vllm.sample(asked, GREEDY)] == [c.output for c in local.sample(asked, GREEDY)]
    finally:
        vllm.close()
