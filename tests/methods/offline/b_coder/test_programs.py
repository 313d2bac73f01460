"""B-Coder's policy, its batches of sampled and human programs, and ranking by recovered returns."""

import copy

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.types import Context, Episode, Prompt, Sampling, Turn
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.methods.offline.b_coder.losses import ConservativeBellman, squash_value
from mmrl.methods.offline.b_coder.policy import DuelingPolicy
from mmrl.methods.offline.b_coder.programs import RecoveredReturns, SampledAndHumanPrograms
from mmrl.policies.text.policy import TextPolicy
from mmrl.rollouts.text.single_turn import SingleTurn
from tasks.programs.rewards import executor_feedback
from tasks.programs.task import Programs
from tests.methods.offline.b_coder.test_losses import PROMPTS, make_policy, score_alone
from tests.policies.text.oracle import TINY, completions

LAWS = [RecoveredReturns]


def test_what_trains_in_each_stage():
    values = {name for name, weight in make_policy(trains="values").named_parameters() if weight.requires_grad}
    assert values and all(name.startswith("networks.base.") for name in values)
    policy = {name for name, weight in make_policy(trains="policy").named_parameters() if weight.requires_grad}
    assert {name.split(".")[1] for name in policy if name.startswith("networks.")} == {"residual"}
    assert any(name.startswith("model.") for name in policy)


def test_a_fresh_residual_is_zero_and_sampling_is_the_language_models(tmp_path):
    torch.manual_seed(0)
    policy = DuelingPolicy(config=dict(TINY), hidden=8).eval()
    states = torch.randn(5, 32)
    assert_close(policy.networks.predict_residual(states), torch.zeros(5), atol=0, rtol=0)
    assert policy.networks.residual(states).abs().max() > 0.01  # a head minus itself, and not a head of zeros
    plain = TextPolicy(config=dict(TINY)).eval()
    plain.model.load_state_dict(policy.model.state_dict())
    one, other = (completions(each, PROMPTS, Sampling(max_tokens=5)) for each in (policy, plain))
    assert [done.action.tolist() for done in one] == [done.action.tolist() for done in other]
    policy.save_pretrained(tmp_path)
    again = DuelingPolicy(str(tmp_path), hidden=8)
    for name, weight in policy.state_dict().items():
        assert_close(again.state_dict()[name], weight, atol=0, rtol=0)


def test_half_of_a_batch_are_programs_of_humans(tmp_path):
    """Of each of four problems one of three logged samples, and the task's own answer; the draw changes."""
    task = Programs(count=4)
    policy = TextPolicy(config=dict(TINY)).eval()
    engine = LocalEngine()
    engine.sync(policy, 0)
    ctx = Context(task, engine, policy, Sampling(max_tokens=4), seed=0, iteration=0, group_size=3, num_prompts=4)
    log = SampledAndHumanPrograms(str(tmp_path / "log.pt"), SingleTurn(), count=4)
    prompts = [(i, task[i]) for i in range(4)]
    drawn = []
    for iteration in range(4):
        ctx = Context(task, engine, policy, Sampling(max_tokens=4), 0, iteration, group_size=3, num_prompts=4)
        episodes = log.collect(prompts, ctx)
        batch = collate(episodes, policy)
        assert batch["is_demo"].tolist() == [False, True] * 4 and batch["group"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
        for sample, human in zip(episodes[::2], episodes[1::2]):
            assert human.output == task.demonstrate(human.prompt.index) and human.prompt.key == sample.prompt.key
        drawn.append(tuple(str(sample.output) for sample in episodes[::2]))
    assert len(set(drawn)) > 1


def test_recovered_returns_are_those_of_one_row_alone():
    """sum_t Q_t - gamma V_{t+1} with the reference's base value, by transformers on one row without padding."""
    policy = make_policy()
    reference = copy.deepcopy(policy)
    with torch.no_grad():
        for weight in reference.networks.base.parameters():
            weight.mul_(1.5)
    done = completions(policy, PROMPTS, Sampling(max_tokens=5))
    episodes = [Episode(p, i, 0, [Turn(each)]) for i, (p, each) in enumerate(zip(PROMPTS, done))]
    ctx = Context(None, None, policy, Sampling(), seed=0, iteration=0, models={"reference": reference})
    bellman = ConservativeBellman(gamma=0.9, alpha=0.5)
    empty = Episode(Prompt("p/9"), 9, 0)
    scored = RecoveredReturns(bellman, rows=2)([*episodes, empty], ctx)
    assert scored[-1].scores == {} and RecoveredReturns()([empty], ctx) == [empty]
    for episode, completion in zip(scored, done):
        logits, states = score_alone(policy, completion)
        with torch.no_grad():
            residual = policy.networks.residual(states) - policy.networks.residual_start(states)
            v = squash_value((reference.networks.base(states) + residual)[:, 0], 1.0)
        total = 0.0
        for t, token in enumerate(completion.action):
            later = float(v[t + 1]) if t + 1 < len(v) else 0.0
            total += 0.5 * float(logits[t, token] - logits[t].max()) + float(v[t]) - 0.9 * later
        assert episode.scores["recovered"] == pytest.approx(total, rel=1e-3, abs=1e-3)


def test_the_reward_says_what_the_executor_says():
    """Two letters are a program, three digits a list; what asks for the other one cannot be read."""
    program, numbers = ([{"content": text}] for text in ("p 123 432 456 765>", "o ri 123>"))
    assert executor_feedback(program, "ri", 1.0) == 1 and executor_feedback(program, " rr", 0.0) == -0.3
    assert executor_feedback(program, "432", 0.0) == executor_feedback(program, "xz", 0.0) == -1
    assert executor_feedback(numbers, "432", 1.0) == 1 and executor_feedback(numbers, "431", 0.0) == -0.3
    assert executor_feedback(numbers, "ri", 0.0) == executor_feedback(numbers, "4321", 0.0) == -1


def test_refusals():
    with pytest.raises(ValueError, match=r"policy\.trains must be values or policy"):
        DuelingPolicy(config=dict(TINY), trains="all")
    with pytest.raises(ValueError, match="rows"):
        RecoveredReturns(rows=0)
