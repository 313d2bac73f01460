"""Strings that a policy chooses by vLLM's scores: the local engine's choices, on servers and in the process."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.config.wiring import check_wiring
from mmrl.core.errors import ConfigError
from mmrl.core.types import Request, Sampling
from mmrl.engines.local import LocalEngine
from mmrl.engines.vllm.backend import Backend
from mmrl.engines.vllm.engine import VllmEngine
from mmrl.engines.vllm.in_process.backend import InProcess
from mmrl.engines.vllm.servers.engine import ServerEngine
from mmrl.policies.text.actions.action_scorer import ActionScorer
from tests.checkpoints import TEXT
from tests.engines.vllm.model_server import write_python
from tests.engines.vllm.policies import moved
from tests.engines.vllm.test_several_processes import pool
from tests.tiny_recipes import QUIET, override, record

DECISIONS = (
    ("You see a key. ", ("go on", "go up", "jump!", "pick up the key")),
    ("Wall. ", ("left", "push", "right", "pick", "drop", "open", "toggle")),
    ("A longer observation, whose prompt needs more tokens than the others. > ", ("wait",)),
    ("You see a key. ", ("drop", "wait", "walk", "shut")),
)
"""Strings of equal lengths, which a random model chooses about equally often, and longer ones."""
SAMPLINGS = (Sampling(), Sampling(temperature=0.5), Sampling(top_k=2), Sampling(decode="argmax"))


def build(**options):
    torch.manual_seed(0)
    policy = ActionScorer(config={"model_type": "qwen2", **TEXT}, **options)
    moved(policy.language_model, 1.5)
    return policy.eval()


def requests(draws):
    """Several draws of each decision, in turn."""
    return [
        Request(
            {"messages": ({"role": "user", "content": prompt},), "images": (), "admissible_actions": actions},
            seed=10 * draw + place,
            prompt_id=place,
        )
        for draw in range(draws)
        for place, (prompt, actions) in enumerate(DECISIONS)
    ]


def check(engine, policy, version):
    """The engine draws what the local one draws, which tests of the policy hold to the untouched model."""
    local = LocalEngine()
    local.sync(policy, version)
    for sampling in SAMPLINGS:
        drawn, expected = engine.sample(requests(4), sampling), local.sample(requests(4), sampling)
        assert [done.output for done in drawn] == [done.output for done in expected]
        for theirs, ours in zip(drawn, expected, strict=True):
            assert_close(theirs.behavior_logprobs, ours.behavior_logprobs, atol=1e-4, rtol=0)
            assert theirs.action.tolist() == ours.action.tolist() and theirs.action_mask.all()
            assert (theirs.ended, theirs.policy_version) == (ours.ended, version)
            assert theirs.extra.keys() == ours.extra.keys()
            for name, column in ours.extra.items():
                assert theirs.extra[name].tolist() == column.tolist()
    outputs = {done.output for done in engine.sample(requests(12), Sampling())}
    assert len(outputs) > 8  # the seeds decide


def check_two_versions(engine, policy):
    """The draws are those of the weights of each transfer."""
    try:
        for version in range(2):
            moved(policy.language_model, 1.1)
            engine.sync(policy, version)
            check(engine, policy, version)
    finally:
        engine.close()


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_servers_score_the_strings(tmp_path, reduction):
    write_python(tmp_path)
    policy = build(reduction=reduction, end_token=reduction == "mean")
    engine = pool(tmp_path)
    check_two_versions(engine, policy)


@pytest.mark.vllm
@pytest.mark.parametrize("kind", ["process", "server"])
def test_vllm_scores_the_strings(tmp_path, kind):
    policy = build()
    engine = (
        VllmEngine(InProcess(cache_gib=0.25))
        if kind == "process"
        else ServerEngine(cache_gib=0.25, max_model_len=512, logs=str(tmp_path))
    )
    check_two_versions(engine, policy)


GLAM = ("method=glam", "setting=gridworld", "trainer.callbacks.warm_start.stages=null", "engine=vllm_server")


def test_values_are_the_learners_where_vllm_samples():
    parts = to_lightning(compose(GLAM))
    with pytest.raises(ConfigError, match=r"'gae' reads .'values'.*write them: name one in data.pipeline"):
        check_wiring(parts["model"], parts["data"], None)
    parts = to_lightning(compose((*GLAM, "data.pipeline=[values,gae]")))
    check_wiring(parts["model"], parts["data"], None)


def test_a_run_learns_by_vllms_scores(tmp_path):
    """The learner gives what was chosen the probability with which vLLM's scores chose it, in every iteration."""
    write_python(tmp_path)
    small = ("data.num_prompts=4", "data.num_minibatches=2", "data.evaluation=null", "data.pipeline=[values,gae]")
    own = (f"engine.python={tmp_path}/python", f"engine.logs={tmp_path}/servers", "trainer.max_epochs=2")
    recorder = f"trainer.callbacks.recorder={{_target_: tests.tiny_recipes.Recorder, folder: '{tmp_path}/record'}}"
    words = (*override(QUIET, GLAM), *small, *own, "data.parity.every=1", recorder, f"run_dir={tmp_path}/run")
    CLI(to_lightning(compose(words))).fit()
    metrics = record(tmp_path)["metrics"]
    assert len(metrics) == 2 and all(0 < row["parity/max"] < 1e-4 for row in metrics)
    assert metrics[1]["train/policy/kl"] > 0 and all(row["rollout/errors"] == 0 for row in metrics)


class Failing(Backend):
    """A backend that fails on the prompts that end in one string."""

    def __init__(self, backend, word, policy):
        self.backend = backend
        self.ids = tuple(policy.language_model.tokenizer(word, add_special_tokens=False)["input_ids"])

    def generate(self, prompts, drawing):
        return [
            replace(output, ended="error", error="out of memory")
            if drawing.scores_prompt and prompt.ids[-len(self.ids) :] == self.ids
            else output
            for prompt, output in zip(prompts, self.backend.generate(prompts, drawing))
        ]

    def __getattr__(self, name):
        return getattr(self.backend, name)

    start = push = report_weights = close = None


def test_a_string_that_cannot_be_scored_fails_its_decision_alone(tmp_path, caplog):
    write_python(tmp_path)
    policy, engine = build(), pool(tmp_path)
    try:
        engine.sync(policy, 0)
        engine.backend = Failing(engine.backend, "toggle", policy)
        drawn = engine.sample(requests(2), Sampling())
    finally:
        engine.backend = getattr(engine.backend, "backend", engine.backend)
        engine.close()
    assert [done.ended for done in drawn] == ["done", "error", "done", "done"] * 2
    assert [bool(done.action_mask.all()) for done in drawn] == [True, False, True, True] * 2
    assert engine.spent["engine/failed"] == 2 and caplog.text.count("out of memory") == 1  # said once
