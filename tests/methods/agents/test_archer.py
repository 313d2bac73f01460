"""ArCHer: numbers worked by hand, the critic by loops over the plain network, and what the actor is given."""

import copy
from itertools import pairwise

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.rng import derive_rng
from mmrl.core.types import Context, PolicyOutput, Sampling
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.methods.agents.archer.critic import (
    Transition,
    UtteranceValues,
    critic_loss,
    q_targets,
    utterance_advantages,
)
from mmrl.methods.agents.archer.replay import UtteranceReplay, read_transitions
from mmrl.objectives.policy import PolicyGradient
from mmrl.policies.text.policy import TextPolicy
from mmrl.rollouts.text.environment import EnvironmentRollout
from tests.composed_words import compose_words
from tests.policies.text.oracle import TINY, decided
from tests.text_environments import Count

LAWS = [lambda: UtteranceReplay(critic_steps=1, batch_size=2, actor_states=2)]


def make_policy() -> TextPolicy:
    torch.manual_seed(0)
    return decided(TextPolicy(config=dict(TINY))).eval()


def context(policy, iteration=0, task=None, **changes) -> Context:
    engine = LocalEngine()
    engine.sync(policy, iteration)
    sampling = changes.pop("sampling", Sampling(max_tokens=3))
    return Context(task or Count(), engine, policy, sampling, seed=0, iteration=iteration, **changes)


def test_the_targets_by_hand():
    """r = 0, V' = .6, gamma = .95: the target is .57, and Q = .8 has the error .23^2 = .0529; done: the target is r."""
    target = q_targets(torch.tensor([0.0, 1.0]), torch.full((2, 2), 0.6), torch.tensor([False, True]), 0.95)
    assert_close(target, torch.tensor([[0.57, 0.57], [1.0, 1.0]]))
    q, v = torch.tensor([[0.8, 0.57]], requires_grad=True), torch.tensor([[0.5, 0.1]], requires_grad=True)
    loss = critic_loss(q, v, target[:1], torch.tensor([[0.5, 0.4]]))
    assert_close(loss, torch.tensor(0.0529 + 0.09))
    loss.backward()
    assert_close(q.grad, torch.tensor([[0.46, 0.0]]))
    assert_close(v.grad, torch.tensor([[0.0, -0.6]]))


def test_the_advantage_by_hand():
    """Q (.8, .9) and V (.5, .6): .8 - .5 = .3; each minimum is of its own heads."""
    q, v = torch.tensor([[0.8, 0.9], [0.2, -0.1]]), torch.tensor([[0.5, 0.6], [0.6, 0.5]])
    assert_close(utterance_advantages(q, v), torch.tensor([0.3, -0.6]))


def test_a_single_turn_with_the_mean_reward_as_value_is_reinforce():
    """Q = r and V the mean reward: the loss is -(r - mean) log pi(a), summed over the utterance's tokens."""
    reward = torch.tensor([1.0, 0.0, 0.5])
    advantage = utterance_advantages(reward[:, None].expand(3, 2), reward.mean().expand(3, 2))
    weighting = compose_words(("method=archer", "setting=few_objects")).data.weighting
    assert weighting.length == 1
    logprobs = torch.tensor([[-1.0, -2.0], [-0.5, -0.5], [-3.0, 0.0]], requires_grad=True)
    mask = torch.tensor([[True, True], [True, True], [True, False]])
    batch = Batch(action_mask=mask, advantages=advantage[:, None].expand(3, 2))
    loss = PolicyGradient()(PolicyOutput(logprobs, logprobs), batch).sum(1).mean()
    # -(.5 * -3 + -.5 * -1 + 0 * -3) / 3 = 1 / 3
    assert_close(loss, torch.tensor(1 / 3))


def transitions() -> list[Transition]:
    """A text world of two turns: state 5 6, then 5 6 7, then the end; rewards 0 and 1, and 0 by the other utterance."""
    first, second = torch.tensor([5, 6]), torch.tensor([5, 6, 7])
    return [
        Transition("p/0", first, torch.tensor([8]), 0.0, second),
        Transition("p/0", second, torch.tensor([9, 4]), 1.0, None),
        Transition("p/0", first, torch.tensor([9]), 0.0, None),
    ]


