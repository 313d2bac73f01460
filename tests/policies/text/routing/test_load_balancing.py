"""The load-balancing loss against transformers' own, on whole rows with padding on the right."""

import copy

import pytest
import torch
from torch.testing import assert_close

from mmrl.__main__ import main
from mmrl.core.rng import derive_seed
from mmrl.core.types import Prompt, Request, Sampling
from mmrl.engines.local import LocalEngine
from mmrl.objectives.objective import Objective
from mmrl.objectives.regularizer import LoadBalancing
from mmrl.objectives.weighting import ConstantLength, SequenceMean, TokenMean
from mmrl.policies.text import loading
from mmrl.policies.text.policy import TextPolicy
from tests.policies.text.oracle import TINY, batch_of, decided
from tests.policies.text.routing.test_router_replay import MOE
from tests.tiny_recipes import QUIET, override
from tests.tiny_recipes import TEXT as TINY_RUN

COMMON = {"hidden_size": 32, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 2, "max_position_embeddings": 512}  # fmt: skip
KINDS = {
    "qwen3_moe": MOE,
    "mixtral": COMMON | {"model_type": "mixtral", "num_local_experts": 6, "num_experts_per_tok": 2},
    # scores by a sigmoid, and a bias that corrects the choice
    "minimax_m2": COMMON | {"model_type": "minimax_m2", "num_local_experts": 6, "num_experts_per_tok": 2,
                            "head_dim": 8},
    # a softmax over the chosen experts alone, and a router with a bias
    "gpt_oss": COMMON | {"model_type": "gpt_oss", "num_local_experts": 6, "num_experts_per_tok": 2, "head_dim": 8},
    # a softmax without a norm, of some layers
    "jamba": COMMON | {"model_type": "jamba", "num_experts": 4, "num_experts_per_tok": 2, "attn_layer_period": 2,
                       "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1,
                       "mamba_d_state": 4, "mamba_expand": 1, "mamba_dt_rank": 4, "use_mamba_kernels": False},
}  # fmt: skip
TEXTS = ["12+3=", "12+3=", "12+3=", "4*50+6-7*8="]


def sample(policy, texts=TEXTS, tokens=6):
    """Rows of two prompts of different lengths, three of which share one."""
    prompts = [Prompt(key=f"a/b/{t}", messages=({"role": "user", "content": t},)) for t in texts]
    engine = LocalEngine()
    engine.sync(policy, 0)
    requests = [Request(p.observation, derive_seed(0, str(i)), prompt_id=p.key) for i, p in enumerate(prompts)]
    done = engine.sample(requests, Sampling(max_tokens=tokens))
    return done, batch_of(policy, prompts, done)


def transformers_loss(model, done, top_k):
    """The loss of a model of transformers on whole rows, without the last choices, which no network reads."""
    rows = [torch.cat([each.observation["input_ids"], each.action[:-1]]) for each in done]
    ids = torch.nn.utils.rnn.pad_sequence(rows, True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], True)
    return model(input_ids=ids, attention_mask=mask, use_cache=False, output_router_logits=True).aux_loss


def compare(policy, done, batch, weighting, atol=1e-6):
    """Loss and gradients of all weights are those of transformers times the sum of the weights."""
    plain = copy.deepcopy(policy.model)
    plain.gradient_checkpointing_disable()
    batch = batch.with_columns(loss_weights=weighting(batch, lambda number: number))
    loss, metrics = Objective({"balance": LoadBalancing()}, {"balance": 0.3})(policy.train()(batch), batch)
    loss.backward()
    expected = transformers_loss(plain.train(), done, 2)
    total = float(batch["loss_weights"].sum())
    assert_close(loss.detach(), 0.3 * total * expected.detach(), atol=atol, rtol=1e-5)
    assert_close(metrics["balance/loss"] / total, expected.detach(), atol=atol, rtol=1e-5)
    (0.3 * total * expected).backward()
    size = 0.0
    for (name, weight), other in zip(policy.model.named_parameters(), plain.parameters()):
        if other.grad is not None and weight.requires_grad:
            assert_close(weight.grad, other.grad, atol=1e-5, rtol=1e-3, msg=name)
            size = max(size, float(weight.grad.abs().max()))
    assert size > 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_loss_and_gradient_are_those_of_transformers(kind):
    torch.manual_seed(0)
    policy = decided(TextPolicy(config=dict(KINDS[kind]), output_router_logits=True), 3.0)
    compare(policy, *sample(policy), TokenMean())


@pytest.mark.parametrize("options", [
    {"gradient_checkpointing": True},
    {"pack_prompts": True},
    {"lora": {"r": 2, "init_lora_weights": False}},
    {"router_replay": True, "gradient_checkpointing": True},
])  # fmt: skip
@pytest.mark.parametrize("weighting", [SequenceMean(), ConstantLength(4)], ids=["sequence", "constant"])
def test_it_is_the_same_under_options_and_weightings(options, weighting):
    torch.manual_seed(0)
    policy = decided(TextPolicy(config=MOE, output_router_logits=True, **options), 3.0)
    compare(policy, *sample(policy), weighting)


