"""Router replay against a loop over tokens and experts."""

import copy

import pytest
import torch
from torch.nn import functional as F

import mmrl
from mmrl.__main__ import main
from mmrl.core.rng import derive_seed
from mmrl.core.types import Prompt, Request, Sampling
from mmrl.engines.local import LocalEngine
from mmrl.learners.learner import Learner
from mmrl.policies.text.policy import TextPolicy
from tests.policies.text.oracle import TINY, batch_of, decided
from tests.tiny_recipes import QUIET, override
from tests.tiny_recipes import TEXT as TINY_RUN

MOE = TINY | {
    "model_type": "qwen3_moe",
    "moe_intermediate_size": 24,
    "head_dim": 8,
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
}


def loop_over_experts(block, experts):
    """The block by hand: softmax over all experts, weights of the recorded ones divided by their sum."""

    def forward(hidden):
        rows = []
        for token, ids in zip(hidden.flatten(0, 1), experts.long()):
            weights = (block.gate.weight @ token).softmax(-1)[ids]
            total = 0
            for weight, i in zip(weights / weights.sum(), ids):
                gate, up = (block.experts.gate_up_proj[i] @ token).chunk(2)
                total = total + weight * (block.experts.down_proj[i] @ (F.silu(gate) * up))
            rows.append(total)
        return torch.stack(rows).view_as(hidden)

    return forward


@pytest.mark.parametrize("options", [{}, {"gradient_checkpointing": True}, {"pack_prompts": True}])
def test_scores_and_gradients_are_those_of_recorded_experts(options):
    torch.manual_seed(0)
    policy = decided(TextPolicy(config=MOE, router_replay=True, **options))
    texts = ["12+3=", "12+3=", "4*50+6="]
    prompts = [Prompt(key=f"a/b/{t}", messages=({"role": "user", "content": t},)) for t in texts]
    engine = LocalEngine()
    engine.sync(policy, 0)
    requests = [Request(p.observation, derive_seed(0, str(i)), prompt_id=p.key) for i, p in enumerate(prompts)]
    done = engine.sample(requests, Sampling(max_tokens=5))
    with torch.no_grad():
        for name, weight in policy.model.named_parameters():
            if "gate.weight" in name:
                weight.add_(torch.randn_like(weight))  # the routers would choose others now
    plain = copy.deepcopy(policy.model)
    plain.gradient_checkpointing_disable()
    batch = batch_of(policy, prompts, done)
    out = policy.train()(batch)
    out.logprobs.sum().backward()
    total = 0
    for row, completion in enumerate(done):
        ids = torch.cat([completion.observation["input_ids"], completion.action])
        for number, layer in enumerate(plain.model.layers):
            layer.mlp.forward = loop_over_experts(layer.mlp, completion.extra["routed_experts"][:, number])
        logits = plain(input_ids=ids[None, :-1], use_cache=False).logits[0, -len(completion.action) :]
        logprobs = logits.log_softmax(-1).gather(1, completion.action[:, None])[:, 0]
        torch.testing.assert_close(out.logprobs[row, : len(logprobs)], logprobs, atol=2e-5, rtol=0)
        total = total + logprobs.sum()
    total.backward()
    for (name, weight), other in zip(policy.model.named_parameters(), plain.parameters()):
        torch.testing.assert_close(weight.grad, other.grad, atol=2e-4, rtol=1e-3, msg=name)


def test_routers_are_frozen_and_a_dense_model_is_refused():
    for lora in (None, {"r": 2}):
        policy = TextPolicy(config=MOE, freeze_router=True, lora=lora)
        trained = [name for name, weight in policy.model.named_parameters() if weight.requires_grad]
        assert trained and not any("gate.weight" in name for name in trained)
    for option in ("freeze_router", "router_replay"):
        with pytest.raises(ValueError, match=f"policy.{option}=true is for mixtures of experts"):
            TextPolicy(config=TINY, **{option: True})


WORDS = [*TINY_RUN, *(word for word in QUIET if "logger" not in word), "trainer.logger.tensorboard=null",
         f"policy.config={{{', '.join(f'{name}: {value}' for name, value in MOE.items())}}}",
         "policy.router_replay=true", "data.evaluation=null", "run_dir=run"]  # fmt: skip


def test_a_run_records_and_replays(tmp_path, monkeypatch):
    """Scored with the experts of sampling, the first pass over the rows has the log-probs of sampling."""
    monkeypatch.chdir(tmp_path)
    batches = []
    monkeypatch.setattr(Learner, "training_step", note_batches(Learner.training_step, batches))
    assert main(["fit", *override(WORDS, ["trainer.max_epochs=2", "data.parity.every=1"])]) == 0
    assert all(batch["routed_experts"].lengths.min() > 0 for batch in batches) and len(batches) == 4
    differences = [row["parity/mean"] for row in mmrl.Run("run").metrics if "parity/mean" in row]
    assert len(differences) == 2 and max(differences) < 1e-5


def note_batches(step, batches):
    def training_step(self, batch, *rest):
        batches.append(batch)
        return step(self, batch, *rest)

    return training_step


@pytest.mark.parametrize("words, message", [
    (["engine=vllm_server"], "samples from a copy of the weights and reports no routed_experts; use engine=local"),
    (["strategy=sequence_parallel", "strategy.sequence_parallel=2", "trainer.devices=2"], "use one of them"),
])  # fmt: skip
def test_what_cannot_replay_is_refused_before_anything_is_built(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["fit", *override(WORDS, words)]) == 2
    assert message in capsys.readouterr().err
