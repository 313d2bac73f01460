"""Requests that name a frozen model: who answers, how the rows are marked, which names are refused."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.errors import ConfigError
from mmrl.core.types import Episode, Request, Sampling, Turn
from mmrl.data.collate import collate
from mmrl.data.parity import sampled_rows
from mmrl.engines.base import list_models
from mmrl.engines.local import LocalEngine
from mmrl.engines.vllm.engine import VllmEngine
from mmrl.engines.vllm.in_process.backend import InProcess
from mmrl.engines.vllm.servers.engine import ServerEngine
from mmrl.methods.guidance.rlgf import GuidedRollout
from mmrl.objectives.weighting import SequenceMean, TokenMean
from mmrl.policies.text.policy import TextPolicy
from mmrl.rollouts.text.hints import HintedPrompts
from tasks.arithmetic import Arithmetic
from tests.engines.vllm.model_server import write_python
from tests.engines.vllm.policies import policy as small_policy
from tests.engines.vllm.policies import requests as small_requests
from tests.learners.test_resume import same
from tests.learners.test_several_processes import EVERY, RUNS, STRATEGIES, check_run
from tests.policies.text.oracle import TINY, decided
from tests.runs.processes import run_ranks
from tests.tiny_recipes import fit, record, words

TASK = Arithmetic()
SAMPLING = Sampling(max_tokens=5)
GUIDED = (
    "data.rollout={_target_: mmrl.methods.guidance.rlgf.GuidedRollout, mixing: 1.0}",
    "model.scheduler.total_iters=20",
    "+model.frozen_models={guide: {_target_: mmrl.policies.text.policy.TextPolicy, config: '${model.policy.config}'}}",
)


@pytest.fixture(scope="module")
def policies():
    torch.manual_seed(0)
    return decided(TextPolicy(config=TINY)).eval(), decided(TextPolicy(config=TINY)).eval()


def loaded(policy, **models):
    engine = LocalEngine()
    engine.load_models(models)
    engine.sync(policy, 4)
    return engine


def asked(*models, count=6):
    """Requests of `count` problems, each to one of the models in turn."""
    raws = [TASK[i // 2].observation for i in range(count)]
    return [Request(raw, 100 + i, prompt_id=i // 2, model=models[i % len(models)]) for i, raw in enumerate(raws)]


def columns(done):
    return [(c.action.tolist(), c.output, c.ended) for c in done], [c.behavior_logprobs for c in done]


def equal(done, others):
    """Same tokens and ends; log-probs differ at most by the order of summation in batches of other sizes."""
    (ours, logprobs), (theirs, expected) = columns(done), columns(others)
    assert ours == theirs
    assert_close(logprobs, expected, atol=1e-5, rtol=0)


def test_a_copy_of_the_policy_answers_as_the_policy(policies):
    policy, _ = policies
    engine = loaded(policy, twin=deepcopy(policy))
    equal(engine.sample(asked("twin"), SAMPLING), engine.sample(asked(None), SAMPLING))


def test_each_request_is_answered_by_its_model_in_order(policies):
    policy, other = policies
    engine = loaded(policy, other=other, twin=policy)
    mixed = engine.sample(asked(None, "other", "twin"), SAMPLING)
    of_policy, of_other = loaded(policy).sample(asked(None), SAMPLING), loaded(other).sample(asked(None), SAMPLING)
    equal(mixed, [of_other[i] if i % 3 == 1 else of_policy[i] for i in range(6)])
    assert [done.model for done in mixed] == [None, "other", "twin"] * 2
    assert any(a.output != b.output for a, b in zip(of_policy, of_other))


def test_completions_of_a_frozen_model_are_no_choices_of_the_policy(policies):
    """They carry no version, so that neither staleness nor parity looks at them, and no weight in the loss."""
    policy, other = policies
    done = loaded(policy, other=other).sample(asked(None, "other"), SAMPLING)
    assert [c.policy_version for c in done] == [4, -1] * 3
    assert [bool(c.action_mask.any()) for c in done] == [True, False] * 3
    assert {c.prompt_id for c in done} == {0, 1, 2, ("other", 0), ("other", 1), ("other", 2)}
    batch = collate([Episode(TASK[i], i, 0, [Turn(c)]) for i, c in enumerate(done)], policy)
    assert sampled_rows(batch).tolist() == [True, False] * 3
    for weighting in (TokenMean(), SequenceMean()):
        assert (weighting(batch, lambda total: total)[1::2] == 0).all()
    assert Episode(TASK[0], 0, 0, [Turn(c) for c in done]).tokens == sum(len(c.action) for c in done[::2])


def test_a_frozen_model_is_loaded_once(policies):
    policy, other = policies
    engine = loaded(policy, other=other)
    before = engine.sample(asked("other"), SAMPLING)
    engine.load_models({"other": policy})
    engine.sync(other, 5)
    equal(engine.sample(asked("other"), SAMPLING), before)
    assert engine.sample(asked(None), SAMPLING)[0].policy_version == 5
    engine.close()
    with pytest.raises(ConfigError, match="the engine has \\[\\]"):
        engine.sample(asked("other"), SAMPLING)


def test_metrics_count_by_model(policies):
    engine = loaded(policies[0], other=policies[1])
    done = engine.sample(asked(None, "other"), SAMPLING)
    metrics = engine.report()
    assert metrics["engine/other/completions"] == 3
    assert metrics["engine/other/tokens"] == sum(len(c.action) for c in done[1::2])
    assert {name.split("/")[0] for name in metrics} <= {"engine", "time"} and not engine.report()


def test_a_name_without_a_loaded_model_is_refused(policies):
    with pytest.raises(ConfigError, match=r"names the model 'judge', and the engine has \['other'\]; name it under"):
        loaded(policies[0], other=policies[1]).sample(asked(None, "judge"), SAMPLING)


def test_rollouts_inside_others_are_asked_too():
    assert list_models([HintedPrompts(GuidedRollout(guide="a")), GuidedRollout(guide="b"), None]) == {"a", "b"}


def test_a_name_without_a_model_is_refused_before_anything_is_built():
    with pytest.raises(ConfigError, match=r"samples from \['guide'\]: name it under model\.frozen_models, as in \+mo"):
        CLI(to_lightning(compose(["recipe=rlgf", "model.frozen_models.guide=null"])), build=False)


def test_evaluation_may_not_name_an_unknown_model(tmp_path):
    rollout = "data.evaluation.rollout={_target_: mmrl.methods.guidance.rlgf.GuidedRollout, guide: judge}"
    with pytest.raises(ConfigError, match=r"samples from \['judge'\], and model\.frozen_models has \['guide'\]"):
        fit(tmp_path, *GUIDED, rollout, "trainer.max_epochs=1")


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path):
    through = fit(tmp_path / "through", *GUIDED, "trainer.max_epochs=2")
    assert all(m["engine/guide/tokens"] > 0 for m in through["metrics"] if "rollout/reward" in m)
    fit(tmp_path / "first", *GUIDED, "trainer.max_epochs=1")
    last = tmp_path / "first" / "checkpoints" / "last.ckpt"
    same(through, fit(tmp_path / "resumed", *GUIDED, "trainer.max_epochs=2", f"ckpt_path='{last}'"))


def test_in_asynchronous_collection_versions_are_those_of_the_policy(tmp_path):
    left = fit(tmp_path, *GUIDED, "data=async", "data.staleness=1", "trainer.max_epochs=3")
    ages = [metrics["rollout/staleness"] for metrics in left["metrics"] if "rollout/staleness" in metrics]
    assert ages == [0.0, 1.0, 1.0]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_two_processes_are_one_run(strategy, tmp_path, monkeypatch):
    """Also where the weights of the frozen model are sharded: they are gathered while the engine samples."""
    alone = fit(tmp_path / "alone", *GUIDED, *EVERY)
    run_ranks(["fit", *words(tmp_path, *GUIDED, *EVERY, "trainer.devices=2", *STRATEGIES[strategy])], tmp_path)
    monkeypatch.setitem(RUNS, "guided", GUIDED)
    ranks = [record(tmp_path, rank) for rank in range(2)]
    for metrics in (metrics for left in (alone, *ranks) for metrics in left["metrics"]):
        for name in [name for name in metrics if name.startswith("engine/")]:
            del metrics[name]  # counts of this process
    check_run("guided", alone, ranks)


# ---------------------------------------------------------------- vLLM


def test_vllm_in_the_process_refuses_models():
    with pytest.raises(ConfigError, match=r"asks for the model 'guide'; use engine=local, or engine=vllm_server with"):
        VllmEngine(InProcess()).check_models(["guide"])


def test_servers_of_a_model_must_be_given_and_used():
    with pytest.raises(ConfigError, match=r"'guide', and data\.engine\.models has \[\].*as in engine\.models\.guide"):
        ServerEngine().check_models(["guide"])
    with pytest.raises(ConfigError, match=r"data\.engine\.models names servers of \['guide'\], which no rollout"):
        ServerEngine(models={"guide": {"servers": 1}}).check_models([])


@pytest.mark.slow
def test_a_model_has_servers_of_its_own(tmp_path):
    """Which get its weights, are verified by them, and sample as the local engine does; both pools end with the run."""
    for name in ("policy", "guide"):
        (tmp_path / name).mkdir()
        write_python(tmp_path / name)
    model = small_policy("qwen2", tmp_path)
    guide = deepcopy(model)
    with torch.no_grad():
        guide.model.get_input_embeddings().weight.mul_(-1)
    own = {"guide": {"python": str(tmp_path / "guide" / "python"), "timeout_seconds": 20.0}}
    engine = ServerEngine(python=str(tmp_path / "policy" / "python"), logs=str(tmp_path / "logs"), models=own)
    try:
        engine.load_models({"guide": guide})
        engine.sync(model, 3)
        plain = small_requests(model, groups=1)
        mixed = [*plain, *(replace(request, model="guide") for request in plain[:3])]
        done, greedy = (
            engine.sample(mixed, Sampling(max_tokens=6, decode="argmax")),
            Sampling(max_tokens=6, decode="argmax"),
        )
        for found, weights in ((done[:4], model), (done[4:], guide)):
            local = LocalEngine()
            local.sync(weights, 0)
            expected = local.sample(plain, greedy)[: len(found)]
            assert [c.action.tolist() for c in found] == [c.action.tolist() for c in expected]
        assert done[0].action.tolist() != done[4].action.tolist()
        assert [c.policy_version for c in done] == [3] * 4 + [-1] * 3
        metrics = engine.report()
        assert metrics["engine/guide/canary_difference"] < 1e-4
        assert metrics["engine/tokens"] == sum(len(c.action) for c in done[:4])
        assert metrics["engine/guide/tokens"] == sum(len(c.action) for c in done[4:]) < metrics["engine/tokens"]
        assert sorted(path.name for path in (tmp_path / "logs").rglob("*.log"))
    finally:
        engine.close()
