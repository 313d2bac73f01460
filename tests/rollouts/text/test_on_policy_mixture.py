"""On-policy distillation's mixture of completions and demonstrations."""

import pytest

from mmrl.core.types import Context, Sampling
from mmrl.engines.local import LocalEngine
from mmrl.policies.text.policy import TextPolicy
from mmrl.rollouts.text.on_policy_mixture import OnPolicyMixture
from tasks.arithmetic.task import Arithmetic
from tests.policies.text.oracle import TINY


def collected(fraction, iteration=0, slots=range(40)):
    policy, engine, task = TextPolicy(config=dict(TINY)), LocalEngine(), Arithmetic()
    engine.sync(policy, 0)
    ctx = Context(task, engine, policy, Sampling(max_tokens=2), seed=0, iteration=iteration)
    return OnPolicyMixture(fraction).collect([(slot, task[slot]) for slot in slots], ctx)


def test_a_fraction_is_sampled_and_the_others_are_the_task_s_answers():
    episodes = collected(0.5)
    assert [episode.group for episode in episodes] == list(range(40))
    sampled = [episode for episode in episodes if episode.source == "policy"]
    assert 10 <= len(sampled) <= 30
    for episode in episodes:
        if episode.source == "demo":
            assert episode.output == Arithmetic().demonstrate(episode.group)


def test_the_draw_depends_on_iteration_and_slot_alone():
    def sources(*args):
        return {episode.group: episode.source for episode in collected(0.5, *args)}

    assert sources(1) != sources(0)
    assert sources(0, range(10, 20)).items() <= sources(0).items()


@pytest.mark.parametrize("fraction, source", [(0.0, "demo"), (1.0, "policy")])
def test_the_ends(fraction, source):
    assert {episode.source for episode in collected(fraction)} == {source}


def test_refusal():
    with pytest.raises(ValueError, match="on_policy_fraction"):
        OnPolicyMixture(1.5)
