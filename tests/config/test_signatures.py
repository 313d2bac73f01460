"""Constructor parameters through **kwargs."""

import pytest

from mmrl.config.signatures import constructor_parameters
from mmrl.data.async_data import AsyncRolloutData
from mmrl.data.rollout_data import RolloutData
from mmrl.policies.control.actor import DeterministicPolicy
from mmrl.policies.vla.small.base import ActionPolicy
from mmrl.policies.vla.small.flow import ActionFlowPolicy


@pytest.mark.parametrize(
    "part, base, own",
    [
        (AsyncRolloutData, RolloutData, {"staleness", "save_versions"}),
        (
            ActionFlowPolicy,
            ActionPolicy,
            {"chain", "teacher", "expert_layers", "timesteps_per_sample", "freeze_context", "gradient_checkpointing"},
        ),
    ],
)
def test_keywords_stand_for_the_parameters_of_the_base(part, base, own):
    assert set(constructor_parameters(part)) == own | set(constructor_parameters(base))


def test_a_constructor_that_takes_any_name_says_so():
    found = constructor_parameters(DeterministicPolicy)
    assert {"exploration_noise", "actions", "options"} <= set(found)
    assert found["options"].kind is found["options"].VAR_KEYWORD
