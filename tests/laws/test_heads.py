"""What holds for every action head: tokens, Gaussian, flow and diffusion chains."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from mmrl.core.rng import Noise
from mmrl.core.types import Completion, Sampling
from mmrl.methods.robots.dppo import DenoisingSurrogate
from mmrl.objectives.imitation import NegativeLogLikelihood
from mmrl.objectives.imitation_bins import SmoothedNegativeLogLikelihood
from mmrl.objectives.imitation_chain import DenoisingLoss
from mmrl.objectives.policy import ClippedSurrogate, PolicyGradient
from mmrl.objectives.policy_chain import ChainSurrogate
from mmrl.policies.vla.bins import bin_centres, to_bins
from mmrl.rollouts.env.episodic import mask_unplayed
from tests.laws.heads import CHAINS, HEADS, SIMILAR, TOKENS, build_policy, demonstrated, raws, sampled


def parametrize(names) -> pytest.MarkDecorator:
    """One test for each head; heads whose parts other heads have too are slow."""
    return pytest.mark.parametrize(
        "head", [pytest.param(name, marks=[pytest.mark.slow] if name in SIMILAR else []) for name in names]
    )


heads, chains = parametrize(HEADS), parametrize(CHAINS)


def slopes(policy, loss) -> list[torch.Tensor]:
    policy.zero_grad()
    loss.backward()
    return [p.grad.clone() if p.grad is not None else torch.zeros_like(p) for p in policy.parameters()]


def unplayed(policy, batch, executed: int):
    """The batch as the rollout leaves it when only the first control steps were played."""
    masks = []
    for action, mask in zip(batch["action"], batch["action_mask"]):
        output = np.zeros((policy.chunk, policy.action_dims))
        done = Completion({}, action, torch.zeros(len(mask)), mask, output)
        mask_unplayed(done, executed)
        masks.append(done.action_mask)
    return batch.with_columns(action_mask=torch.stack(masks))


@heads
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 1.6])
def test_scoring_again_gives_ratio_one(head, frozen, temperature):
    policy = build_policy(head, freeze_vision=frozen)
    batch = sampled(policy, sampling=Sampling(temperature=temperature))
    out = policy(batch)
    assert batch["action_mask"].any(1).all()
    assert (out.logprobs - batch["behavior_logprobs"]).abs().max() < 1e-4
    assert (out.logprobs[batch["action_mask"]] != 0).all()
    # micro-batches of other sizes say the same
    for row in (0, 4):
        assert_close(policy(batch.select(torch.tensor([row]))).logprobs[0], out.logprobs[row], atol=1e-4, rtol=0)


@heads
def test_a_row_is_a_function_of_its_own_stream(head):
    policy = build_policy(head)
    observation = policy.collate([policy.encode(raw) for raw in raws(6)])
    together = policy.act(observation, Sampling(), Noise(range(6)))
    alone = policy.act({k: v[4:5] for k, v in observation.items()}, Sampling(), Noise([4]))
    assert_close(together.action[4:5].float(), alone.action.float(), atol=1e-5, rtol=0)
    assert torch.equal(together.action_mask[4:5], alone.action_mask)
    other = policy.act({k: v[4:5] for k, v in observation.items()}, Sampling(), Noise([44]))
    assert not torch.equal(other.action, alone.action)


@heads
def test_values_without_an_action_are_those_of_acting(head):
    policy = build_policy(head, value_head=True)
    for parameter in policy.value_head.parameters():
        torch.nn.init.normal_(parameter, std=0.1, generator=torch.Generator().manual_seed(0))
    observation = policy.collate([policy.encode(raw) for raw in raws(5)])
    values = policy.predict_values(observation)
    assert torch.equal(values, policy.act(observation, Sampling(), Noise(list(range(5)))).values)
    assert values.unique().numel() > 1 and not values.requires_grad
    assert build_policy(head).predict_values(observation) is None


@heads
def test_episodes_are_acting_in_repeated_contexts(head):
    policy = build_policy(head, freeze_vision=True)
    observation = policy.collate([policy.encode(raw) for raw in raws(2)])
    owner = torch.tensor([0, 0, 1, 0])
    shared = policy.act_groups(observation, owner, Sampling(), Noise(range(4)))
    repeated = policy.act({k: v[owner] for k, v in observation.items()}, Sampling(), Noise(range(4)))
    assert_close(shared.action.float(), repeated.action.float(), atol=1e-5, rtol=0)
    assert_close(shared.behavior_logprobs, repeated.behavior_logprobs, atol=1e-4, rtol=0)
    assert_close(shared.cached_features, repeated.cached_features, atol=1e-5, rtol=0)


@heads
@pytest.mark.parametrize("term", [ClippedSurrogate(), ClippedSurrogate(clip_dual=3.0)], ids=str)
def test_at_ratio_one_the_surrogate_has_the_gradient_of_reinforce(head, term):
    policy = build_policy(head)
    batch = sampled(policy)
    advantages = torch.randn(batch.rows, 1, generator=torch.Generator().manual_seed(0)).expand(
        batch["action_mask"].shape
    )
    batch = batch.with_columns(advantages=advantages, behavior_logprobs=policy(batch).logprobs.detach())
    one = slopes(policy, term(policy(batch), batch).sum())
    other = slopes(policy, PolicyGradient()(policy(batch), batch).sum())
    assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert any((slope != 0).any() for slope in one)


@chains
@pytest.mark.parametrize("join", ["step", "transition", "chain"])
def test_joined_ratios_too(head, join):
    """Each of the joined choices has the gradient of their sum, or of their mean over numbers."""
    policy = build_policy(head)
    batch = sampled(policy)
    advantages = torch.randn(batch.rows, 1, generator=torch.Generator().manual_seed(0)).expand(
        batch["action_mask"].shape
    )
    batch = batch.with_columns(advantages=advantages, behavior_logprobs=policy(batch).logprobs.detach())
    size = {"step": 1, "transition": policy.chunk, "chain": batch["action_mask"].sum(1, keepdim=True)}[join]
    one = slopes(policy, (ChainSurrogate(policy.chunk, join)(policy(batch), batch) / size).sum())
    other = slopes(policy, PolicyGradient()(policy(batch), batch).sum())
    assert_close(one, other, rtol=1e-4, atol=1e-5)
    # averaged over the numbers that were joined
    mean = slopes(policy, (ChainSurrogate(policy.chunk, join, "mean")(policy(batch), batch) * 3).sum())
    assert_close(mean, other, rtol=1e-4, atol=1e-5)


@heads
def test_unplayed_control_steps_change_nothing(head):
    """Two of five control steps were played: what stands in the others of the drawn state has no say, no slope."""
    policy = build_policy(head)
    batch = sampled(policy)
    advantages = torch.linspace(-1, 1, batch.rows)[:, None].expand(batch["action_mask"].shape)
    cut = unplayed(policy, batch.with_columns(advantages=advantages), 2)
    blocks = cut["action_mask"].numel() // batch.rows // policy.chunk
    assert cut["action_mask"].sum() * policy.chunk == batch["action_mask"].sum() * 2 and blocks >= 1
    changed = cut["action"].clone()
    if head in CHAINS:
        last = (
            cut["action_mask"].unflatten(1, (-1, policy.chunk)).any(2).long().cumsum(1).argmax(1)
        )  # the last drawn block
        view = changed.unflatten(1, (-1, policy.chunk))
        view[torch.arange(batch.rows), last, 2:] += 5.0
    else:
        changed[:, 2 * policy.action_dims :] = (changed[:, 2 * policy.action_dims :] + 3) % 15
    assert not torch.equal(changed, cut["action"])
    results = []
    for rows in (cut, cut.with_columns(action=changed)):
        loss = (ClippedSurrogate(importance_sampling_level="joint")(policy(rows), rows) * rows["action_mask"]).sum()
        results.append((loss.detach(), slopes(policy, loss)))
    assert_close(results[0], results[1], rtol=1e-5, atol=1e-6)


@heads
@pytest.mark.parametrize("decode", ["mean", "argmax"])
def test_greedy_decodes_choose_no_transition(head, decode):
    policy = build_policy(head)
    first, again = sampled(policy, sampling=Sampling(decode=decode)), sampled(policy, sampling=Sampling(decode=decode))
    assert torch.equal(first["output"], again["output"])
    assert (first["output"].abs() <= 1).all()
    if head in CHAINS:
        assert not first["action_mask"].any() and (first["behavior_logprobs"] == 0).all()
        assert_close(policy(first).logprobs, first["behavior_logprobs"], atol=0, rtol=0)
        steps = CHAINS[head].steps + CHAINS[head].stores_noise
        assert first["action"].shape == (6, steps * policy.chunk, policy.action_dims)
        end = first["action"][:, -policy.chunk :].clamp(-1, 1)
        assert_close(end, first["output"], atol=0, rtol=0)


@heads
def test_temperature_widens(head):
    """The same noise goes farther: the log-density falls by A log(temperature) where it is Gaussian."""
    policy = build_policy(head)
    cold, hot = sampled(policy), sampled(policy, sampling=Sampling(temperature=2.0))
    entropy = [
        (policy(batch).entropy * batch["action_mask"]).sum() / batch["action_mask"].sum() for batch in (cold, hot)
    ]
    if head in TOKENS:
        assert entropy[1] > entropy[0]
    else:
        assert torch.equal(cold["action_mask"], hot["action_mask"])
        single = cold["action_mask"].unflatten(1, (-1, policy.chunk)).any(2).sum(1).max() == 1
        tolerance = 1e-4 if single and head != "gaussian" else 0.2  # a learned std depends on the state
        assert (entropy[1] - entropy[0]).item() == pytest.approx(3 * np.log(2), abs=tolerance)


@heads
def test_cloning_brings_the_policy_to_the_demonstration(head):
    policy = build_policy(head, freeze_vision=True)
    chunk = np.random.default_rng(1).uniform(-0.8, 0.8, (1, 5, 3)).astype(np.float32).repeat(2, axis=0)
    batch = demonstrated(policy, chunk)
    likelihood = SmoothedNegativeLogLikelihood(1.0) if head == "tokens" else NegativeLogLikelihood()
    term = likelihood if head in TOKENS else DenoisingLoss()
    rate = 2e-3 if head == "pi0" else 5e-3  # deeper than the others
    optimizer = torch.optim.Adam([p for p in policy.parameters() if p.requires_grad], lr=rate)

    def distance() -> float:
        return np.abs(sampled(policy.eval(), 2, sampling=Sampling(decode="mean"))["output"].numpy() - chunk).mean()

    distances = [distance()]
    for step in range(130):
        batch = batch if head in TOKENS else batch.with_columns(row_seed=batch["row_seed"] + 1000 * step)
        optimizer.zero_grad()
        term(policy.train()(batch), batch).mean().backward()
        optimizer.step()
        if step % 10 == 9:
            distances.append(distance())
            if distances[-1] < 0.4 * distances[0]:
                break
    # a wrong sign or time would lead away; half a token bin alone is 0.03
    assert distances[-1] < 0.4 * distances[0], distances


@heads
def test_saved_and_loaded_is_the_same(head, tmp_path):
    policy = build_policy(head)
    policy.save_pretrained(tmp_path)
    again = HEADS[head](path=str(tmp_path)).eval()
    batch = sampled(policy)
    assert torch.equal(policy(batch).logprobs, again(batch).logprobs)


@pytest.mark.parametrize("layout", ["equal", "openvla"])
@pytest.mark.parametrize("bins", [4, 256])
def test_tokens_round_trip(layout, bins):
    centres = bin_centres(bins, layout=layout)
    ids = to_bins(torch.tensor([-1.0, 1.0, -3.0, 3.0]), bins, layout)
    last = bins - 1 if layout == "equal" else bins - 2
    assert ids.tolist() == [0, last, 0, last]
    values = torch.linspace(-1, 1, 4001)
    width = 2 / (last + 1)
    assert (centres[to_bins(values, bins, layout)] - values).abs().max() <= width / 2 + 1e-6
    assert torch.equal(to_bins(centres[: last + 1], bins, layout), torch.arange(last + 1))
    if layout == "openvla":  # 255 intervals: the largest error is 1 / 255 = 0.0039
        assert centres[-1] == centres[-2]
        edges = torch.linspace(-1, 1, bins)
        assert_close(centres[:-1], (edges[1:] + edges[:-1]) / 2, atol=1e-6, rtol=0)


def test_the_twin_of_the_last_bin_has_no_mass():
    policy = build_policy("openvla_tokens")
    out = policy(sampled(policy))
    assert (out.extra["choice_logprobs"].exp()[..., -1] == 0).all()
    assert out.entropy.isfinite().all() and (out.entropy <= np.log(15) + 1e-5).all()


def test_a_row_draws_one_transition_evenly():
    stochastic = CHAINS["flow_sde"].stochastic_mask(Noise(range(4000)))
    assert (stochastic.sum(1) == 1).all()
    # a share of 1/4 of 4000: standard error 0.0068
    assert_close(stochastic.float().mean(0), torch.full((4,), 0.25), atol=0.03, rtol=0)
    last = CHAINS["cps"].stochastic_mask(Noise(range(400)))[:, -1]
    assert not last.any()  # its last step has no noise


def test_early_transitions_count_less():
    """K = 3, gamma_denoising .5, bounds .001 to .01: i = 0, 1, 2 count .25, .5, 1 and clip at .001, .002642, .01."""
    term = DenoisingSurrogate(
        chunk=1, steps=3, gamma_denoising=0.5, clip_base=0.001, clip_low=0.01, clip_high=0.01, reduction="mean"
    )
    batch = sampled(build_policy("gaussian")).select(torch.tensor([0]))
    batch = batch.with_columns(action_mask=torch.tensor([[False, True, True, True]]), advantages=torch.ones(1, 4))
    assert term.advantages(batch).tolist() == [[0.0, 0.25, 0.5, 1.0]]
    # (e^1.5 - 1) / (e^3 - 1) = 3.481689 / 19.085537 = .182426; .001 + .009 * .182426
    assert term._bounds(batch)[0][1:].tolist() == pytest.approx([0.001, 0.00264183, 0.01], abs=1e-7)


def test_weights_of_another_answer_are_refused(tmp_path):
    build_policy("flow_sde").save_pretrained(tmp_path)
    assert HEADS["flow_noise"](path=str(tmp_path)).chain == CHAINS["flow_noise"]  # the log-std head is new
    with pytest.raises(ValueError, match=r"policy\.chain DDIM"):
        HEADS["ddim"](path=str(tmp_path))


def test_unlikely_choices_cannot_be_cut():
    with pytest.raises(ValueError, match="continuous action head cannot drop unlikely choices"):
        sampled(build_policy("flow_sde"), sampling=Sampling(top_p=0.9))
