"""LocalEngine: order, encoding once, transfers, cached_features and refusals; draws are tested with the policies."""

from dataclasses import replace

import pytest
import torch

from mmrl.core.batch import Batch
from mmrl.core.types import PolicyOutput, Request, Sampling
from mmrl.engines.base import distinct
from mmrl.engines.local import LocalEngine
from mmrl.policies.base import Action, Policy


class Echo(Policy):
    """Answers with its input: choices [length, 1, 1, ...], each row as long as its input says."""

    cached_inputs = frozenset({"raw"})

    def __init__(self, cached_features: bool = False):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.cached_features, self.encoded, self.sizes, self.modes = cached_features, 0, [], []

    def encode(self, raw):
        self.encoded += 1
        return {"input_ids": torch.full((raw["length"],), raw["length"]), "raw": torch.tensor(raw["length"])}

    def act(self, observation, sampling, noise):
        lengths = observation["raw"]
        self.sizes.append(len(lengths))
        self.modes.append((self.training, torch.is_grad_enabled()))
        mask = torch.arange(int(lengths.max()))[None] < lengths[:, None]
        action = torch.where(mask, lengths[:, None], 0)
        cached_features = {"feature": lengths[:, None] * 2.0} if self.cached_features else {}
        extra = {"support_ids": action[..., None]}
        return Action(
            action,
            noise.uniform(action.shape[1]).log(),
            mask,
            lengths.tolist(),
            extra=extra,
            cached_features=cached_features,
        )

    def forward(self, batch: Batch) -> PolicyOutput:
        raise NotImplementedError

    def save_pretrained(self, folder):
        raise NotImplementedError


def asked(policy, lengths, **options):
    engine = LocalEngine(**options)
    engine.sync(policy, 7)
    requests = [Request({"length": n}, seed, prompt_id=n) for seed, n in enumerate(lengths)]
    return engine.sample(requests, Sampling(temperature=0.5))


def test_completions_come_in_the_order_of_the_requests_and_at_their_own_length():
    lengths = [3, 1, 5, 2, 5, 4]
    done = asked(Echo(), lengths, max_rows=2)
    assert [c.output for c in done] == lengths
    for n, completion in zip(lengths, done):
        assert (
            completion.action.tolist() == [n] * n
            and completion.action_mask.all()
            and len(completion.behavior_logprobs) == n
        )
        assert completion.extra["support_ids"].shape == (n, 1) and completion.extra["temperature"] == 0.5
        assert completion.policy_version == 7 and completion.ended == "done" and completion.value is None


class Valued(Echo):
    def act(self, observation, sampling, noise):
        return replace(super().act(observation, sampling, noise), values=observation["raw"] / 2)


def test_values_come_in_the_order_of_the_observations():
    engine = LocalEngine(max_rows=2)
    engine.sync(Valued(), 7)
    assert engine.predict_values([{"length": n} for n in (3, 1, 5)]) == [1.5, 0.5, 2.5]
    assert engine.predict_values([]) == []
    engine.sync(Echo(), 7)
    assert engine.predict_values([{"length": 3}]) == [0.0]  # no value function


def test_batches_hold_requests_of_similar_length():
    policy = Echo()
    asked(policy, [9, 1, 8, 2, 7], max_rows=2)
    assert policy.sizes == [2, 2, 1]


def test_the_completions_of_a_group_are_encoded_once():
    policy = Echo()
    asked(policy, [4, 4, 4, 2])
    assert policy.encoded == 2


def test_completions_that_wrote_and_were_told_the_same_are_one_context():
    raw = {"length": 3}
    reported = [torch.tensor(ids) for ids in ([1, 2], [1, 2], [1, 3], [1, 2])]
    first, owner = distinct([Request(raw, seed, prefix, 0) for seed, prefix in enumerate(reported)])
    assert owner == [0, 0, 1, 0] and [r.prefix.tolist() for r in first] == [[1, 2], [1, 3]]
    # nothing stands after the first two; another prompt id is another context, whatever the observation holds
    ids = [(None, 0), (None, 0), (reported[0], 0), (reported[0], 1), (None, None), (None, None)]
    assert distinct([Request(raw, 0, prefix, number) for prefix, number in ids])[1] == [0, 0, 1, 2, 3, 4]


def test_acting_is_without_gradient_in_evaluation_mode_and_leaves_the_mode_alone():
    policy = Echo().train()
    asked(policy, [1, 2])
    assert policy.modes == [(False, False)] and policy.training
    policy.eval()
    asked(policy, [1])
    assert not policy.training


def test_a_memo_stands_for_the_inputs_that_it_was_made_from():
    (completion,) = asked(Echo(cached_features=True), [3])
    assert set(completion.observation) == {"input_ids", "feature"} and completion.observation["feature"].tolist() == [
        6.0
    ]
    (completion,) = asked(Echo(), [3])
    assert set(completion.observation) == {"input_ids", "raw"}


def test_refusals():
    with pytest.raises(ValueError, match=r"engine\.max_rows"):
        LocalEngine(0)
    with pytest.raises(RuntimeError, match="no weights yet"):
        LocalEngine().sample([], Sampling())
