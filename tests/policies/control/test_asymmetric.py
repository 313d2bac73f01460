"""An asymmetric actor-critic: who reads what, and how it is trained and saved."""

import pytest
import torch
from gymnasium import spaces

from mmrl.core.batch import Batch
from mmrl.core.rng import Noise
from mmrl.core.types import Sampling
from mmrl.policies.control.critics.asymmetric import PRIVILEGED, AsymmetricPolicy

OPTIONS = {"observation_dims": 3, "privileged_dims": 5, "actions": 2, "kind": "gaussian", "hidden": [8]}


def build_policy(**options) -> AsymmetricPolicy:
    torch.manual_seed(0)
    return AsymmetricPolicy(**{**OPTIONS, **options})


def rows(n=4, **replaced) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    state, true = torch.randn(n, 3, generator=generator), torch.randn(n, 5, generator=generator)
    return {"state": state, PRIVILEGED: true, **replaced}


def box(size):
    return spaces.Box(-1, 1, (size,))


def test_actions_follow_from_the_state_and_values_from_the_true_one():
    policy, sampling = build_policy(), Sampling(decode="sample")
    first = policy.act(rows(), sampling, Noise(range(4)))
    true = policy.act(rows(**{PRIVILEGED: torch.ones(4, 5)}), sampling, Noise(range(4)))
    state = policy.act(rows(state=torch.ones(4, 3)), sampling, Noise(range(4)))
    assert torch.equal(first.action, true.action) and not torch.allclose(first.values, true.values)
    assert torch.equal(first.values, state.values) and not torch.allclose(first.action, state.action)
    assert torch.equal(first.values, policy.predict_values(rows()))


def test_a_forward_pass_repeats_what_was_sampled_and_gradients_stay_apart():
    policy = build_policy()
    sampled = policy.act(rows(), Sampling(decode="sample"), Noise(range(4)))
    columns = {f"obs.{name}": value for name, value in rows().items()}
    output = policy(Batch(**columns, action=sampled.action, temperature=torch.ones(4)))
    assert torch.allclose(output.logprobs, sampled.behavior_logprobs) and torch.equal(output.values, sampled.values)
    critic = {*policy.critic.parameters(), *policy.value_net.parameters()}
    actor = {*policy.actor.parameters(), *policy.head.parameters()}
    assert critic | actor == set(policy.parameters())
    for loss, readers in ((output.values.sum(), critic), (output.logprobs.sum(), actor)):
        policy.zero_grad()
        loss.backward(retain_graph=True)
        assert {p for p in policy.parameters() if p.grad is not None and p.grad.abs().sum() > 0} <= readers
        assert sum(float(p.grad.abs().sum()) for p in readers if p.grad is not None) > 0


def test_spaces_without_the_true_state_are_refused():
    policy, action = build_policy(low=-1, high=1), box(2)
    policy.check_spaces(spaces.Dict({"state": box(3), PRIVILEGED: box(5)}), action)
    for entries in ({"state": box(3)}, {"state": box(3), PRIVILEGED: box(4)}):
        with pytest.raises(ValueError, match=r"the critic reads observation 'privileged_state' of shape \(5,\)"):
            policy.check_spaces(spaces.Dict(entries), action)
    with pytest.raises(ValueError, match="take policy=control"):
        build_policy(privileged_dims=None)
    raw = {"state": torch.zeros(1, 3).numpy(), PRIVILEGED: torch.zeros(1, 6).numpy()}
    with pytest.raises(ValueError, match=r"has shape \(6,\), the critic reads \(5,\)"):
        policy.encode_batch(raw)


def test_a_saved_policy_is_the_same(tmp_path):
    policy = build_policy()
    policy.save_pretrained(tmp_path)
    again = AsymmetricPolicy(path=str(tmp_path))
    sampling = Sampling(decode="argmax")
    for name in ("action", "values"):
        first, second = (getattr(p.act(rows(), sampling, Noise(range(4))), name) for p in (policy, again))
        assert torch.equal(first, second)