def test_the_critic_reads_states_and_utterances_as_the_plain_network_does():
    """V at the state's last token and Q at the utterance's, one unpadded row at a time."""
    policy = make_policy()
    critic = UtteranceValues(policy.model, policy.hidden_size)
    with torch.no_grad():
        for heads in (critic.q, critic.v):
            for parameter in heads.parameters():
                parameter.normal_(std=0.3)
        rows = transitions()
        q, v = critic([each.state for each in rows], [each.utterance for each in rows])
        for n, each in enumerate(rows):
            ids = torch.cat([each.state, each.utterance])[None]
            hidden = policy.model(input_ids=ids, output_hidden_states=True).hidden_states[-1][0]
            for k in range(2):
                assert_close(q[n, k], critic.q[k](hidden[-1])[0], atol=1e-4, rtol=0)
                assert_close(v[n, k], critic.v[k](hidden[len(each.state) - 1])[0], atol=1e-4, rtol=0)
        alone = critic([rows[0].state], [rows[0].utterance[:0]])
        assert_close(alone[1], v[:1], atol=1e-4, rtol=0)


def test_q_becomes_the_table_of_discounted_values():
    """The critic on a table world of texts. The policy draws 8 or 9 nowhere near one half, so V is read from its own
    samples; Q of the last utterance is 1 and of the other one 0, and Q of the first .5 V of the second state."""
    policy = make_policy()
    part = UtteranceReplay(critic_steps=1, batch_size=3, actor_states=2, gamma=0.5, tau=1.0, lr=3e-3)
    part.buffer = transitions()
    ctx = context(policy, sampling=Sampling(max_tokens=2))
    part._build(ctx)
    rng = derive_rng("test")
    losses = [float(part.update(part.buffer, ctx, rng)) for _ in range(100)]
    with torch.no_grad():
        q, _ = part.critic([each.state for each in part.buffer], [each.utterance for each in part.buffer])
        v = part.critic([part.buffer[1].state], [part.buffer[1].utterance[:0]])[1]
    assert_close(q[1:], torch.tensor([[1.0, 1.0], [0.0, 0.0]]), atol=0.1, rtol=0)
    assert_close(q[:1], 0.5 * v, atol=0.1, rtol=0)
    assert sum(losses[-20:]) < 0.2 * sum(losses[:20])


def test_one_step_is_that_of_a_loop():
    """The gradient step of `update`: targets of the target network, the mean over rows, Adam, then Polyak."""
    policy = make_policy()
    part = UtteranceReplay(gamma=0.9, tau=0.25, lr=1e-3, max_grad_norm=1e9)
    ctx = context(policy, sampling=Sampling(max_tokens=1, decode="argmax"))
    part.buffer = transitions()
    part._build(ctx)
    with torch.no_grad():
        for network in (part.critic, part.target):
            for parameter in (*network.q.parameters(), *network.v.parameters()):
                parameter.normal_(std=0.2)
    critic, target = copy.deepcopy(part.critic), copy.deepcopy(part.target)
    part.update(part.buffer, ctx, derive_rng("test"))
    total = torch.zeros(())
    for each in transitions():
        with torch.no_grad():
            token = policy.model(input_ids=each.state[None]).logits[0, -1].argmax()[None]
            v_target = target([each.state], [token])[0][0]
            following = torch.zeros(2) if each.following is None else target([each.following], [token[:0]])[1][0]
        q, v = critic([each.state], [each.utterance])
        total = total + ((each.reward + 0.9 * following - q[0]) ** 2).sum() + ((v_target - v[0]) ** 2).sum()
    (total / 3).backward()
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
    optimizer.step()
    for name, weight in critic.named_parameters():
        if name.startswith(("q", "v")):
            assert_close(part.critic.get_parameter(name), weight, atol=2e-5, rtol=1e-3)
            moved = target.get_parameter(name) + 0.25 * (weight - target.get_parameter(name))
            assert_close(part.target.get_parameter(name), moved, atol=2e-5, rtol=1e-3)


