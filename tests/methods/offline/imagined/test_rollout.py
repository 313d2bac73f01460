"""Imagined conversations: rewards by hand, rows as the environment shows them, files, runs, and refusals."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

import mmrl
from mmrl.annotators.gae import GAE
from mmrl.core.batch import Batch
from mmrl.core.errors import ConfigError
from mmrl.core.types import Context, Episode, PolicyOutput, Sampling
from mmrl.engines.local import LocalEngine
from mmrl.methods.offline.ilql.losses import ExpectileValue
from mmrl.methods.offline.imagined.rollout import (
    ImaginedConversations,
    ImaginedDialogue,
    build_messages,
    pay_turns,
    read_dialogues,
)
from mmrl.objectives.actor_critic.expectile import expectile_loss
from mmrl.objectives.q import TDLoss
from mmrl.policies.text.policy import TextPolicy
from mmrl.rewards.judges.base import NoAnswer
from mmrl.rollouts.text.environment_episode import EnvironmentEpisode
from tasks.conversation_log import ConversationLog
from tasks.twenty_questions.imagined import ScriptedCritic, ScriptedDialogues
from tasks.twenty_questions.wishes import WishDialogue
from tests.methods.offline.ilql.test_losses import make_policy
from tests.methods.offline.ilql.test_policy import PROMPTS
from tests.policies.text.oracle import TINY, completions
from tests.tiny_recipes import QUIET


def test_rewards_by_hand():
    """A cost of .05 a turn, and the outcome at the last: three turns and a success are worth .85."""
    assert pay_turns(3, 1.0, 0.05) == pytest.approx([-0.05, -0.05, 0.95])
    assert pay_turns(1, 0.0, 0.05) == pytest.approx([-0.05])


def test_the_expectile_by_hand():
    """tau = .7: .7 * .6^2 = .252 above and .3 * .6^2 = .108 below."""
    assert_close(expectile_loss(torch.tensor([0.6, -0.6]), 0.7), torch.tensor([0.252, 0.108]))


def test_equal_outcomes_are_a_fixed_point_without_advantages():
    """Every dialogue earns c at its end: at Q = V = c both losses are 0, and decoding is that of the cloned model."""
    c, tokens = 0.85, 3
    batch = Batch(
        action_mask=torch.ones(4, tokens).bool(), values=torch.full((4, tokens), c),
        episode=torch.tensor([0, 0, 1, 1]), step=torch.tensor([0, 1, 0, 1]), reward=torch.tensor([0.0, c, 0.0, c]),
        is_last=torch.tensor([False, True, False, True]), bootstrap_value=torch.zeros(4),
    )  # fmt: skip
    annotated = GAE(1.0, 0.0)(batch, None)
    assert_close(annotated["returns"], torch.full((4, tokens), c))
    q = torch.full((4, tokens, 2), c)
    out = PolicyOutput(batch["values"], batch["values"], batch["values"], {"q": q, "min_target_q": q.amin(-1)})
    assert TDLoss()(out, annotated).abs().max() < 1e-12 and ExpectileValue(0.8)(out, annotated).abs().max() < 1e-12
    guided, plain = make_policy(beta=16.0), make_policy(beta=0.0)
    plain.model.load_state_dict(guided.model.state_dict())
    heads = (*guided.token_values.target_q, guided.token_values.v)
    for head in heads:
        torch.nn.init.zeros_(head[2].weight)
        torch.nn.init.constant_(head[2].bias, c)
    sampling = Sampling(max_tokens=6)
    for one, other in zip(completions(guided, PROMPTS, sampling), completions(plain, PROMPTS, sampling)):
        assert one.action.tolist() == other.action.tolist()
        assert_close(one.behavior_logprobs, other.behavior_logprobs, atol=1e-5, rtol=0)


def context(task: WishDialogue | None = None) -> Context:
    torch.manual_seed(0)
    policy, engine = TextPolicy(config=dict(TINY)).eval(), LocalEngine()
    engine.sync(policy, 0)
    return Context(task or WishDialogue(), engine, policy, Sampling(), seed=0, iteration=0)


def build(tmp_path, **options) -> ImaginedConversations:
    parts = {"writer": ScriptedDialogues(), "critic": ScriptedCritic(), "count": 12, **options}
    return ImaginedConversations(path=str(tmp_path / "start" / "imagined.jsonl"), **parts)


def test_rows_are_those_that_the_environment_shows():
    """Whatever was said, the messages before a turn are the observation of a rollout with the same turns."""
    task = WishDialogue(noise=0.0)
    prompt, actions = task[0], ["animal?", "hm", "green?", "cat!"]
    environment, turns = task.make_environment(), list[str]()
    play = EnvironmentEpisode(Episode(prompt, 0, 0), task.max_turns)
    opening = environment.reset(prompt)
    play.read(opening)
    for number, action in enumerate(actions):
        observed = [dict(message) for message in play.observation(history=7)["messages"]]
        assert (
            build_messages(prompt, opening.text, [*turns, action])[:-1] == observed and len(observed) == 2 + 2 * number
        )
        play.write(SimpleNamespace(), action)
        step = environment.step(action)
        turns += [action, step.text]
        play.read(step)
    messages = build_messages(prompt, opening.text, turns)
    assert messages[-1] == {"role": "assistant", "content": "cat!"}  # the last reply is not read by anybody


def test_dialogues_are_episodes_in_their_order(tmp_path):
    ctx, rollout = context(), build(tmp_path)
    episodes = rollout.collect([(slot, ctx.task[slot]) for slot in range(14)], ctx)
    rows = read_dialogues(tmp_path / "start" / "imagined.jsonl")
    assert len(rows) == 12 and [row.skill for row in rows] == ["good", "fair", "poor"] * 4
    for number, episode in enumerate(episodes):
        row = rows[number % 12]
        assert [turn.completion.output for turn in episode.turns] == [text for _, text in row.decisions()]
        assert [turn.reward for turn in episode.turns] == row.rewards and episode.ended == "done"
        assert {turn.completion.policy_version for turn in episode.turns} == {-1}
        assert ctx.task.score(episode) == {
            "return": pytest.approx(row.outcome - 0.05 * len(row.rewards)), "turns": len(row.rewards),
            "exact": row.outcome,
        }  # fmt: skip
    metrics = rollout.metrics()
    assert metrics["imagined/dialogues"] == 12 and 0 < metrics["imagined/success"] < 1
    assert metrics["imagined/success"] == sum(metrics[f"imagined/success/{s}"] for s in ("good", "fair", "poor")) / 3


def test_the_file_is_a_log_of_conversations(tmp_path):
    ctx = context()
    episodes = build(tmp_path).collect([(0, ctx.task[0])], ctx)
    log = ConversationLog(str(tmp_path / "start" / "imagined.jsonl"))
    assert len(log) == 12 and log[0].info["turn_rewards"] == tuple(turn.reward for turn in episodes[0].turns)
    decisions = log.demonstrations([log[0]])[0]
    assert [text for _, text in decisions] == [turn.completion.output for turn in episodes[0].turns]


class Silent:
    """Writes or judges nothing that can be used."""

    def __init__(self, answer):
        self.answer = answer

    def write(self, task, prompts, skills, seed):
        return [self.answer] * len(prompts)

    def judge(self, task, prompts, dialogues):
        return [self.answer] * len(prompts)


def test_an_engine_writes_once(tmp_path):
    ctx = context()
    first = build(tmp_path).collect([(0, ctx.task[0])], ctx)
    again = build(tmp_path, writer=Silent("no")).collect([(0, ctx.task[0])], ctx)
    assert [t.completion.output for t in again[0].turns] == [t.completion.output for t in first[0].turns]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"writer": Silent("I cannot.")}, "12 cannot be read, 0 have no judgement.*'I cannot.'"),
        ({"critic": Silent(NoAnswer("busy"))}, "0 cannot be read, 12 have no judgement"),
        ({"critic": Silent((1.0, 0.4)), "consistency": 0.5}, r"contradict rollout\.consistency=0\.5"),
    ],
)
def test_dialogues_that_cannot_be_used(tmp_path, options, words):
    ctx = context()
    with pytest.raises(ConfigError, match="0 of 12 dialogues can be used.*" + words):
        build(tmp_path, **options).collect([(0, ctx.task[0])], ctx)
    assert not (tmp_path / "start").exists()


def test_inconsistent_dialogues_are_left_out(tmp_path):
    ctx = context()
    rollout = build(tmp_path, writer=ScriptedDialogues(mistakes=0.4), consistency=0.9, count=60, max_lost=0.9)
    rollout.collect([(0, ctx.task[0])], ctx)
    rows = read_dialogues(tmp_path / "start" / "imagined.jsonl")
    assert 5 < len(rows) < 55 and min(row.consistency for row in rows) >= 0.9


def test_dialogues_are_taken_in_turn_by_iterations_and_processes(tmp_path, monkeypatch):
    """Ten dialogues. Iteration 1 begins after the prompts of iteration 0: 3, or 2 of each of 2 processes."""
    rollout = build(tmp_path)
    rollout._dialogues = list(range(10))
    monkeypatch.setattr(rollout, "_play", lambda number, slot, ctx: number)
    prompts = [(slot, None) for slot in range(2)]
    for options, numbers in (({"num_prompts": 3}, [3, 4]), ({"num_prompts": 0, "world_size": 2}, [4, 5])):
        ctx = Context(None, None, None, Sampling(), seed=0, iteration=1, **options)
        assert rollout.collect(prompts, ctx) == numbers


def build_dialogue(skill, outcome, consistency, rewards):
    return ImaginedDialogue([], rewards, skill, outcome, consistency)


def test_metrics_of_the_file_by_hand(tmp_path):
    rollout = build(tmp_path)
    assert rollout.metrics() == {"imagined/dialogues": 0}
    rollout._dialogues = [
        build_dialogue("good", 1, 1, [0, 1]),
        build_dialogue("good", 0, 0.5, [0]),
        build_dialogue("poor", 0, 0.6, [0, 0, 0]),
    ]
    assert rollout.metrics() == {
        "imagined/dialogues": 3, "imagined/turns": 2, "imagined/consistency": pytest.approx(0.7),
        "imagined/success": pytest.approx(1 / 3), "imagined/success/good": 0.5, "imagined/success/poor": 0,
    }  # fmt: skip


def test_a_dialogue_of_the_least_consistency_is_used_and_seeds_fit_31_bits(tmp_path):
    class Writes(ScriptedDialogues):
        def write(self, task, prompts, skills, seed):
            self.seeds = [*getattr(self, "seeds", []), seed]
            return ["Agent: sharp?"] * len(prompts)

    ctx = Context(WishDialogue(), None, None, Sampling(), seed=0, iteration=0)
    rollout = build(tmp_path, writer=Writes(), critic=Silent((1.0, 0.5)), consistency=0.5, count=1)
    for seed in range(12):  # one of 2^12 chances that all seeds of 32 bits are below 2^31
        assert len(rollout._imagine(replace(ctx, seed=seed))) == 1
    assert max(rollout.writer.seeds) < 2**31 and len(set(rollout.writer.seeds)) == 12


def test_a_file_whose_turn_is_no_text_is_refused(tmp_path):
    file, turns = tmp_path / "rows.jsonl", [{"role": "assistant", "content": text} for text in ("a", 7)]
    row = {"messages": turns, "rewards": [0, 1], "skill": "a", "outcome": 1, "consistency": 1}
    file.write_text(json.dumps(row) + "\n")
    with pytest.raises(ConfigError, match="is no imagined dialogue"):
        read_dialogues(file)


def test_refusals(tmp_path):
    for options in ({"count": 0}, {"step_cost": -1.0}, {"consistency": 2.0}, {"max_lost": -1.0}, {"skills": []}):
        with pytest.raises(ValueError, match=rf"rollout\.{next(iter(options))}"):
            build(tmp_path, **options)
    file = tmp_path / "rows.jsonl"
    for line in ("x", "{}", json.dumps({"messages": [], "rewards": [], "skill": "a", "outcome": 1, "consistency": 1})):
        file.write_text(line + "\n")
        with pytest.raises(ConfigError, match=r"rows\.jsonl line 1: .*is no imagined dialogue; remove the file"):
            read_dialogues(file)
    file.write_text("")
    with pytest.raises(ConfigError, match="has no line"):
        read_dialogues(file)


TINY_RUN = (
    *("policy.config.hidden_size=32", "policy.config.intermediate_size=64", "data.num_prompts=4", "rollout.count=8"),
    *("scheduler=constant", "trainer.check_val_every_n_epoch=4", "evaluation.count=2", "sampling.max_tokens=3"),
    *(word for word in QUIET if word != "trainer.logger=false"),
)


def test_a_run_that_is_resumed_is_the_run(tmp_path):
    words = ("recipe=imagined_conversations", *TINY_RUN)
    whole = mmrl.fit(*words, "trainer.max_epochs=4", f"run_dir='{tmp_path / 'whole'}'")
    part = (*words, f"run_dir='{tmp_path / 'part'}'")
    first = mmrl.fit(*part, "trainer.max_epochs=2")
    resumed = mmrl.fit(*part, "trainer.max_epochs=4", ckpt_path=first.checkpoint)
    assert resumed.last_metrics["imagined/dialogues"] == 8 and "val/greedy/scores/information" in resumed.last_metrics
    one, other = (run.load_policy().policy.state_dict() for run in (whole, resumed))
    assert all(torch.equal(value, other[name]) for name, value in one.items())
