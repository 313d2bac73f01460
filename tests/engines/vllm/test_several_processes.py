"""Several training processes use one pool of servers, which rank 0 owns; a model server stands in for vLLM."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.testing import assert_close

from mmrl.core.types import Sampling
from mmrl.engines.local import LocalEngine
from mmrl.engines.vllm.backend import EngineFailure
from mmrl.engines.vllm.ranks import broadcast, raise_together
from mmrl.engines.vllm.servers.engine import ServerEngine
from mmrl.engines.vllm.servers.launch import Launch
from tests.engines.vllm.model_server import write_python
from tests.engines.vllm.policies import moved, policy, requests
from tests.engines.vllm.test_server_process import group as processes_of
from tests.engines.vllm.test_server_process import until
from tests.runs.processes import run_ranks, start
from tests.tiny_recipes import command, free_port, record, words

DDP = "trainer.strategy={_target_: lightning.pytorch.strategies.DDPStrategy, process_group_backend: gloo}"
Scenario = Callable[[int, Path], Any]


def run_in_ranks(scenario: Scenario, folder: Path, ranks: int = 2, seconds: float = 120) -> list[Any]:
    """What a function of rank and folder returns in each process of a group; of an EngineFailure its text."""
    port = free_port()
    started = [start(join, scenario, folder, rank, ranks, port) for rank in range(ranks)]
    for process in started:
        process.join(seconds)
        process.kill()
    logs = "".join((folder / f"rank{rank}.log").read_text()[-5000:] for rank in range(ranks))
    assert all((folder / f"rank{rank}.json").exists() for rank in range(ranks)), logs
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(ranks)]


def join(scenario: Scenario, folder: Path, rank: int, ranks: int, port: int) -> None:
    output = os.open(folder / f"rank{rank}.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    dist.barrier()  # a process that ends while the other one still connects would reset its connection
    try:
        result = scenario(rank, folder)
    except EngineFailure as failure:
        result = str(failure)
    (folder / f"rank{rank}.json").write_text(json.dumps(result))


def pool(folder: Path, **options: Any) -> ServerEngine:
    logs = str(folder / "logs")
    return ServerEngine(python=str(folder / "python"), logs=logs, **{"servers": 2, "timeout_seconds": 20.0} | options)


def plain(completions: list[Any]) -> list[Any]:
    return [(c.action.tolist(), c.output, c.ended, c.policy_version) for c in completions]


# ---------------------------------------------------------------- a run


def test_two_processes_with_a_pool_make_the_run_of_one_though_a_server_dies(tmp_path):
    """Same minibatches and weights, from the draws of the same seeds; each server answers prompts of both ranks."""
    for name in ("alone", "both"):
        (tmp_path / name).mkdir()
        write_python(tmp_path / name)

    def chosen(name: str) -> tuple[str, ...]:
        own = (f"engine.python={tmp_path}/{name}/python", f"engine.logs={tmp_path}/{name}/servers")
        return ("engine=vllm_server", *own, "trainer.max_epochs=2")

    alone = command(tmp_path / "alone", *chosen("alone"))
    (tmp_path / "both" / "die-1").write_text("20")  # after the first iteration, of which it has about twelve prompts
    both = words(tmp_path / "both", *chosen("both"), "engine.servers=2", "trainer.devices=2", DDP)
    run_ranks(["fit", *both], tmp_path)
    first, second = record(tmp_path / "both", 0), record(tmp_path / "both", 1)

    assert not (tmp_path / "both" / "die-1").exists()
    assert "is started again (1 of 3)" in (tmp_path / "rank0.log").read_text()
    for whole, mine, theirs in zip(*(part["minibatches"] for part in (alone, first, second)), strict=True):
        assert sorted(whole) == sorted(mine + theirs) and mine and theirs
    assert_close(first["weights"], second["weights"], atol=0, rtol=0)
    assert_close(first["weights"], alone["weights"], atol=2e-6, rtol=0)
    for part in (first, second):
        iterations = [metrics for metrics in part["metrics"] if "engine/tokens" in metrics]
        assert len(iterations) == 2 and all(m["engine/canary_difference"] < 1e-4 for m in iterations)
        assert all(m["rollout/errors"] == 0 for m in iterations)
    assert all(len((tmp_path / "both" / f"asked-{i}").read_text().split()) >= 12 for i in range(2))


# ---------------------------------------------------------------- restarts


def lose_server_of_other_rank(rank: int, folder: Path) -> Any:
    """Rank 1 samples while rank 0 waits for it in a collective, and a server dies."""
    model = policy("qwen2", folder)
    engine = pool(folder, in_flight=4, timeout_seconds=8.0)
    engine.backend.probe_seconds = 8.0
    try:
        engine.sync(model, 0)
        moved(model, 1.1)
        engine.sync(model, 1)
        if rank == 1:
            asked, sampling = requests(model), Sampling(max_tokens=6)
            undisturbed = plain(engine.sample(asked, sampling))
            (folder / "die-1").write_text("0")
            disturbed = plain(engine.sample(asked, sampling))
            (folder / "hang-0").touch()
            hanging = plain(engine.sample(asked, sampling))
        dist.barrier()
        moved(model, 1.1)
        engine.sync(model, 2)  # the restarted servers take the next weights
        if rank == 0:
            return engine.backend.restarted
        return [undisturbed, disturbed, hanging, [replica.starts for replica in engine.backend._replicas]]
    finally:
        engine.close()


def test_rank_0_restarts_a_server_for_another_rank(tmp_path):
    write_python(tmp_path)
    restarted, (undisturbed, disturbed, hanging, starts) = run_in_ranks(lose_server_of_other_rank, tmp_path)
    assert restarted == 2 and starts == [2, 2]
    assert disturbed == undisturbed and hanging == undisturbed
    assert {version for *_, version in disturbed + hanging} == {1} and len(disturbed) == 12


def lose_server_without_restarts(rank: int, folder: Path) -> Any:
    model, begun = policy("qwen2", folder), None
    engine = pool(folder, restarts=0)
    try:
        engine.sync(model, 0)
        (folder / "die-1").write_text("0")
        begun = time.monotonic()
        with raise_together():
            if rank == 1:
                engine.sample(requests(model), Sampling(max_tokens=6))
        return "no failure"
    except EngineFailure as failure:
        return [str(failure), time.monotonic() - begun]
    finally:
        engine.close()


def test_a_rank_ends_with_the_reason_when_no_restart_is_left(tmp_path):
    write_python(tmp_path)
    (text, seconds), (other, _) = run_in_ranks(lose_server_without_restarts, tmp_path)
    assert "0 restarts of engine.restarts are used up; resume" in text and text == other
    assert seconds < 15


# ---------------------------------------------------------------- failures of one rank


def refuse_push(rank: int, folder: Path) -> Any:
    model = policy("qwen2", folder)
    engine = pool(folder, servers=1)
    begun = time.monotonic()
    try:
        engine.sync(model, 0)
        (folder / "refuse").touch()
        begun = time.monotonic()
        engine.sync(model, 1)
        return "no failure"
    except EngineFailure as failure:
        return [str(failure), time.monotonic() - begun]
    finally:
        engine.close()


def test_a_push_that_fails_ends_every_rank_with_the_same_words(tmp_path):
    write_python(tmp_path)
    (text, seconds), (other, others) = run_in_ranks(refuse_push, tmp_path)
    assert text == other and "cannot take the policy's weights: the test refuses it" in text
    assert max(seconds, others) < 20


def fail_alone(rank: int, folder: Path) -> Any:
    texts = []
    for failing in (0, 1):
        try:
            with raise_together():
                if rank == failing:
                    raise ValueError(f"of rank {rank}")
        except ValueError as error:
            texts.append(f"own: {error}")
        except EngineFailure as error:
            texts.append(f"other: {error}")
    with raise_together():
        return texts


def test_an_exception_of_one_rank_is_raised_on_all(tmp_path):
    assert run_in_ranks(fail_alone, tmp_path) == [
        ["own: of rank 0", "other: of rank 1"],
        ["other: of rank 0", "own: of rank 1"],
    ]


def test_one_process_raises_its_own():
    with pytest.raises(ValueError, match="mine"), raise_together():
        raise ValueError("mine")


# ---------------------------------------------------------------- several nodes, devices


def start_on_two_nodes(rank: int, folder: Path) -> Any:
    os.environ |= {"LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    model = policy("qwen2", folder)
    port = int((folder / "port").read_text())
    found = []
    for options in ({}, {"port": port}):
        engine = pool(folder, servers=1, **options)
        try:
            engine.sync(model, 0)
            (folder / f"die-{port}").write_text("0")
            if rank == 1:
                found.append(plain(engine.sample(requests(model)[:2], Sampling(max_tokens=2))))
            dist.barrier()
        except EngineFailure as failure:
            found.append(str(failure))
        finally:
            engine.close()
    return found


def test_servers_of_several_nodes_need_a_port(tmp_path):
    write_python(tmp_path)
    (tmp_path / "port").write_text(str(free_port()))
    (refused,), (other, sampled) = run_in_ranks(start_on_two_nodes, tmp_path)
    assert refused == other and "engine.port=8000" in refused and "engine.folder on storage" in refused
    assert len(sampled) == 2 and {version for *_, version in sampled} == {0}


def test_servers_on_gpus_need_devices_beside_several_processes(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    fields = {"python": None, "servers": 2, "port": None, "start_seconds": 1.0, "timeout_seconds": 1.0, "logs": None}
    without, named = (Launch(devices=d, engine={}, options={}, **fields) for d in (None, ["6", "7"]))
    with pytest.raises(EngineFailure, match=r"engine\.devices=\[\.\.\.\] must name the GPUs of the servers"):
        without._check_devices(4)
    without._check_devices(1)
    named._check_devices(4)


def kill_after_an_answer(replica: Any, group: int) -> None:
    """Kill the server of a process group as soon as it has answered a prompt of this process."""
    seen = replica.progress
    main = next(p for p in processes_of(group) if "\0serve\0" in Path(f"/proc/{p}/cmdline").read_text())
    assert until(lambda: replica.progress > seen)
    os.kill(main, signal.SIGKILL)


# ---------------------------------------------------------------- vLLM itself

TORCHRUN = {"LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "RANK": "0", "GROUP_RANK": "0"}
TORCHRUN |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0", "MASTER_ADDR": "127.0.0.1"}


def use_vllm(rank: int, folder: Path) -> Any:
    """Both ranks sample from two servers; then one is killed in the middle of rank 1's call, while rank 0 waits."""
    os.environ |= TORCHRUN | {"RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_PORT": str(free_port())}
    model = policy("qwen2", folder)
    engine = ServerEngine(servers=2, cache_gib=0.25, max_model_len=512, logs=str(folder / "logs"), restarts=1)
    try:
        engine.sync(model, 0)
        moved(model, 1.1)
        engine.sync(model, 1)
        local, greedy = LocalEngine(), Sampling(decode="argmax", max_tokens=24)
        local.sync(model, 1)
        mine = requests(model, group_size=2)[rank::2]
        agree = plain(engine.sample(mine, greedy)) == plain(local.sample(mine, greedy))
        result: list[Any] = [agree, engine.measured["engine/canary_difference"]]
        group = broadcast(None if rank else engine.backend._replicas[1].process.group)
        if rank == 1:
            asked, sampling = requests(model, groups=4, group_size=16), Sampling(max_tokens=160)
            undisturbed = plain(engine.sample(asked, sampling))
            killer = threading.Thread(target=kill_after_an_answer, args=(engine.backend._replicas[1], group))
            killer.start()
            result.append(plain(engine.sample(asked, sampling)) == undisturbed)
            killer.join()
        dist.barrier()
        engine.sync(model, 2)
        return [*result, engine.backend.restarted]
    finally:
        engine.close()


@pytest.mark.vllm
def test_two_processes_use_two_servers_of_vllm(tmp_path):
    first, second = run_in_ranks(use_vllm, tmp_path, seconds=500)
    assert first[0] and second[0] and max(first[1], second[1]) < 1e-4
    assert second[2] and first[-1] == 1
