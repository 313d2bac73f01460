"""The world model's states by a loop over its equations, and as they are kept from decision to decision."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from mmrl.core.batch import Batch
from mmrl.core.rng import Noise
from mmrl.core.types import Context, Sampling
from mmrl.engines.local import LocalEngine
from mmrl.ops.world_model.latent_kl import gaussian_kl
from mmrl.policies.control.uniform import UniformPolicy
from mmrl.policies.control.world_model.networks import ObservationDecoder
from mmrl.policies.control.world_model.policy import WorldModelPolicy
from mmrl.policies.control.world_model.rssm import RSSM
from mmrl.rollouts.env.fixed_horizon import FixedHorizon
from mmrl.rollouts.env.recurrent import RecurrentEpisodic
from mmrl.rollouts.env.recurrent_replay import RecurrentReplayHorizon
from sims.point.moving_background import PictureReach
from sims.task import SimTask


def build_policy(**options) -> WorldModelPolicy:
    torch.manual_seed(0)
    sizes = {"image_size": 16, "belief_size": 5, "state_size": 3, "hidden_size": 6, "hidden": [7], "image_depth": 2}
    return WorldModelPolicy(actions=2, **{**sizes, **options})


def random(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_states_by_a_loop_over_the_equations():
    """h = GRU(elu(W [s, a]), h); posterior and prior are perceptrons of [h, e] and h; std = softplus + 0.1."""
    torch.manual_seed(0)
    model, (n, t) = RSSM(4, 2, belief_size=5, state_size=3, hidden_size=6), (2, 4)
    embedding, action, noise = random(n, t, 4), random(n, t, 2, seed=2), random(n, t, 3, seed=3)
    sequence = model.observe(embedding, action, noise)

    joint = nn.Linear(5 + 4, 6)
    joint.weight.data = torch.cat([model.belief_in.weight, model.embedding_in.weight], dim=1)
    joint.bias.data = model.belief_in.bias.data
    for row in range(n):
        h, s = torch.zeros(5), torch.zeros(3)
        for k in range(t):
            h = model.cell(nn.functional.elu(model.transition_in[0](torch.cat([s, action[row, k]])))[None], h[None])[0]
            hidden = nn.functional.elu(joint(torch.cat([h, embedding[row, k]])))
            mean, raw = model.posterior_out[1](hidden).chunk(2)
            s = mean + (nn.functional.softplus(raw) + 0.1) * noise[row, k]
            assert_close(sequence.belief[row, k], h)
            assert_close(sequence.state[row, k], s)
            prior_mean, prior_raw = model.prior_net[2](nn.functional.elu(model.prior_net[0](h))).chunk(2)
            assert_close(sequence.prior[0][row, k], prior_mean)
            assert_close(sequence.prior[1][row, k], nn.functional.softplus(prior_raw) + 0.1)


def test_without_an_observation_the_posterior_is_the_prior():
    torch.manual_seed(0)
    model, observed = RSSM(4, 2, 5, 3, 6), torch.tensor([[True, False, True]])
    inputs = random(1, 3, 4), random(1, 3, 2, seed=2), random(1, 3, 3, seed=3)
    sequence = model.observe(*inputs, observed)
    kl = gaussian_kl(sequence.posterior, sequence.prior)
    assert kl[0, 1].item() == 0 and (kl[0, [0, 2]] > 0).all()
    # the missing embedding is not read, and the state is what is imagined
    changed = inputs[0].clone()
    changed[0, 1] = 100.0
    assert_close(model.observe(changed, *inputs[1:], observed).state, sequence.state)
    imagined = model.imagine(sequence.belief[:, 0], sequence.state[:, 0], inputs[1][:, 1], inputs[2][:, 1])
    assert_close(imagined, (sequence.belief[:, 1], sequence.state[:, 1]))


def play(policy, steps=5, envs=3, seeds=range(3)):
    """Decisions of several environments, with the seeds of their draws: pictures, outputs and draws of the state."""
    env = PictureReach(steps=20, image_size=16).make(envs)
    seen, _ = env.reset(seed=list(seeds))
    memory = np.zeros((envs, policy.memory_dims), np.float32)
    pictures, outputs, draws = [], [], []
    for step in range(steps):
        numbers = [100 * seed + step for seed in seeds]
        pictures.append(torch.from_numpy(seen["image"]))
        inputs = policy.encode_batch({"image": seen["image"], "memory": memory})
        outputs.append(np.stack(policy.act(inputs, Sampling(), Noise(numbers)).output))
        draws.append(Noise(numbers).normal(policy.rssm.state_size))  # the first that `act` draws
        actions, memory = zip(*map(policy.split_output, outputs[-1]))
        memory = np.stack(memory)
        seen, *_ = env.step(np.stack(actions))
    return torch.stack(pictures, 1), torch.from_numpy(np.stack(outputs, 1)), torch.stack(draws, 1)


def test_one_pass_over_an_episode_has_the_states_of_step_by_step_acting():
    policy = build_policy()
    pictures, outputs, draws = play(policy)
    actions, memories = outputs[..., :2], outputs[..., 2:]
    assert_close(memories[..., -2:], actions)  # the box is [-1, 1]
    before = torch.cat([torch.zeros(3, 1, 2), actions[:, :-1]], dim=1)
    with torch.no_grad():
        embedding = policy.encoder({"image": pictures.flatten(0, 1)}).unflatten(0, (3, 5))
        sequence = policy.rssm.observe(embedding, before, draws)
    assert_close(memories[..., :-2], sequence.features)


def test_an_environment_is_played_as_if_it_were_alone():
    policy = build_policy()
    together, alone = play(policy)[1], play(policy, envs=1, seeds=[1])[1]
    assert_close(together[1:2], alone)


def context(policy, iteration=0, steps=4, **options):
    engine = LocalEngine()
    engine.sync(policy, 0)
    return Context(
        SimTask(PictureReach(steps=steps, image_size=16)), engine, policy, Sampling(), 7, iteration=iteration, **options
    )


@pytest.mark.parametrize("uniform", [False, True])
def test_the_memory_goes_on_over_iterations_and_is_empty_at_an_episodes_start(uniform):
    """Episodes of 4 decisions in iterations of 6: cuts after 2 decisions of the second episode."""
    policy = build_policy()
    acting = UniformPolicy(policy) if uniform else policy
    rollout, last, starts = RecurrentReplayHorizon(num_envs=2, horizon=6), {}, 0
    for iteration in range(3):
        for segment in rollout.collect([], context(acting, iteration)):
            memories = [turn.completion.observation["memory"] for turn in segment.turns]
            before = last.pop(segment.prompt.key, torch.zeros(policy.memory_dims))
            assert_close(memories[0], before)
            starts += not memories[0].any()
            assert all(memory.any() for memory in memories[1:])
            if segment.ended == "cut":
                last[segment.prompt.key] = segment.following["memory"]
                assert segment.following["memory"].any()
    assert starts == 2 * 5  # 18 decisions are 4 episodes and a half
    episodes = RecurrentEpisodic(max_envs=2).collect(
        [(slot, SimTask(PictureReach(steps=4, image_size=16))[slot]) for slot in range(3)],
        context(policy, purpose="eval"),
    )
    assert all(not episode.turns[0].completion.observation["memory"].any() for episode in episodes)


def test_a_resumed_rollout_goes_on_exactly():
    policy = build_policy()
    rollout = RecurrentReplayHorizon(num_envs=2, horizon=3)
    rollout.collect([], context(policy))
    other = RecurrentReplayHorizon(num_envs=2, horizon=3)
    other.load_state_dict(copy.deepcopy(rollout.state_dict()))
    segments = [each.collect([], context(policy, 1)) for each in (rollout, other)]
    assert any(segment.turns[0].completion.observation["memory"].any() for segment in segments[0])
    for one, two in zip(*segments, strict=True):
        for a, b in zip(one.turns, two.turns):
            assert_close(a.completion.observation, b.completion.observation, rtol=0, atol=0)
            assert_close(a.completion.action, b.completion.action, rtol=0, atol=0)


def test_exploration_noise_is_added_to_sampled_actions_alone():
    policy, quiet = build_policy(exploration_noise=0.5), build_policy(exploration_noise=0.0)
    inputs = policy.encode_batch({"image": np.zeros((50, 16, 16, 3), np.uint8), "memory": np.zeros((50, 10))})
    for decode, equal in (("argmax", True), ("sample", False)):
        sampling = Sampling(decode=decode)
        noisy, plain = (each.act(inputs, sampling, Noise(range(50))) for each in (policy, quiet))
        assert torch.equal(noisy.action, plain.action) == equal
    assert (policy.to_action(noisy.action[:, 0]).abs() <= 1).all()


def test_rewards_weights_and_settings_are_saved(tmp_path):
    policy = build_policy()
    policy.save_pretrained(tmp_path)
    loaded = WorldModelPolicy(path=str(tmp_path))
    assert_close(play(loaded)[1], play(policy)[1], rtol=0, atol=0)


def test_scores_use_the_mean_of_the_posterior():
    policy = build_policy()
    batch = Batch(
        **{"obs.image": torch.zeros(3, 16, 16, 3, dtype=torch.uint8), "obs.memory": random(3, 10)},
        action=random(3, 1, 2, seed=2),
        temperature=torch.ones(3),
    )
    out = policy(batch)
    features = torch.cat(policy.observe(batch.observation(), torch.zeros(3, 3)), dim=-1)
    assert_close(out.logprobs, policy.head(policy.actor(features)).logprobs(batch["action"]))


def test_the_decoder_scores_pictures_and_states():
    """Half the squared errors of 16 * 16 * 3 pixels in [-0.5, 0.5] and of 4 numbers."""
    torch.manual_seed(0)
    decoder = ObservationDecoder([3, 2], observation_dims=4, image_size=16, depth=2, hidden=[6])
    features, image = random(2, 5), torch.randint(256, (2, 16, 16, 3), dtype=torch.uint8)
    state = random(2, 4, seed=2)
    means = decoder(features)
    assert means["image"].shape == (2, 3, 16, 16)
    pixels = image.permute(0, 3, 1, 2) / 255 - 0.5
    expected = [
        ((means["image"][i] - pixels[i]) ** 2).sum() + ((means["state"][i] - state[i]) ** 2).sum() for i in (0, 1)
    ]
    assert_close(decoder.error(features, {"image": image, "state": state}), torch.stack(expected) / 2)


def test_refusals():
    with pytest.raises(ValueError, match=r"policy\.image_size=.*sides such as 16"):
        build_policy(image_size=17)
    with pytest.raises(ValueError, match="at least 8 pixels"):
        build_policy(image_size=5)
    with pytest.raises(ValueError, match="nothing to reconstruct"):
        ObservationDecoder(4)
    policy = build_policy()
    with pytest.raises(ValueError, match="set rollout=recurrent_replay"):
        FixedHorizon(num_envs=1, horizon=1).collect([], context(policy))
    with pytest.raises(ValueError, match="has 4 numbers, not 10"):
        policy.encode_batch({"image": np.zeros((1, 16, 16, 3), np.uint8), "memory": np.zeros((1, 4))})
