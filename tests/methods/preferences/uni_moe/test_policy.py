"""The policy: sampling and learning route alike, saved weights come back, and loads are those of a loop."""

from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModelForCausalLM

from mmrl.methods.preferences.uni_moe.layer import TopPRouter
from mmrl.methods.preferences.uni_moe.model import UniMoeForCausalLM
from mmrl.methods.preferences.uni_moe.policy import TopPRouting, UniMoePolicy
from mmrl.objectives.objective import Objective
from mmrl.objectives.regularizer import LoadBalancing
from mmrl.objectives.weighting import TokenMean
from tests.policies.text.oracle import TINY, decided
from tests.policies.text.routing.test_load_balancing import TEXTS, sample

CONFIG = TINY | {"model_type": "uni_moe", "num_experts": 3, "num_null_experts": 2, "num_shared_experts": 1,
                 "moe_intermediate_size": 24, "shared_intermediate_size": 8}  # fmt: skip


def build(**options):
    torch.manual_seed(0)
    return decided(UniMoePolicy(config=dict(CONFIG), **options), 4.0)


def route(policy, done):
    """Logits of the routed and null experts of each layer, for the tokens that the network reads of a completion."""
    routers = [module for module in policy.model.modules() if isinstance(module, TopPRouter)]
    logits = [[] for _ in routers]
    hooks = [
        router.register_forward_hook(lambda module, inputs, outputs, kept=kept: kept.append(outputs[0].detach()))
        for router, kept in zip(routers, logits)
    ]
    ids = torch.cat([done.observation["input_ids"], done.action[:-1]])[None]
    policy.model(input_ids=ids, use_cache=False)
    for hook in hooks:
        hook.remove()
    return [each[0] for each in logits]


def count(probs, top_p=0.7):
    """Numbers of the experts of a token."""
    selected, total = [], 0.0
    for expert in probs.argsort(descending=True).tolist():
        selected.append(expert)
        total += float(probs[expert])
        if total >= top_p:
            return selected
    raise AssertionError(probs)


EXPERT_ADAPTERS = {"r": 2, "target_parameters": "experts", "init_lora_weights": False}


@pytest.mark.parametrize(
    "options", [{}, {"pack_prompts": True}, {"gradient_checkpointing": True}, {"lora": EXPERT_ADAPTERS}]
)
def test_stored_logprobs_are_those_of_the_learner(options):
    """Same weights, same routing: the importance ratio of every sampled token is one."""
    policy = build(**options)
    texts = [*TEXTS, *(f"{a}+{a * 7}=" for a in range(12))]
    done, batch = sample(policy, texts, 12)
    out = policy.train()(batch)
    mask = batch["action_mask"]
    assert mask.sum() > 100
    # rounding alone: a token with other experts differs by hundredths of a nat
    assert_close(out.logprobs[mask], batch["behavior_logprobs"][mask], atol=5e-4, rtol=0)
    numbers = {len(count(each.softmax(-1))) for one in done[:6] for layer in route(policy, one) for each in layer}
    assert len(numbers) > 1  # tokens have different numbers of experts


def test_loads_are_those_of_a_loop_over_tokens():
    """f_e: the share of tokens with the expert; P_e: its mean weight among the experts of a token."""
    policy = build(output_router_logits=True)
    done, batch = sample(policy)
    out = policy(batch)
    for row, one in enumerate(done):
        layers = route(policy, one)
        weights, counts = torch.zeros(5), torch.zeros(5)
        for logits in layers:
            for token in logits:
                selected = count(token.softmax(-1))
                weights[selected] += token[selected].softmax(-1) / len(layers)
                counts[selected] += 1 / len(layers)
        assert_close(out.extra["router_probs"][row].detach(), weights, atol=2e-5, rtol=1e-5)
        assert_close(out.extra["expert_counts"][row], counts)
        assert out.extra["routed_lengths"][row] == len(layers[0])


def test_a_pass_that_was_not_routed_or_not_packed_has_no_loads():
    part, nothing = object.__new__(TopPRouting), SimpleNamespace(row_parts=None)
    assert part.sum_loads(None, SimpleNamespace(row_parts=object())) == part.sum_loads(object(), nothing) == []


def test_the_loss_alone_spreads_the_tokens():
    policy = build(output_router_logits=True)
    with torch.no_grad():
        for layer in policy.model.model.layers:
            layer.mlp.gate.weight[0] += 3 * layer.mlp.gate.weight[1:].abs().mean()
    _, batch = sample(policy)
    batch = batch.with_columns(loss_weights=TokenMean()(batch, lambda number: number))
    objective = Objective({"balance": LoadBalancing()})
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    losses = []
    for _ in range(15):
        loss, _ = objective(policy(batch), batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.9 * losses[0]


def test_a_saved_policy_comes_back_and_transformers_loads_it(tmp_path):
    policy = build()
    policy.save_pretrained(tmp_path)
    again = UniMoePolicy(path=str(tmp_path))
    plain = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert type(plain) is UniMoeForCausalLM and plain.config.routing_top_p == 0.7
    ids = torch.arange(10, 20)[None]
    logits = policy.model(input_ids=ids).logits
    for model in (again.model, plain):
        assert torch.equal(model(input_ids=ids).logits, logits)
    assert plain.lm_head.weight is plain.model.embed_tokens.weight


def test_another_architecture_and_replay_are_refused():
    with pytest.raises(ValueError, match=r"policy.config: qwen2 is no mixture of experts.*policy.config.model_type"):
        UniMoePolicy(config=dict(TINY))
    with pytest.raises(ValueError, match=r"policy.router_replay=true.*leave it out"):
        UniMoePolicy.refuse_settings({"router_replay": True})
