import torch

from mmrl.data.snapshots import Snapshots
from mmrl.policies.control.policy import ControlPolicy


def build():
    policy = ControlPolicy(3, 2)
    policy.critic.requires_grad_(False)
    return policy


def test_a_copy_stays_as_the_policy_was():
    policy, copies = build(), Snapshots()
    first = copies.of(policy, 0)
    before = {name: p.clone() for name, p in first.named_parameters()}
    with torch.no_grad():
        for p in policy.actor.parameters():
            p.add_(1.0)
    assert copies.of(policy, 0) is first and not first.training and policy.training
    for name, p in first.named_parameters():
        assert torch.equal(p, before[name])
    second = copies.of(policy, 1)
    assert second is not first
    assert all(torch.equal(a, b) for a, b in zip(second.parameters(), policy.parameters()))


def test_frozen_parameters_and_the_memory_of_old_copies_are_used_again():
    policy, copies = build(), Snapshots()
    first = copies.of(policy, 0)
    shared = [mine is its for mine, its in zip(first.parameters(), policy.parameters())]
    assert shared == [not p.requires_grad for p in policy.parameters()] and any(shared) and not all(shared)
    with torch.no_grad():
        policy.value_net.weight.add_(1.0)
    copies.keep(set())
    again = copies.of(policy, 1)
    assert again is first and torch.equal(again.value_net.weight, policy.value_net.weight)


def test_what_has_thawed_is_copied():
    policy, copies = build(), Snapshots()
    first = copies.of(policy, 0)
    copies.keep(set())
    policy.critic.requires_grad_(True)
    second = copies.of(policy, 1)
    assert second is not first
    assert not any(mine is its for mine, its in zip(second.parameters(), policy.parameters()))