def test_the_actor_gets_fresh_utterances_with_the_critics_advantages():
    policy, task = make_policy(), Count(max_turns=3)
    ctx = context(policy, iteration=4, task=task)
    played = EnvironmentRollout(history=2).collect([(i, task[i]) for i in range(3)], ctx)
    part = UtteranceReplay(critic_steps=2, batch_size=4, actor_states=6, lr=1e-2, warmup=4)
    episodes = part(played, ctx)
    assert len(part.buffer) == sum(len(episode.turns) for episode in played)
    assert len(episodes) == min(6, len(part.buffer))
    assert {episode.group for episode in episodes} == set(range(3, 3 + len(episodes)))  # none of the played ones
    batch = collate(episodes, policy)
    stored = {tuple(each.state.tolist()) for each in part.buffer}
    with torch.no_grad():
        out = policy(batch)
        for n, episode in enumerate(episodes):
            done = episode.turns[0].completion
            state, mask = done.observation["input_ids"], batch["action_mask"][n]
            assert tuple(state.tolist()) in stored
            q, v = part.critic([state], [done.action])
            assert_close(
                batch["advantages"][n][mask], utterance_advantages(q, v).expand(int(mask.sum())), atol=1e-5, rtol=0
            )
            assert_close(batch["behavior_logprobs"][n][mask], out.logprobs[n][mask], atol=1e-4, rtol=0)
    assert batch["advantages"].abs().max() > 0
    earlier = UtteranceReplay(critic_steps=1, batch_size=4, actor_states=6, warmup=5)(played, ctx)
    assert not collate(earlier, policy)["advantages"].any()


def test_transitions_of_an_episode():
    """The next state is that of the next turn; the episode's reward comes with the last one."""
    policy, task = make_policy(), Count(max_turns=3)
    (episode,) = EnvironmentRollout(history=2).collect([(0, task[0])], context(policy, task=task))
    episode.reward = 0.25
    rows = read_transitions(episode)
    assert [each.reward for each in rows] == [
        turn.reward + 0.25 * (turn is episode.turns[-1]) for turn in episode.turns
    ]
    for each, after in pairwise(rows):
        assert torch.equal(each.following, after.state)
    assert rows[-1].following is None
    episode.turns[0].completion.observation["pixel_values"] = torch.zeros(1)
    with pytest.raises(ValueError, match="states of text alone"):
        read_transitions(episode)


def test_a_resumed_critic_goes_on_like_the_other():
    policy, task = make_policy(), Count(max_turns=2)
    one, other = (
        UtteranceReplay(critic_steps=2, batch_size=4, actor_states=3, capacity=5, lr=1e-3, warmup=0) for _ in range(2)
    )
    plays = []
    for iteration in range(2):
        ctx = context(policy, iteration, task)
        plays.append((EnvironmentRollout().collect([(i, task[i]) for i in range(3)], ctx), ctx))
    one(*plays[0])
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    ours, theirs = one(*plays[1]), other(*plays[1])
    assert len(one.buffer) == 5
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a.turns[0].completion.action, b.turns[0].completion.action)
        assert torch.equal(a.turns[0].completion.extra["advantages"], b.turns[0].completion.extra["advantages"])


def test_refusals():
    for arguments in ({"critic_steps": 0}, {"gamma": 1.5}, {"tau": 0.0}, {"lr": 0.0}, {"warmup": -1}):
        with pytest.raises(ValueError, match=rf"UtteranceReplay\.{next(iter(arguments))} must be"):
            UtteranceReplay(**arguments)
    policy = make_policy()
    with pytest.raises(ValueError, match=r"trainer\.devices=1"):
        UtteranceReplay()([], context(policy, world_size=2))
    with pytest.raises(ValueError, match="whole distribution"):
        UtteranceReplay()([], context(policy, sampling=Sampling(top_k=2)))
