"""RL-GPT's policy: exploration by hand, programs saved with the weights, and what is refused."""

import pytest
import torch

from mmrl.core.batch import Batch
from mmrl.methods.exploration.rl_gpt.policy import MacroPolicy


def uniform_policy(actions, slots):
    """A policy whose legal actions are equally probable."""
    policy = MacroPolicy(observation_dims=2, actions=actions, slots=slots, hidden=[4])
    torch.nn.init.zeros_(policy.head.linear.weight)
    return policy


def logprobs(policy, action, legal, rows):
    batch = Batch(
        {
            "obs.state": torch.zeros(rows, 2),
            "obs.action_mask": torch.tensor([legal] * rows, dtype=torch.int8),
            "action": torch.full((rows, 1), action),
            "temperature": torch.ones(rows),
        }
    )
    return policy(batch).logprobs.detach().double()


def test_exploration_by_hand():
    """Ten steps of a fixed sequence with 4 equally probable actions: 4^-10 = 9.54e-7. With the sequence as a fifth
    action: 1/5 = .2, in one decision. An empty place takes no probability."""
    policy = uniform_policy(5, 1)
    steps = logprobs(policy, 2, [1, 1, 1, 1, 0], rows=10)
    assert steps.sum().exp().item() == pytest.approx(9.5367431640625e-7, rel=1e-5)
    assert logprobs(policy, 4, [1, 1, 1, 1, 1], rows=1).exp().item() == pytest.approx(0.2)
    assert logprobs(policy, 4, [1, 1, 1, 1, 0], rows=1).exp().item() == 0


def test_programs_are_saved_with_the_weights(tmp_path):
    policy = MacroPolicy(observation_dims=2, actions=6, slots=3, hidden=[4], program_bytes=40)
    assert policy.read_programs() == ["", "", ""]
    programs = ["", 'def act(state):\n    return ["ä"]\n']
    policy.write_programs(programs)
    policy.save_pretrained(tmp_path / "policy")
    again = MacroPolicy(path=str(tmp_path / "policy"))
    assert again.read_programs() == policy.read_programs() == [*programs, ""]
    policy.write_programs(["x"])
    assert policy.read_programs() == ["x", "", ""]


def test_refusals():
    policy = MacroPolicy(observation_dims=2, actions=6, slots=2, hidden=[4], program_bytes=8)
    with pytest.raises(ValueError, match=r"3 programs for policy\.slots=2; raise sim\.slots"):
        policy.write_programs(["", "", ""])
    with pytest.raises(ValueError, match=r"a program of 9 bytes for policy\.program_bytes=8"):
        policy.write_programs(["x" * 9])
    for slots in (None, 0, 6):
        with pytest.raises(ValueError, match="take sim=craft_macros"):
            MacroPolicy(observation_dims=2, actions=6, slots=slots)
    with pytest.raises(ValueError, match="program_bytes must be at least 1"):
        MacroPolicy(observation_dims=2, actions=6, slots=1, program_bytes=0)
