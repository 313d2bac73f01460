"""ILQL's losses: numbers worked by hand, and every loss of logged texts by loops over the plain transformers model."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.annotators.gae import GAE
from mmrl.annotators.values import Values
from mmrl.core.batch import Batch
from mmrl.core.types import Context, Episode, PolicyOutput, Prompt, Request, Sampling, Turn
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.methods.offline.ilql.losses import ConservativeQ, ExpectileValue
from mmrl.methods.offline.ilql.policy import ValueGuidedPolicy
from mmrl.objectives.actor_critic.expectile import expectile_loss
from mmrl.objectives.q import TDLoss
from tests.composed_words import compose_words
from tests.laws.example import Example
from tests.policies.text.oracle import TINY, decided

LAWS = [Example(ExpectileValue()), Example(ExpectileValue(0.5))]
TERMS = compose_words(("method=ilql", "setting=text_maze_log")).model.objective


def random_heads(policy: ValueGuidedPolicy) -> ValueGuidedPolicy:
    """The policy with heads that predict something, whose targets are other ones."""
    with torch.no_grad():
        for weight in policy.token_values.parameters():
            weight.normal_(std=0.3)
    return policy


def make_policy(**options) -> ValueGuidedPolicy:
    torch.manual_seed(0)
    return random_heads(decided(ValueGuidedPolicy(config=dict(TINY), **options))).eval()


def output(**extra) -> tuple[PolicyOutput, Batch]:
    nothing = torch.zeros(1, 1)
    values = extra.pop("values", nothing)
    return PolicyOutput(nothing, nothing, values, extra), Batch(action_mask=torch.ones(1, 1).bool())


def test_the_td_loss_by_hand():
    """r = 0, V' = .8, gamma = .99: the target is .792; Q = 1 has the loss .208^2 = .043264 in each head."""
    batch = Batch(
        action_mask=torch.ones(2, 1).bool(),
        values=torch.tensor([[5.0], [0.8]]),
        episode=torch.zeros(2).long(),
        step=torch.arange(2),
        reward=torch.zeros(2),
        is_last=torch.tensor([False, True]),
        bootstrap_value=torch.zeros(2),
    )
    annotated = GAE(0.99, 0.0)(batch, None)
    assert_close(annotated["returns"], torch.tensor([[0.792], [0.0]]))
    nothing = torch.zeros(2, 1)
    out = PolicyOutput(nothing, nothing, extra={"q": torch.tensor([[[1.0, 1.0]], [[0.0, 0.0]]])})
    loss = TERMS.coefficients.q * TDLoss()(out, annotated)
    assert_close(loss, torch.tensor([[2 * 0.043264], [0.0]]))


def test_the_expectile_loss_by_hand():
    """tau .7: .7 * .36 = .252 above the value, .3 * .36 = .108 below it; the target has no gradient."""
    assert_close(expectile_loss(torch.tensor([0.6, -0.6]), 0.7), torch.tensor([0.252, 0.108]))
    for target, loss, gradient in ((1.0, 0.252, -0.84), (-0.2, 0.108, 0.36)):
        values, target_q = torch.full((1, 1), 0.4).requires_grad_(), torch.full((1, 1), target).requires_grad_()
        out, batch = output(values=values, min_target_q=target_q)
        term = ExpectileValue(0.7)(out, batch)
        assert_close(term, torch.tensor([[loss]]))
        term.sum().backward()
        assert_close(values.grad, torch.tensor([[gradient]]))
        assert target_q.grad is None


def test_forced_choices_have_no_loss():
    """u = .6: .7 * .36 = .252 at the first choice; the second was forced."""
    batch = Batch(action_mask=torch.tensor([[True, False]]))
    values = torch.tensor([[0.4, 0.1]]).requires_grad_()
    extra = {"min_target_q": torch.ones(1, 2), "q_logprobs": torch.tensor([[[-0.5, -0.25], [-1.0, -1.0]]])}
    out, term = PolicyOutput(values, values, values, extra), ExpectileValue(0.7)
    assert_close(term(out, batch).detach(), torch.tensor([[0.252, 0.0]]))
    metric = term.metrics(out, batch)["v"]
    assert metric.tolist() == [[pytest.approx(0.4), 0.0]] and not metric.requires_grad
    assert_close(ConservativeQ()(out, batch), torch.tensor([[0.75, 0.0]]))


