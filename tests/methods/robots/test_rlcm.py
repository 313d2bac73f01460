"""RLCM: the consistency sampler, the clipped loss over its steps and the running advantage of prompts, by hand."""

import math
from types import SimpleNamespace

import pytest
import torch
from hydra.utils import instantiate
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.rng import Noise
from mmrl.core.types import Context, PolicyOutput, Prompt, Sampling
from mmrl.methods.robots.rlcm import ConsistencyChain, ConsistencyPolicy, PromptAdvantage, normalise_by_prompt
from mmrl.objectives.policy_chain import ChainSurrogate
from mmrl.ops.gaussian import normal_logprob
from mmrl.policies.vla.chains import MeanFlow
from mmrl.policies.vla.small.flow import ActionFlowPolicy
from mmrl.rollouts.text.scripted import scripted_episode
from tests.composed_words import compose_words
from tests.laws.heads import SMALL, demonstrated, sampled

CTX = Context(None, None, None, Sampling(), seed=0, iteration=0)


def build(chain=None, policy=ConsistencyPolicy, **given):
    torch.manual_seed(0)
    chain = chain or ConsistencyChain(steps=3)
    return policy(chain=chain, expert_layers=1, timesteps_per_sample=2, **SMALL, **given).eval()


# ---------------------------------------------------------------- the sampler


def test_transitions_by_hand():
    # K = 2: times 1, .5, 0. x = [1, -2], u = [.5, -1]: f = x - u = [.5, -1] at time 1; x' ~ N(.5 f, .5^2)
    chain = ConsistencyChain(steps=2)
    x, u, drawn = torch.tensor([[[1.0, -2.0]]]), torch.tensor([[[0.5, -1.0]]]), torch.tensor([True])
    mean, std = chain.step(x, torch.tensor([0]), u, None, drawn)
    assert_close(mean, torch.tensor([[[0.25, -0.5]]]), atol=1e-6, rtol=0)
    assert_close(std, torch.full((1, 1, 2), 0.5))
    # the last transition, from time .5, is f = x - .5 u = [.75, -1.5] without noise
    mean, std = chain.step(x, torch.tensor([1]), u, None, drawn)
    assert_close(mean, torch.tensor([[[0.75, -1.5]]]))
    assert_close(std, torch.zeros(1, 1, 2))
    # what is not drawn keeps the noise of the prediction: e = x at time 1, so .5 f + .5 e = [.75, -1.5]
    mean, _ = chain.step(x, torch.tensor([0]), u, None, ~drawn)
    assert_close(mean, torch.tensor([[[0.75, -1.5]]]))


def test_all_transitions_but_the_last_are_drawn():
    assert ConsistencyChain(steps=4).stochastic_mask(Noise(range(2))).tolist() == [[True, True, True, False]] * 2


def test_the_recipe_trains_a_chain():
    """Three transitions of each row are drawn, and each has a ratio and a gradient of its own."""
    plain = compose_words(("recipe=rlcm",))
    chain = instantiate(plain.model.policy.chain)
    assert chain.stochastic_mask(Noise(range(3))).sum(1).tolist() == [3, 3, 3] == [chain.max_stochastic_steps] * 3
    assert plain.model.objective.terms.policy.join == "transition"


def test_the_head_predicts_down_to_time_0_with_the_weights_of_a_mean_flow():
    flow, policy = build(MeanFlow(), policy=ActionFlowPolicy), build()
    torch.nn.init.normal_(flow.expert.duration_proj.weight, std=0.3)
    policy.load_state_dict(flow.state_dict())
    assert policy.contract() == flow.contract()
    assert {name for name, part in policy.named_parameters() if not part.requires_grad} == {
        "expert.log_std.weight",
        "expert.log_std.bias",
    }
    batch = sampled(policy)
    prefix = flow.encode_context(batch.observation()).prefix
    x, time = batch["action"][:, : flow.chunk], torch.full((6,), 0.7)
    expected = flow.predict(prefix, x, time, torch.zeros(6))[0]
    assert_close(policy.predict(prefix, x, time, torch.full((6,), 0.4))[0], expected)
    assert not torch.allclose(expected, flow.predict(prefix, x, time, torch.full((6,), 0.4))[0], atol=1e-3)


def test_scoring_again_gives_the_log_probs_of_the_draws():
    policy = build()
    batch = sampled(policy)
    out = policy(batch)
    assert batch["action_mask"].unflatten(1, (-1, policy.chunk)).all(2)[0].tolist() == [False, True, True, False]
    assert (out.logprobs - batch["behavior_logprobs"]).abs().max() < 1e-4
    # the std of the first draw is 2 / 3, whatever the network says: entropy log(std) + (1 + log 2 pi) / 2, A = 3 times
    entropy = 3 * (math.log(2 / 3) + (1 + math.log(2 * math.pi)) / 2)
    assert_close(out.entropy[:, policy.chunk], torch.full((6,), entropy))


def test_demonstrations_are_refused():
    policy = build()
    with pytest.raises(ValueError, match=r"policy\.chain ConsistencyChain .* start=mean_flow_bc"):
        policy(demonstrated(policy, torch.zeros(2, 5, 3).numpy()))


# ---------------------------------------------------------------- the loss


