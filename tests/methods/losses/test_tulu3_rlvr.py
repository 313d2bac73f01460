"""The reward of RLVR and its KL penalty on numbers worked by hand, as the method's configuration names them."""

import pytest
import torch
from omegaconf import OmegaConf

from mmrl.annotators.kl_penalty import KLPenalty
from mmrl.config.compose import compose
from mmrl.core.batch import Batch
from mmrl.core.types import Episode, Prompt
from mmrl.methods.losses.tulu3_rlvr import VerifiableReward


@pytest.fixture(scope="module")
def data():
    return OmegaConf.to_container(compose(["recipe=tulu3_rlvr"]).data, resolve=False)


def part(node, kind):
    assert node.pop("_target_").endswith(kind.__name__)
    return kind(**node)


def test_the_reward_by_hand(data):
    # verified: alpha = 10; wrong: 0; cut off before its end: -10, whatever the verifier says
    reward = part(dict(data["reward"]), VerifiableReward)
    cases = [("done", 1.0), ("done", 0.0), ("length", 0.0), ("length", 1.0)]
    group = [Episode(Prompt("p"), 0, i, scores={"exact": s}, ended=ended) for i, (ended, s) in enumerate(cases)]
    assert reward(group) == [10.0, 0.0, -10.0, -10.0]


def test_a_missing_score_is_refused_by_name(data):
    with pytest.raises(KeyError, match="exact"):
        part(dict(data["reward"]), VerifiableReward)([Episode(Prompt("p"), 0, 0)])


def test_the_penalty_by_hand(data):
    # beta = .05: log-probs -1.0 and -0.5 against -1.4 and -0.3 of the start: -.05 * .4 = -.02 and -.05 * -.2 = .01
    batch = Batch(
        action_mask=torch.tensor([[True, True, False]]),
        is_demo=torch.tensor([False]),
        behavior_logprobs=torch.tensor([[-1.0, -0.5, -9.0]]),
        ref_logprobs=torch.tensor([[-1.4, -0.3, -1.0]]),
    )
    penalty = part(dict(data["annotators"]["kl_penalty"]), KLPenalty)
    assert penalty(batch, None)["token_rewards"].tolist() == [pytest.approx([-0.02, 0.01, 0.0], abs=1e-6)]


def test_the_numbers_of_ppo(data):
    objective = compose(["recipe=tulu3_rlvr"]).model.objective.terms.policy
    gae = data["annotators"]["gae"]
    assert (gae["gamma"], gae["gae_lambda"], gae["whiten"]) == (1.0, 0.95, True)
    assert (objective.clip_low, objective.clip_high, data["update_epochs"]) == (0.2, 0.2, 4)