def test_the_conservative_term_by_hand():
    """-log softmax([1, 0, 0])_0 = log(e + 2) - 1 = .551445 for each of two heads."""
    logprobs = torch.tensor([1.0, 0.0, 0.0]).log_softmax(-1)[0].expand(1, 1, 2)
    assert_close(ConservativeQ()(*output(q_logprobs=logprobs)), torch.tensor([[2 * 0.551445]]), atol=2e-6, rtol=0)


def test_the_value_becomes_the_expectile_of_logged_rewards():
    """Half of the log earns 1, half 0: (1 - tau) V = tau (1 - V) at the optimum, so V = tau."""
    values = torch.zeros(2, 1, requires_grad=True)
    target = torch.tensor([[1.0], [0.0]])
    batch = Batch(action_mask=torch.ones(2, 1).bool())
    for tau in (0.5, 0.9):
        optimizer = torch.optim.SGD([values], lr=0.5)
        for _ in range(60):
            shared = values.mean().expand(2, 1)
            loss = ExpectileValue(tau)(PolicyOutput(shared, shared, shared, {"min_target_q": target}), batch).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        assert_close(values.mean(), torch.tensor(tau), atol=1e-3, rtol=0)


def test_the_losses_of_logged_texts_are_those_of_loops_over_tokens():
    """Two logged episodes of two turns: states by transformers, one unpadded row at a time; Bellman targets by a loop
    over the tokens of an episode, whose last one of a turn has the turn's reward."""
    policy, gamma, tau = make_policy(), 0.9, 0.8
    engine = LocalEngine()
    engine.sync(policy, 0)
    texts = [["left", "now"], ["a longer observation", "end"]]
    raws = [{"messages": ({"role": "user", "content": text},)} for episode in texts for text in episode]
    done = engine.sample([Request(raw, seed) for seed, raw in enumerate(raws)], Sampling(max_tokens=4))
    turns = [Turn(completion, reward) for completion, reward in zip(done, (0.5, 1.0, -0.25, 2.0))]
    episodes = [Episode(Prompt(f"p/{i}"), i, 0, turns[2 * i : 2 * i + 2], ended="done") for i in range(2)]
    ctx = Context(None, engine, policy, Sampling(), seed=0, iteration=0, group_size=1)
    batch = GAE(gamma, 0.0)(Values()(collate(episodes, policy), ctx), ctx)
    with torch.no_grad():
        out = policy(batch)
    rows = [score_alone(policy, completion) for completion in done]
    for first in (0, 2):
        v = torch.cat([rows[first][2], rows[first + 1][2], torch.zeros(1)])
        place = 0
        for row in (first, first + 1):
            q, target, _ = rows[row]
            action = done[row].action.tolist()
            for t, token in enumerate(action):
                reward = turns[row].reward if t + 1 == len(action) else 0.0
                returns = reward + gamma * v[place + 1]
                td = sum((returns - q[t, k, token]) ** 2 for k in range(2))
                u = min(target[t, k, token] for k in range(2)) - v[place]
                cql = -sum(q[t, k].log_softmax(-1)[token] for k in range(2))
                expected = td / 2, (tau if u > 0 else 1 - tau) * u**2, cql
                for term, loss in zip((TDLoss(), ExpectileValue(tau), ConservativeQ()), expected):
                    assert_close(term(out, batch)[row, t], loss, atol=2e-4, rtol=1e-3)
                place += 1


def score_alone(policy, completion):
    """Q and target Q [T, 2, V], and V [T], of one row."""
    ids = torch.cat([completion.observation["input_ids"], completion.action])[None]
    with torch.no_grad():
        states = policy.model(input_ids=ids, output_hidden_states=True).hidden_states[-1][0]
        states = states[-len(completion.action) - 1 : -1]
        values = policy.token_values
        q, target = (torch.stack([head(states) for head in heads], 1) for heads in (values.q, values.target_q))
        return q, target, values.v(states)[:, 0]


def test_refusals():
    with pytest.raises(ValueError, match=r"ExpectileValue\.tau must be in \(0, 1\)"):
        ExpectileValue(1.0)
    with pytest.raises(ValueError, match="values of every choice"):
        out, batch = output(min_target_q=torch.zeros(1, 1))
        out.values = None
        ExpectileValue()(out, batch)