def test_loads_are_those_of_a_loop_over_tokens_in_any_packing():
    """A shared prompt counts in every row that has it: once a row, as in a batch of whole rows."""
    torch.manual_seed(0)
    policy = decided(TextPolicy(config=MOE, output_router_logits=True, pack_prompts=True), 3.0)
    done, batch = sample(policy)
    tokens = policy.extract_tokens(batch)
    rows = []
    for each in done:
        ids = torch.cat([each.observation["input_ids"], each.action[:-1]])[None]
        logits = policy.model(input_ids=ids, use_cache=False, output_router_logits=True).router_logits
        probs, counts = torch.zeros(6), torch.zeros(6)
        for layer in logits:
            for token in layer.softmax(-1):
                probs += token.detach() / len(logits)
                for expert in token.argsort(descending=True)[:2]:
                    counts[expert] += 1 / len(logits)
        rows.append((probs, counts, torch.tensor(float(ids.shape[1]))))
    # all in one sequence, by prompt, and alone; the last row in front
    for packing in ([[[3, 0, 1, 2]]], [[[0, 1, 2], [3]]], [[[3]], [[2], [1]], [[0]]]):
        out = policy.score_packed(tokens, packing, batch)
        names = ("router_probs", "expert_counts", "routed_lengths")
        for name, expected in zip(names, map(torch.stack, zip(*rows))):
            assert_close(out.extra[name].detach(), expected, atol=2e-5, rtol=1e-5, msg=f"{name} {packing}")


def test_replay_counts_what_routers_would_choose_now():
    """As transformers, from the logits: those of a first layer do not depend on experts."""
    torch.manual_seed(0)
    config = MOE | {"num_hidden_layers": 1}
    policy = decided(TextPolicy(config=config, output_router_logits=True, router_replay=True), 3.0)
    done, batch = sample(policy)
    before = transformers_loss(policy.model, done, 2)
    with torch.no_grad():
        policy.model.model.layers[0].mlp.gate.weight.normal_()
    compare(policy, done, batch, TokenMean())
    assert abs(float(before - transformers_loss(policy.model, done, 2))) > 1e-3


def test_rows_without_weight_do_not_count():
    torch.manual_seed(0)
    policy = decided(TextPolicy(config=MOE, output_router_logits=True), 3.0)
    done, batch = sample(policy)
    weights = TokenMean()(batch, lambda number: number)
    weights[1] = 0
    batch = batch.with_columns(loss_weights=weights)
    loss, _ = Objective({"balance": LoadBalancing()})(policy(batch), batch)
    expected = transformers_loss(policy.model, [done[i] for i in (0, 2, 3)], 2)
    assert_close(loss, expected * weights.sum(), atol=1e-6, rtol=1e-5)


def test_the_loss_alone_spreads_the_tokens():
    torch.manual_seed(0)
    policy = decided(TextPolicy(config=MOE, output_router_logits=True), 3.0)
    with torch.no_grad():
        for layer in policy.model.model.layers:
            layer.mlp.gate.weight.mul_(4)
    _, batch = sample(policy)
    batch = batch.with_columns(loss_weights=TokenMean()(batch, lambda number: number))
    objective = Objective({"balance": LoadBalancing()})
    gates = [layer.mlp.gate.weight for layer in policy.model.model.layers]
    optimizer, losses = torch.optim.Adam(gates, lr=0.05), []
    for _ in range(40):
        loss, metrics = objective(policy(batch), batch)
        losses.append((float(loss.detach()), float(metrics["balance/largest"])))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[0][0] > 2.15 and losses[-1][0] < 2.05 and losses[-1][1] < losses[0][1]


def test_models_without_the_loss_are_refused_by_name():
    for kind in ("deepseek_v3", "glm4_moe"):
        options = {"config": COMMON | {"model_type": kind}, "output_router_logits": True}
        with pytest.raises(ValueError, match=f"transformers computes no load-balancing loss for {kind}"):
            TextPolicy.refuse_settings(options)
    with pytest.raises(ValueError, match=r"policy\.output_router_logits=true is for mixtures of experts"):
        TextPolicy(config=TINY, output_router_logits=True)


TERM = "objective.terms.load_balancing={_target_: mmrl.objectives.regularizer.LoadBalancing}"
WORDS = [*TINY_RUN, *(word for word in QUIET if "logger" not in word), "trainer.logger.tensorboard=null", TERM,
         "objective.coefficients.load_balancing=0.01", "data.evaluation=null", "run_dir=run"]  # fmt: skip


@pytest.mark.parametrize("words, message", [
    ([], "model.policy.output_router_logits=true for the loads of experts"),
    (["policy.output_router_logits=true"], "policy.output_router_logits=true is for mixtures of experts"),
])  # fmt: skip
def test_a_policy_without_experts_is_refused_before_anything_is_built(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(loading, "build_parts", lambda *_: pytest.fail("a policy was built"))
    assert main(["fit", *override(WORDS, words)]) == 2
    assert message in capsys.readouterr().err
