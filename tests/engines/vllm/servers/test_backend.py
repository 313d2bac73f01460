"""Real vLLM servers: they agree with the policy, take every push, and come back when they die."""

import os
import signal
import threading
from pathlib import Path

import pytest
import torch

from mmrl.core.types import Sampling
from mmrl.engines.local import LocalEngine
from mmrl.engines.vllm.backend import EngineFailure
from mmrl.engines.vllm.python import find_python
from mmrl.engines.vllm.servers.backend import Server
from mmrl.engines.vllm.servers.engine import ServerEngine
from tests.engines.vllm.policies import moved, policy, requests
from tests.engines.vllm.test_server_process import group, until

pytestmark = pytest.mark.vllm

SMALL = {"cache_gib": 0.25, "max_model_len": 512}
LENGTH = 160  # tokens, so that there is a middle to be killed in


def plain(completions):
    return [(c.action.tolist(), c.output, c.ended) for c in completions]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A text policy and its server; the tests run in the order in which they stand."""
    model = policy("qwen2", tmp_path_factory.mktemp("policy"))
    logs = tmp_path_factory.mktemp("logs")
    engine = ServerEngine(**SMALL, logs=str(logs), restarts=1, timeout_seconds=60.0)
    engine.sync(model, 0)
    yield engine, model
    engine.close()


def agree(engine, model):
    local = LocalEngine()
    local.sync(model, 0)
    asked, sampling = requests(model, group_size=1), Sampling(decode="argmax", max_tokens=24)
    theirs, ours = engine.sample(asked, sampling), local.sample(asked, sampling)
    assert plain(theirs) == plain(ours)
    for one, other in zip(theirs, ours, strict=True):
        assert (one.behavior_logprobs - other.behavior_logprobs).abs().max() < 1e-4


def test_it_agrees_with_the_policy(text):
    agree(*text)


def test_a_push_arrives_exactly(text):
    engine, model = text
    moved(model, 1.1)
    engine.sync(model, 1)  # verifies every tensor and runs the canary
    agree(engine, model)
    (completion, *_) = engine.sample(requests(model), Sampling(max_tokens=4))
    assert completion.policy_version == 1


def test_seeds_decide_the_draws_and_kept_ids_come_back(text):
    engine, model = text
    sampling = Sampling(max_tokens=12, top_k=5)
    once, again = (engine.sample(requests(model), sampling) for _ in range(2))
    assert plain(once) == plain(again) and len({str(c.action.tolist()) for c in once}) > 6
    for completion in once:
        kept = completion.extra["packed_support_ids"].split(completion.extra["support_sizes"].tolist())
        assert len(kept) == len(completion.action)
        assert all(chosen in ids for chosen, ids in zip(completion.action, kept))
        assert completion.action_mask.all() and torch.isfinite(completion.behavior_logprobs).all()


def test_a_request_that_never_ends_is_given_up_and_the_server_goes_on(text):
    engine, model = text
    server = engine.backend
    server.timeout_seconds = 0.05
    try:
        cut = engine.sample(requests(model)[:1], Sampling(max_tokens=450))
    finally:
        server.timeout_seconds = 60.0
    assert [c.ended for c in cut] == ["error"] and not cut[0].action_mask.any()
    assert server.restarted == 0
    agree(engine, model)


def test_a_server_that_is_killed_comes_back_and_no_prompt_is_answered_twice(text):
    engine, model = text
    server = engine.backend
    asked, sampling = requests(model, groups=8, group_size=16), Sampling(max_tokens=LENGTH)
    undisturbed = engine.sample(asked, sampling)
    assert server.restarted == 0
    (replica,) = server._replicas
    before = replica.process.group
    killer = threading.Thread(target=kill_after_an_answer, args=(replica,))
    killer.start()
    in_flight, server.in_flight = server.in_flight, 16  # eight waves: most prompts wait when the first is answered
    try:
        disturbed = engine.sample(asked, sampling)
    finally:
        server.in_flight = in_flight
        killer.join()
    assert server.restarted == 1
    assert until(lambda: not group(before))  # engine and workers of the killed one are gone
    assert plain(disturbed) == plain(undisturbed)
    assert {c.policy_version for c in disturbed} == {1}  # the weights of the last push, not those of the start
    agree(engine, model)


def kill_after_an_answer(replica):
    """Kill the server alone as soon as one prompt is answered; its engine and worker do not end by themselves."""
    seen = replica.progress
    main = next(p for p in group(replica.process.group) if "\0serve\0" in Path(f"/proc/{p}/cmdline").read_text())
    assert until(lambda: replica.progress > seen)
    os.kill(main, signal.SIGKILL)


def test_when_no_restart_is_left_the_run_ends_with_what_to_do(text):
    engine, model = text
    server = engine.backend
    (replica,) = server._replicas
    number = replica.process.group
    os.killpg(number, signal.SIGSTOP)  # hangs: nothing answers, nothing ends
    server.timeout_seconds = server.probe_seconds = replica.client.seconds = 2.0
    with pytest.raises(EngineFailure, match=r"1 restarts of engine\.restarts are used up; resume.*ckpt_path="):
        engine.sample(requests(model), Sampling(max_tokens=4))
    os.killpg(number, signal.SIGCONT)
    engine.close()
    assert until(lambda: not group(number))


def test_a_model_that_vllm_does_not_know_is_refused(tmp_path):
    model = policy("qwen2", tmp_path)
    model.save_pretrained(tmp_path / "start")
    config = tmp_path / "start" / "config.json"
    config.write_text(config.read_text().replace("Qwen2ForCausalLM", "UnheardOf").replace('"qwen2"', '"unheard_of"'))
    with pytest.raises(EngineFailure, match=r"did not start.*engine=local.*server-0\.log"):
        Server(**SMALL, logs=str(tmp_path)).start(tmp_path / "start", 0)


def test_images_reach_a_pool(tmp_path):
    model = policy("llava", tmp_path)
    engine = ServerEngine(**SMALL, servers=2, logs=str(tmp_path))
    try:
        engine.sync(model, 0)
        moved(model, 1.1)
        engine.sync(model, 1)
        agree(engine, model)
        assert {c.policy_version for c in engine.sample(requests(model), Sampling(max_tokens=4))} == {1}
    finally:
        engine.close()


def test_a_python_with_vllm_is_found():
    assert find_python() is not None
