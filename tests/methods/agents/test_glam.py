"""GLAM: the policy over admissible actions, its loss and its advantages, with numbers worked by hand."""

import math

import pytest
import torch
from hydra.utils import instantiate
from torch.testing import assert_close

from mmrl.config.layers.settings import read_paper_setting
from mmrl.core.batch import Batch
from mmrl.core.types import Context, Episode, PolicyOutput, Prompt, Request, Sampling, Turn
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.policies.text.actions.action_scorer import ActionScorer
from mmrl.rewards.compose import WeightedSum
from mmrl.rollouts.text.environment_episode import EnvironmentEpisode
from tests.composed_words import compose_words
from tests.policies.text.oracle import TINY
from tests.text_environments import Count

CFG = compose_words(("method=glam", "setting=gridworld"))


def unigram(logprobs, **options):
    """An action scorer whose network gives each token the same probability everywhere, that of its last bias."""
    torch.manual_seed(0)
    policy = ActionScorer(config=dict(TINY), **options).eval()
    tokenizer, head = policy.language_model.tokenizer, policy.language_model.model.get_output_embeddings()
    bias = torch.full((head.out_features,), -math.inf)
    for letter, value in logprobs.items():
        bias[tokenizer.convert_tokens_to_ids(letter)] = value
    bias[tokenizer.convert_tokens_to_ids("z")] = math.log1p(-sum(map(math.exp, logprobs.values())))  # the rest
    head = torch.nn.Linear(head.in_features, head.out_features)
    head.weight.data.zero_()
    head.bias.data.copy_(bias.clamp(min=-1e4))
    policy.language_model.model.set_output_embeddings(head)
    return policy


def probabilities(policy, actions):
    """Probabilities and entropies of the admissible actions by one row for each of them."""
    raw = {"messages": ({"role": "user", "content": "Go."},), "images": (), "admissible_actions": actions}
    engine = LocalEngine()
    engine.sync(policy, 0)
    done = engine.sample([Request(raw, 0)] * len(actions), Sampling())
    batch = collate([Episode(Prompt(f"p/{i}"), i, 0, [Turn(each)]) for i, each in enumerate(done)], policy)
    with torch.no_grad():
        out = policy(batch.with_columns(action=torch.arange(len(actions))[:, None]))
    return out.logprobs[:, 0].exp(), out.entropy[:, 0]


def test_the_policy_is_the_softmax_of_the_log_probabilities():
    """l = (-2.3, -1.1, -4.0): e^l = (.100259, .332871, .018316) with the sum .451446.

    Probabilities .222084, .737345, .040571; entropy -sum p ln p = .334162 + .224664 + .130031 = .688857.
    """
    probability, entropy = probabilities(unigram({"a": -2.3, "b": -1.1, "c": -4.0}), ["a", "b", "c"])
    assert_close(probability, torch.tensor([0.222084, 0.737345, 0.040571]), atol=2e-6, rtol=0)
    assert_close(entropy, torch.full((3,), 0.688857), atol=2e-6, rtol=0)


def test_the_mean_of_tokens_does_not_favour_short_actions():
    """Actions of 2, 4 and 1 tokens with the sums (-2.3, -1.1, -4.0) have the means (-1.15, -.275, -4).

    e^mean = (.316637, .759572, .018316), sum 1.094525: probabilities .289292, .693975, .016734. Letters may not have
    more than the probability 1 together, so each has e^-.2 of that, which cancels in the softmax.
    """
    letters = {"a": -1.35, "b": -0.475, "c": -4.2}
    probability, _ = probabilities(unigram(letters, reduction="mean"), ["aa", "bbbb", "c"])
    assert_close(probability, torch.tensor([0.289292, 0.693975, 0.016734]), atol=2e-6, rtol=0)


def test_equal_scores_are_a_uniform_policy():
    probability, entropy = probabilities(unigram(dict.fromkeys("abcdef", -2.0)), list("abcdef"))
    assert_close(probability, torch.full((6,), 1 / 6))
    assert_close(entropy, torch.full((6,), math.log(6)))


def test_the_loss_of_one_decision():
    """Ratio 1.5, advantage 2; values 0 before and 1 now, return 2; entropy .688857.

    Surrogate: min(1.5 * 2, 1.2 * 2) = 2.4. Value: max((1 - 2)^2, (.2 - 2)^2) = 3.24, times .5. Entropy times .01.
    Loss: -2.4 + 1.62 - .00688857 = -.78688857.
    """
    objective = instantiate(CFG.model.objective, _convert_="all")
    ratio = torch.tensor([[1.5]])
    batch = Batch(
        action=torch.zeros(1, 1, dtype=torch.long),
        action_mask=torch.ones(1, 1, dtype=torch.bool),
        behavior_logprobs=torch.zeros(1, 1),
        old_logprobs=torch.zeros(1, 1),
        advantages=torch.full((1, 1), 2.0),
        returns=torch.tensor([2.0]),
        values=torch.tensor([0.0]),
        loss_weights=torch.ones(1, 1),
    )
    loss, _ = objective(PolicyOutput(ratio.log(), torch.tensor([[0.688857]]), torch.tensor([1.0])), batch)
    assert float(loss) == pytest.approx(-0.78688857, abs=1e-6)


def test_the_advantages_of_an_episode_whose_last_turn_is_paid():
    """Three turns with the values 1, 2 and 3 and the reward 20 at the end: delta .98, .97 and 17.

    With gamma lambda = .9801: 17; .97 + .9801 * 17 = 17.6317; .98 + .9801 * 17.6317 = 18.26082917. Not whitened.
    """
    batch = Batch(
        episode=torch.zeros(3, dtype=torch.long),
        step=torch.arange(3),
        reward=torch.tensor([0.0, 0.0, 20.0]),
        values=torch.tensor([1.0, 2.0, 3.0]),
        bootstrap_value=torch.zeros(3),
        is_last=torch.tensor([False, False, True]),
        action_mask=torch.ones(3, 1, dtype=torch.bool),
    )
    context = Context(task=None, engine=None, policy=None, sampling=Sampling(), seed=0, iteration=0)
    out = instantiate(CFG.data.annotators.gae)(batch, context)
    assert_close(out["advantages"][:, 0], torch.tensor([18.26082917, 17.6317, 17.0]))
    assert_close(out["returns"], torch.tensor([19.26082917, 19.6317, 20.0]))


def test_the_prompt_has_the_last_three_observations_and_two_actions():
    task = Count(max_turns=9)
    environment = task.make_environment()
    episode = EnvironmentEpisode(Episode(task[2], 0, 0), task.max_turns)
    episode.steps.append(environment.reset(task[2]))
    for action in ("-", "-", "+"):
        episode.actions.append(action)
        episode.steps.append(environment.step(action))
    messages = episode.observation(CFG.data.rollout.history)["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert [message["content"] for message in messages[1::2]] == [step.text for step in episode.steps[-3:]]
    assert [message["content"] for message in messages[2::2]] == ["-", "+"]


def test_the_paper_multiplies_the_rewards_of_the_world_by_twenty():
    """A reward of .5 in the last turn and 19 times the return .5 at the end of the episode are 10."""
    numbers = read_paper_setting("glam")["data"]["reward"]["weights"]
    (reward,) = WeightedSum(numbers)([Episode(Prompt("p/0"), 0, 0, [], scores={"return": 0.5, "exact": 1.0})])
    assert 0.5 + reward == 10.0
