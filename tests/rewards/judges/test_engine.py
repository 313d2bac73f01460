"""The policy, or a frozen model of the run, as the judge: beside the untouched model alone, in runs, and refused."""

import pytest
from transformers import Qwen2Config, Qwen2ForCausalLM

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.errors import ConfigError
from mmrl.core.types import Context, Sampling
from mmrl.engines.local import LocalEngine
from mmrl.policies.text.policy import TextPolicy
from mmrl.policies.text.tiny import character_tokenizer
from mmrl.rewards.corruption import Corruption
from mmrl.rewards.judges.engine import EngineJudge
from mmrl.rewards.judges.model import ModelJudge
from mmrl.rewards.judges.pointwise import Pointwise, YesNo
from mmrl.rewards.judges.reward import JudgeReward
from tasks.arithmetic import Arithmetic
from tests.rewards.judges.checkpoint import build_checkpoint
from tests.rewards.judges.episodes import group_of
from tests.runs.processes import run_ranks
from tests.tiny_recipes import fit, record, words

ANSWERS = ["4", "I think that it is 5", "", "about 4.0"]
JUDGED = (
    "reward=yes_no_judge",
    "reward.judge={_target_: mmrl.rewards.judges.engine.EngineJudge}",
    "data.reward.weights={exact: 0.0, digits: 0.0, judge: 1.0}",
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return [build_checkpoint(tmp_path_factory.mktemp(f"model{seed}"), seed) for seed in (0, 1)]


def bind(judge, folders, max_rows=5):
    """The judge in a run whose policy is the first checkpoint, and whose frozen model `other` is the second one."""
    policy, other = (TextPolicy(path=folder).eval() for folder in folders)
    engine = LocalEngine(max_rows)
    engine.load_models({"other": other})
    engine.sync(policy, 0)
    return judge.bind(Context(Arithmetic(), engine, policy, Sampling(), seed=0, iteration=0, models={"other": other}))


@pytest.mark.parametrize("name", [None, "other"])
def test_log_odds_are_those_of_the_model_alone(name, folders):
    """Scored in batches of 5 rows, at the temperature 1 of the judge, whatever the run's is."""
    questions = YesNo().ask(group_of(ANSWERS))
    odds = bind(EngineJudge(name), folders).judge(questions)
    expected = ModelJudge(folders[name is not None], device="cpu").judge(questions)
    assert odds == pytest.approx(expected, abs=1e-4)
    assert max(odds) - min(odds) > 1e-3


@pytest.mark.parametrize("name", [None, "other"])
def test_written_replies_are_those_of_the_model_alone(name, folders):
    questions = Pointwise().ask(group_of(ANSWERS))
    replies = bind(EngineJudge(name, max_tokens=12), folders).reply(questions)
    expected = ModelJudge(folders[name is not None], max_tokens=12, device="cpu").reply(questions)
    assert [(r.text, r.prompt_tokens) for r in replies] == [(r.text, r.prompt_tokens) for r in expected]


def test_both_kinds_of_questions_are_answered_in_order(folders):
    group = group_of(ANSWERS)
    mixed = [question for pair in zip(YesNo().ask(group), Pointwise().ask(group)) for question in pair]
    replies = bind(EngineJudge(max_tokens=4), folders).reply(mixed)
    assert [set(reply.options) for reply in replies] == [{"yes", "no"}, set()] * len(ANSWERS)


def test_a_word_that_is_no_token_is_named(folders, tmp_path):
    character_tokenizer().save_pretrained(tmp_path)
    Qwen2ForCausalLM(Qwen2Config(vocab_size=200, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                                 num_attention_heads=1, num_key_value_heads=1)).save_pretrained(tmp_path)  # fmt: skip
    with pytest.raises(ConfigError, match="no token of the policy is the word 'yes'"):
        bind(EngineJudge(), [str(tmp_path), folders[1]]).judge(YesNo().ask(group_of(["4"])))


def test_a_reward_inside_another_one_is_bound_too(folders):
    judge = EngineJudge("other")
    reward = Corruption(JudgeReward(judge, YesNo(), {"judge": 1.0}))
    assert reward.sampled_models() == {"other"}
    bound = reward.bind(bind(judge, folders).ctx)
    assert set(bound.scores(group_of(["4"]))[0]) == {"judge"}
    with pytest.raises(ConfigError, match="is asked outside of its rollouts"):
        reward.scores(group_of(["4"]))


@pytest.fixture(scope="module")
def judged(folders, tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "run"
    return [f"policy.path={folders[0]}", *JUDGED], path, folders


def test_a_run_whose_policy_judges_itself(judged):
    """Every answer has a verdict, which is the reward; held-out answers are judged too."""
    more, path, _ = judged
    run = fit(path, *more, "reward.form.probability=true", "trainer.max_epochs=2")
    rows = [row for row in run["metrics"] if "rollout/reward" in row]
    assert [row["rollout/judge_requests"] for row in rows] == [24] * 2
    assert not any(row["rollout/judge_failures"] for row in rows)
    assert all(row["rollout/reward"] == pytest.approx(row["rollout/score/judge"]) for row in rows)
    assert all(0 < row["rollout/reward"] < 1 for row in rows)
    held_out = [value for row in run["metrics"] for name, value in row.items() if name.endswith("/judge")]
    assert len(set(held_out)) > 2


@pytest.mark.slow
def test_a_sharded_judge_says_the_same_on_two_processes(judged, tmp_path):
    more, _, folders = judged
    frozen = f"+model.frozen_models.other={{_target_: mmrl.policies.text.policy.TextPolicy, path: '{folders[1]}'}}"
    run = [*more, frozen, "reward.judge.model=other", "trainer.max_epochs=1"]
    alone = fit(tmp_path / "alone", *run)
    run_ranks(["fit", *words(tmp_path / "two", *run, "strategy=fsdp2", "trainer.devices=2")], tmp_path)
    two = record(tmp_path / "two")
    for one, other in zip(alone["metrics"], two["metrics"], strict=True):
        for name in one.keys() & {"rollout/score/judge", "rollout/judge_requests"}:
            assert other[name] == pytest.approx(one[name], abs=1e-5)


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (["reward.judge.model=nobody"], r"EngineJudge of data samples from \['nobody'\]: name it under model\.frozen"),
        (["engine=vllm_server"], "reward.form=YesNo reads log-probs of the judge, and ServerEngine gives none"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_is_built(more, line):
    with pytest.raises(ConfigError, match=line):
        CLI(to_lightning(compose(["recipe=grpo", *JUDGED, *more])), build=False)
