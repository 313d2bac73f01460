"""ILQL's policy: decoding perturbed by Q - V by brute force, target heads, files, and what it refuses."""

from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.types import Prompt, Sampling
from mmrl.engines.local import LocalEngine
from mmrl.methods.offline.ilql.policy import ValueGuidedPolicy
from mmrl.methods.offline.ilql.targets import TargetHeads
from mmrl.policies.text.policy import TextPolicy
from tests.methods.offline.ilql.test_losses import make_policy, random_heads, score_alone
from tests.policies.text.oracle import TINY, batch_of, completions, decided, plain_logits

PROMPTS = [Prompt(f"p/{i}", ({"role": "user", "content": text},)) for i, text in enumerate(["go", "turn left or", "a"])]


def test_perturbed_decoding_is_the_softmax_of_logits_and_advantages():
    """Each token's log-prob is that of softmax((logits + beta (min_k target Q_k - V)) / temperature), row by row."""
    policy = make_policy(beta=3.0)
    for done in completions(policy, PROMPTS, Sampling(max_tokens=5, temperature=0.7)):
        _, target, v = score_alone(policy, done)
        logits = plain_logits(policy, done) + 3.0 * (target.amin(1) - v[:, None])
        expected = (logits / 0.7).log_softmax(-1).gather(1, done.action[:, None])[:, 0]
        assert_close(done.behavior_logprobs, expected, atol=2e-4, rtol=0)
    for done in completions(policy, PROMPTS, Sampling(max_tokens=3, decode="argmax")):
        _, target, v = score_alone(policy, done)
        logits = plain_logits(policy, done) + 3.0 * (target.amin(1) - v[:, None])
        assert done.action.tolist() == logits.argmax(-1).tolist()


def test_the_perturbation_by_hand():
    """Logits [0, 1], Q - V = [.5, -.5], beta 4: softmax([2, -1]) = [.9526, .0474], from [.2689, .7311]."""
    policy = make_policy(beta=4.0)
    head = torch.nn.Linear(32, 2)
    policy.model.set_output_embeddings(head)
    heads = (*policy.token_values.target_q, policy.token_values.v)
    with torch.no_grad():
        for layer in (head, *(perceptron[2] for perceptron in heads)):
            layer.weight.zero_()
            layer.bias.zero_()
        head.bias.copy_(torch.tensor([0.0, 1.0]))
        for perceptron in policy.token_values.target_q:
            perceptron[2].bias = torch.nn.Parameter(torch.tensor([0.75, -0.25]))
            perceptron[2].weight = torch.nn.Parameter(torch.zeros(2, 64))
        policy.token_values.v[2].bias.fill_(0.25)
        states = torch.zeros(1, 32)
        with policy._perturb_logits():
            assert_close(head(states).softmax(-1), torch.tensor([[0.9526, 0.0474]]), atol=5e-5, rtol=0)
        assert_close(head(states).softmax(-1), torch.tensor([[0.2689, 0.7311]]), atol=5e-5, rtol=0)


def test_without_beta_it_is_the_language_model():
    policy = make_policy(beta=0.0)
    plain = TextPolicy(config=dict(TINY))
    plain.model.load_state_dict(policy.model.state_dict())
    sampling = Sampling(max_tokens=6)
    for guided, language in zip(completions(policy, PROMPTS, sampling), completions(plain.eval(), PROMPTS, sampling)):
        assert guided.action.tolist() == language.action.tolist()
        assert_close(guided.behavior_logprobs, language.behavior_logprobs)


def test_new_heads_change_nothing():
    torch.manual_seed(0)
    policy = decided(ValueGuidedPolicy(config=dict(TINY), beta=16.0)).eval()
    for done in completions(policy, PROMPTS, Sampling(max_tokens=3)):
        expected = plain_logits(policy, done).log_softmax(-1).gather(1, done.action[:, None])[:, 0]
        assert_close(done.behavior_logprobs, expected, atol=1e-4, rtol=0)


def test_targets_follow_the_heads_once_per_optimiser_step():
    """target += .25 (Q - target): from 0 to .25 of Q after one step, .4375 after two; never in a micro-batch."""
    policy = make_policy()
    values = policy.token_values
    for parameter in values.target_q.parameters():
        parameter.data.zero_()
    source = values.q[1][2].weight.detach().clone()
    trainer, learner = SimpleNamespace(), SimpleNamespace(policy=policy)
    callback = TargetHeads(0.25)
    callback.on_fit_start(trainer, learner)
    for steps, share in ((False, 0.0), (True, 0.25), (False, 0.25), (True, 0.4375)):
        if steps:
            callback.on_before_optimizer_step(trainer, learner, None)
        callback.on_train_batch_end(trainer, learner, None, None, 0)
        assert_close(values.target_q[1][2].weight, share * source)
    assert_close(values.q[1][2].weight, source)
    with pytest.raises(ValueError, match="TextPolicy has none"):
        callback.on_fit_start(trainer, SimpleNamespace(policy=TextPolicy(config=dict(TINY))))


def test_target_heads_are_not_trained():
    trained = {name for name, weight in make_policy().named_parameters() if weight.requires_grad}
    assert not any("target_q" in name for name in trained)
    assert any(name.startswith("token_values.q.1") for name in trained)


def test_the_losses_train_the_heads_and_the_language_model():
    policy = make_policy()
    out = policy(batch_of(policy, PROMPTS, completions(policy, PROMPTS, Sampling(max_tokens=2))))
    body, heads = policy.model.get_input_embeddings().weight, policy.token_values
    for value, head in ((out.extra["q"], heads.q[1]), (out.extra["q_logprobs"], heads.q[0]), (out.values, heads.v)):
        gradients = torch.autograd.grad(value.sum(), (body, head[0].weight), retain_graph=True)
        assert all(gradient.abs().max() > 0 for gradient in gradients)
    # -log softmax(Q)_a by the normaliser alone, whose gradient is not that of Q
    normaliser = out.extra["q"].detach() - out.extra["q_logprobs"]
    assert torch.autograd.grad(normaliser.sum(), body)[0].abs().max() > 0
    assert not out.extra["min_target_q"].requires_grad
    columns = {"entropy", "values", "q", "min_target_q", "q_logprobs"}
    assert ValueGuidedPolicy.predicts({"statistics": ["entropy"]}) == columns


def test_a_saved_folder_has_the_heads(tmp_path):
    policy = make_policy(beta=2.0)
    policy.save_pretrained(tmp_path)
    again = ValueGuidedPolicy(str(tmp_path), beta=2.0).eval()
    one, other = (completions(each, PROMPTS, Sampling(max_tokens=4)) for each in (policy, again))
    assert [done.action.tolist() for done in one] == [done.action.tolist() for done in other]
    for name, weight in policy.token_values.state_dict().items():
        assert_close(again.token_values.state_dict()[name], weight)


def test_vllm_is_refused_by_name():
    policy = random_heads(ValueGuidedPolicy(config=dict(TINY)))
    with pytest.raises(NotImplementedError, match=r"engine=vllm has none; use engine=local, or policy\.beta=0"):
        policy.canary()
    assert make_policy(beta=0.0).canary()["messages"]
    with pytest.raises(ValueError, match=r"policy\.beta must be at least 0"):
        ValueGuidedPolicy(config=dict(TINY), beta=-1.0)
    LocalEngine().sync(policy, 0)
