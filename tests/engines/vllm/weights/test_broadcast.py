"""Weights that reach servers by a broadcast; a model server stands in for vLLM, except where vLLM is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from mmrl.core.types import Sampling
from mmrl.distributed.sharding import shard
from mmrl.engines.local import LocalEngine
from mmrl.engines.vllm.backend import EngineFailure
from mmrl.engines.vllm.servers.backend import Server
from mmrl.engines.vllm.servers.engine import ServerEngine
from mmrl.engines.vllm.weights.broadcast import find_own_address
from tests.engines.vllm.model_server import write_python
from tests.engines.vllm.policies import moved, policy, requests
from tests.engines.vllm.test_colocated import LORA, trained_adapters
from tests.engines.vllm.test_several_processes import plain, pool, run_in_ranks
from tests.tiny_recipes import free_port

GREEDY = Sampling(decode="argmax", max_tokens=6)


def weight_files(engine: ServerEngine) -> list[str]:
    return [path.name for path in Path(engine._folder).rglob("*.safetensors")]


def agrees(engine: ServerEngine, model: Any, version: int) -> bool:
    local = LocalEngine()
    local.sync(model, version)
    asked = requests(model, group_size=1)
    return plain(engine.sample(asked, GREEDY)) == plain(local.sample(asked, GREEDY))


def test_servers_take_broadcasts_and_die_before_while_and_after(tmp_path):
    """Every transfer is verified by the engine: fingerprints of each server, and the canary."""
    write_python(tmp_path)
    model = policy("qwen2", tmp_path)
    engine = pool(tmp_path, transfer="broadcast")
    try:
        for version in range(2):
            engine.sync(moved(model, 1.1), version)
            assert agrees(engine, model, version) and not weight_files(engine)
        assert engine.backend.restarted == 0 and engine.measured["engine/sent_mib"] > 0
        group = engine.backend._broadcast._group
        engine.sync(moved(model, 1.1), 2)
        assert engine.backend._broadcast._group is group  # it is made once

        (tmp_path / "die-1").write_text("0")  # while it samples
        assert agrees(engine, model, 2) and engine.backend.restarted == 1
        engine.sync(moved(model, 1.1), 3)
        assert agrees(engine, model, 3) and engine.backend.restarted == 1

        (tmp_path / "die-loading-0").touch()
        engine.sync(moved(model, 1.1), 4)
        assert agrees(engine, model, 4) and engine.backend.restarted == 2
        assert not weight_files(engine)
    finally:
        engine.close()


def test_factors_are_broadcast_and_merged_with_the_base_that_each_server_started_from(tmp_path):
    write_python(tmp_path)
    model = trained_adapters(policy("qwen2", tmp_path, lora=LORA))
    engine = pool(tmp_path, transfer="broadcast", adapters=True)
    try:
        for version in range(2):
            engine.sync(moved(model, 1.5), version)
            assert agrees(engine, model, version)
        (tmp_path / "die-0").write_text("0")
        assert agrees(engine, model, 1) and engine.backend.restarted == 1
        whole = sum(t.numel() * t.itemsize for t in model.export_weights().values()) / 2**20
        assert engine.measured["engine/sent_mib"] < 0.5 * whole
    finally:
        engine.close()


def broadcast_shards(rank: int, folder: Path) -> Any:
    """Two ranks hold shards; rank 1 loses a server while rank 0, which keeps the copy, waits."""
    torch.manual_seed(0)
    model = policy("qwen2", folder)
    whole = {name: tensor.clone() for name, tensor in model.export_weights().items()}
    shard(model, init_device_mesh("cpu", (2,)))
    engine = pool(folder, transfer="broadcast")
    try:
        for version in range(2):
            engine.sync(model, version)
        asked = requests(model)
        undisturbed = plain(engine.sample(asked, GREEDY))
        if rank == 1:
            (folder / "die-1").write_text("0")
            assert plain(engine.sample(asked, GREEDY)) == undisturbed
        dist.barrier()
        engine.sync(model, 2)
        kept = engine.backend._broadcast._kept.tensors if rank == 0 else {}
        same = all(torch.equal(kept[name], whole[name]) for name in kept)
        return [undisturbed, same, len(kept) == len(whole), engine.backend.restarted, weight_files(engine)]
    finally:
        engine.close()


def test_shards_of_two_ranks_are_broadcast_block_by_block(tmp_path):
    write_python(tmp_path)
    (first, *own), (second, *_) = run_in_ranks(broadcast_shards, tmp_path)
    assert first == second and own == [True, True, 1, []]


def test_a_refusal_names_the_server_and_the_reason(tmp_path):
    write_python(tmp_path)
    model = policy("qwen2", tmp_path)
    engine = pool(tmp_path, servers=1, transfer="broadcast")
    try:
        engine.sync(model, 0)
        (tmp_path / "refuse").touch()
        with pytest.raises(EngineFailure, match="cannot take the policy's weights: the test refuses it"):
            engine.sync(model, 1)
    finally:
        engine.close()
    with pytest.raises(ValueError, match=r"engine\.transfer must be files or broadcast, got 'rdma'"):
        Server(transfer="rdma")


def test_the_store_listens_where_servers_reach_it():
    assert find_own_address("unix:/run/0") == "127.0.0.1"
    assert find_own_address("http://127.0.0.1:8000") == "127.0.0.1"


# ---------------------------------------------------------------- vLLM itself

SMALL = {"cache_gib": 0.25, "max_model_len": 512, "transfer": "broadcast"}


@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.parametrize(("servers", "options"), [(2, {}), (1, {"lora": LORA})], ids=["whole", "factors"])
def test_servers_of_vllm_take_broadcasts(tmp_path, servers, options):
    model = policy("qwen2", tmp_path, **options)
    model = trained_adapters(model) if options else model
    port, logs = free_port(), str(tmp_path / "logs")
    engine = ServerEngine(servers=servers, port=port, adapters=bool(options), logs=logs, **SMALL)
    try:
        for version in range(3):
            engine.sync(moved(model, 1.1), version)
            assert agrees(engine, model, version)
        assert engine.backend.restarted == 0 and engine.measured["engine/canary_difference"] < 1e-4
    finally:
        engine.close()


@pytest.mark.vllm
@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_server_on_another_gpu_takes_broadcasts_by_nccl(tmp_path):
    model = policy("qwen2", tmp_path).to("cuda:0")
    engine = ServerEngine(devices=["1"], memory_share=0.3, max_model_len=512, transfer="broadcast")
    try:
        for version in range(3):
            engine.sync(moved(model, 1.1), version)
            assert agrees(engine, model, version)
        assert engine.backend._broadcast._group.backend == "nccl" and engine.backend.restarted == 0
    finally:
        engine.close()