@pytest.mark.parametrize("advantage, loss", [(1.0, -1.0001), (-1.0, 1.007226)])
def test_the_loss_of_a_step_by_hand(advantage, loss):
    # std .5, x' = [.9, .1]: with mean [1, 0] the log-prob is, averaged over the two numbers,
    # -.01 / .5 - log .5 - log(2 pi) / 2 = -.02 + .693147 - .918939 = -.245791; with [.98, .02] it is
    # -.0064 / .5 + ... = -.238591. The ratio exp(.0072) = 1.007226 is beyond 1 + 1e-4
    action, std = torch.tensor([0.9, 0.1], dtype=torch.float64), torch.tensor(0.5, dtype=torch.float64)
    old, new = (normal_logprob(action, torch.tensor(mean, dtype=torch.float64), std) for mean in ([1, 0], [0.98, 0.02]))
    assert old.mean().item() == pytest.approx(-0.245791, abs=1e-6)
    assert new.mean().item() == pytest.approx(-0.238591, abs=1e-6)
    batch = Batch(
        action=action.view(1, 1, 2),
        action_mask=torch.ones(1, 1, dtype=torch.bool),
        advantages=torch.full((1, 1), advantage, dtype=torch.float64),
        behavior_logprobs=old.sum().view(1, 1),
    )
    out = PolicyOutput(new.sum().view(1, 1), torch.zeros(1, 1))
    term = ChainSurrogate(1, "transition", "mean", clip_low=1e-4, clip_high=1e-4)
    assert term(out, batch).item() == pytest.approx(loss, abs=1e-6)
    assert term.metrics(out, batch)["ratio"].item() == pytest.approx(1.007226, abs=1e-6)


# ---------------------------------------------------------------- the advantage


def test_advantages_by_hand():
    # "a" has 4 rewards, [0, 0, 1, 1] of mean .5 and std .5; "b" has 2 and takes those of the iteration, [1, 1, 1, 0],
    # of mean .75 and std sqrt(3) / 4 = .433013
    buffers = {"a": [0, 0, 1, 1], "b": [1, 0]}
    out = normalise_by_prompt([1, 1, 1, 0], ["a", "a", "b", "b"], buffers, 4, 10.0)
    assert out == pytest.approx([1, 1, 0.577350, -1.732051], abs=1e-5)
    assert normalise_by_prompt([1, 1, 1, 0], ["a", "a", "b", "b"], buffers, 4, 1.5)[3] == -1.5
    # all equal: 0, although 0.1 has no exact mean
    assert normalise_by_prompt([0.1] * 3, ["a"] * 3, {"a": [0.1] * 3}, 3, 10.0) == [0, 0, 0]


def episodes(*rewards, prompt=0, group=0):
    out = [scripted_episode(Prompt(f"toy/train/{prompt}"), "", group=group) for _ in rewards]
    for index, (episode, reward) in enumerate(zip(out, rewards)):
        episode.sample_index, episode.reward = index, reward
    return out


def rewards_of(result):
    return [episode.reward for episode in result]


def test_buffers_reach_over_iterations():
    part = PromptAdvantage(buffer_size=4, min_count=4)
    # 2 of 4: the iteration's mean .5 and std .5
    assert rewards_of(part(episodes(1.0, 0.0), CTX)) == pytest.approx([1, -1], abs=1e-5)
    # [1, 0, 1, 1]: mean .75, std .433013. In a group of its own the advantages would be 0
    assert rewards_of(part(episodes(1.0, 1.0), CTX)) == pytest.approx([0.577350] * 2, abs=1e-5)
    # the oldest two leave: [1, 1, 0, 0]
    assert rewards_of(part(episodes(0.0, 0.0), CTX)) == pytest.approx([-1, -1], abs=1e-5)
    assert part.state_dict() == {"toy/train/0": [1, 1, 0, 0]}
    again = PromptAdvantage(buffer_size=4, min_count=4)
    again.load_state_dict(part.state_dict())
    more = episodes(1.0, 0.0, 1.0)
    assert rewards_of(again(more, CTX)) == rewards_of(part(more, CTX))
    assert part([], CTX) == []


def test_two_processes_normalise_as_one():
    own = [episodes(1.0, 0.0, prompt=0, group=0), episodes(1.0, 1.0, prompt=1, group=1)]
    whole = PromptAdvantage()([*own[0], *own[1]], CTX)
    sent = [(e.group, e.sample_index, e.prompt.key, e.reward) for e in [*own[1], *own[0]]]
    collector = SimpleNamespace(gather=lambda items: sent)
    ctx = Context(None, None, None, Sampling(), seed=0, iteration=0, collector=collector)
    parts = [PromptAdvantage(), PromptAdvantage()]
    assert rewards_of(parts[0](own[0], ctx)) + rewards_of(parts[1](own[1], ctx)) == rewards_of(whole)
    assert parts[0].state_dict() == parts[1].state_dict()


def test_refusals():
    for wrong in ({"min_count": 17}, {"min_count": 0}, {"max_advantage": 0.0}):
        with pytest.raises(ValueError, match="prompt_advantage"):
            PromptAdvantage(**wrong)
    with pytest.raises(ValueError, match=r"'toy/train/0' is nan; check data\.reward"):
        PromptAdvantage()(episodes(float("nan")), CTX)
