"""EPO: strategies of the policy, actions of a frozen actor, and returns of the turns that a judge calls decisive."""

from dataclasses import dataclass, field, replace

import pytest
import torch
from torch.testing import assert_close

from mmrl.commands.cli import CLI
from mmrl.config.compose import compose, to_lightning
from mmrl.core.batch import Batch
from mmrl.core.errors import ConfigError
from mmrl.core.types import Completion, Context, Episode, Sampling, Turn
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.methods.agents.epo.process_rewards import DecisiveTurns, TurnReturns
from mmrl.methods.agents.epo.strategies import StrategyDemonstrations, StrategyRollout
from mmrl.policies.text.policy import TextPolicy
from tests.laws.example import Example
from tests.policies.text.oracle import TINY, decided
from tests.text_environments import Count, texts
from tests.tiny_recipes import Watcher, record, words

LAWS = [
    Example(TurnReturns(0.9)),
    Example(TurnReturns(0.9, None)),
]

torch.manual_seed(0)
POLICY, ACTOR = (decided(TextPolicy(config=TINY)).eval() for _ in range(2))
TASK = Count()


def completion(text, raw=None):
    ids = POLICY.tokenize(text)
    seen = POLICY.encode(raw or TASK[0].observation)
    extra = {"temperature": torch.tensor(1.0)}
    return Completion(seen, ids, torch.full((len(ids),), -0.5), torch.ones(len(ids)).bool(), text, extra=extra)


@dataclass
class Says:
    """An engine whose models write the next of their texts."""

    lines: dict[str | None, list[str]]
    asked: list = field(default_factory=list)

    def sample(self, requests, sampling):
        self.asked += requests
        raws = [{**request.observation, "images": ()} for request in requests]
        return [completion(self.lines[request.model].pop(0), raw) for request, raw in zip(requests, raws)]


def context(engine, **options):
    return Context(TASK, engine, POLICY, Sampling(max_tokens=4), seed=0, iteration=0, **options)


def test_the_actor_reads_the_strategy_and_acts():
    """To reach 2: the policy says "go", "ab" and "on", the actor "+", "-", "+" and then "+"."""
    engine = Says({None: ["go", "ab", "on", "up"], "actor": ["+", "-", "+", "+"]})
    (episode,) = StrategyRollout(template=" plan: {strategy}", history=1).collect([(0, TASK[1])], context(engine))
    assert [turn.completion.output for turn in episode.turns] == ["+", "-", "+", "+"]
    assert [POLICY.decode(turn.completion.action.tolist()) for turn in episode.turns] == ["go", "ab", "on", "up"]
    assert [turn.reward for turn in episode.turns] == [1, 0, 1, 1] and episode.info["scores"]["exact"] == 1
    assert all(turn.completion.action_mask.all() for turn in episode.turns) and episode.tokens == 8
    own, actors = engine.asked[::2], engine.asked[1::2]
    system, past = ("system", "Count to 2. "), [("user", "[0]"), ("assistant", "+")]
    assert texts(own[1].observation) == [system, *past, ("user", "[1]")]
    assert texts(actors[1].observation) == [system, *past, ("user", "[1] plan: ab")]
    assert {request.model for request in own} == {None} and {request.model for request in actors} == {"actor"}
    assert len({request.seed for request in engine.asked}) == 8


def test_images_stay_before_the_strategy():
    engine = Says({None: ["go"], "actor": ["+"]})
    StrategyRollout().collect([(0, Count(images=True)[0])], replace(context(engine), task=Count(images=True)))
    assert texts(engine.asked[1].observation)[-1] == ("user", "<image>[0]go\n>")


def test_an_actor_is_shown_to_follow_strategies():
    """The expert adds one, a random action is "+" or "-": the strategy in the prompt is the action in either case."""
    episodes = StrategyDemonstrations(random_fraction=0.5).collect([(i, TASK[i]) for i in range(12)], context(None))
    done = [turn.completion for episode in episodes for turn in episode.turns]
    assert {each.output for each in done} == {"+", "-"} and all(episode.source == "demo" for episode in episodes)
    for each in done:
        prompt = POLICY.decode(each.observation["input_ids"].tolist())
        assert prompt.endswith(f"]{each.output}\n>") and POLICY.decode(each.action.tolist()) == each.output


def test_rows_have_the_policys_probabilities_and_do_not_depend_on_the_processes():
    engine = LocalEngine()
    engine.load_models({"actor": ACTOR})
    engine.sync(POLICY, 0)
    slots = [(slot, TASK[slot]) for slot in range(6)]
    everyone = StrategyRollout().collect(slots, context(engine, group_size=2))
    batch = collate(everyone, POLICY)
    with torch.no_grad():
        out, actor = POLICY(batch), ACTOR(batch)
    mask = batch["action_mask"]
    assert_close(out.logprobs[mask], batch["behavior_logprobs"][mask], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(actor.logprobs[mask], out.logprobs[mask], atol=1e-2)
    assert (batch["policy_version"] == 0).all()
    parts = [
        episode
        for rank in range(2)
        for episode in StrategyRollout().collect(slots[rank::2], context(engine, group_size=2, rank=rank, world_size=2))
    ]
    parts.sort(key=lambda episode: (episode.group, episode.sample_index))
    for one, other in zip(everyone, parts, strict=True):
        assert [t.completion.action.tolist() for t in one.turns] == [t.completion.action.tolist() for t in other.turns]
        assert [t.completion.output for t in one.turns] == [t.completion.output for t in other.turns]


def four_turns():
    turns = [Turn(completion(text), reward=1.0) for text in "abcd"]
    turns = [replace(turn, completion=replace(turn.completion, output="+")) for turn in turns]
    return Episode(TASK[0], 0, 0, turns, reward=8.0)


def test_the_turns_that_the_judge_lists_get_the_score():
    """Turns 2 and 4 of four, score 8: rewards 0, 8, 0, 8; there is no turn 7."""
    engine = Says({"judge": ["Turns 2, 4 and 7."]})
    (labelled,) = DecisiveTurns("judge")([four_turns()], context(engine))
    batch = collate([labelled], POLICY)
    assert batch["reward"].tolist() == [0, 8, 0, 8] and batch["episode_reward"].tolist() == [8] * 4
    assert labelled.info["counts"] == {"decisive_turns": 2.0}
    asked = texts(engine.asked[0].observation)[-1][1]
    assert asked.startswith("\nTurn 1. Strategy: a. Action: +.\nTurn 2. Strategy: b. Action: +.")
    assert "score is 8." in asked and engine.asked[0].model == "judge"
    (none,) = DecisiveTurns("judge")([four_turns()], context(Says({"judge": ["None of them."]})))
    assert collate([none], POLICY)["reward"].tolist() == [0, 0, 0, 0]


def test_without_a_judge_the_last_turn_is_decisive():
    (labelled,) = DecisiveTurns()([four_turns()], context(None))
    assert collate([labelled], POLICY)["reward"].tolist() == [0, 0, 0, 8]


def rewarded(rewards):
    n = len(rewards)
    columns = {"episode": torch.zeros(n).long(), "step": torch.arange(n), "action_mask": torch.ones(n, 1).bool()}
    return Batch(reward=torch.tensor(rewards), **columns)


@pytest.mark.parametrize(
    ("gamma", "baseline", "expected"),
    [
        (0.9, None, [13.032, 14.48, 7.2, 8.0]),  # 8; .9 * 8; 8 + .9 * 7.2; .9 * 14.48
        (0.9, "mean", [2.354, 3.802, -3.478, -2.678]),  # minus 42.712 / 4 = 10.678
        (1.0, None, [16.0, 16.0, 8.0, 8.0]),
        (0.0, None, [0.0, 8.0, 0.0, 8.0]),
    ],
)
def test_returns_of_the_decisive_turns(gamma, baseline, expected):
    batch = rewarded([0.0, 8.0, 0.0, 8.0])
    found = TurnReturns(gamma, baseline)(batch, context(None))["advantages"][:, 0]
    assert_close(found, torch.tensor(expected))
    order = torch.tensor([2, 0, 3, 1])
    mixed = TurnReturns(gamma, baseline)(Batch({k: v[order] for k, v in batch.items()}), context(None))
    assert_close(mixed["advantages"][:, 0], torch.tensor(expected)[order])


def test_rows_without_a_choice_have_no_part_in_the_baseline():
    """Two episodes at discount .5: returns 2 + 4 / 2 = 4 and 4, and 6 of a row whose choices are all forced."""
    batch = Batch(
        reward=torch.tensor([2.0, 4.0, 6.0]),
        episode=torch.tensor([7, 7, 9]),
        step=torch.tensor([0, 1, 0]),
        action_mask=torch.tensor([[1, 0], [1, 1], [0, 0]]).bool(),
    )
    advantages = TurnReturns(0.5)(batch, context(None))["advantages"]
    assert_close(advantages, torch.zeros(3, 2))  # minus (4 + 4) / 2
    batch["reward"] = torch.tensor([2.0, 2.0, 6.0])  # returns 3 and 2 minus 2.5
    assert_close(TurnReturns(0.5)(batch, context(None))["advantages"], torch.tensor([[0.5, 0], [-0.5, -0.5], [0, 0]]))


def test_without_a_decisive_turn_there_is_nothing_to_learn():
    assert (TurnReturns()(rewarded([0.0, 0.0, 0.0]), context(None))["advantages"] == 0).all()


def test_refusals():
    for rollout in (StrategyRollout, StrategyDemonstrations):
        with pytest.raises(ValueError, match=r"has no \{strategy\}"):
            rollout(template="act")
    with pytest.raises(ValueError, match=r"turn_returns\.gamma must be in \[0, 1\]"):
        TurnReturns(1.1)
    for more, part, name in (
        (["rollout.actor=other"], "StrategyRollout", "other"),
        (["data.transforms.decisive_turns.judge=judge"], "DecisiveTurns", "judge"),
    ):
        with pytest.raises(
            ConfigError, match=rf"{part} of data samples from \['{name}'\]: name it under model\.frozen"
        ):
            CLI(to_lightning(compose(["recipe=epo", *more])), build=False)


def test_a_run_trains_the_policy_and_not_the_actor(tmp_path):
    model = "{_target_: mmrl.policies.text.policy.TextPolicy, config: '${model.policy.config}'}"
    parts = (
        "data.task._target_=tests.text_environments.Count",
        "data.rollout={_target_: mmrl.methods.agents.epo.strategies.StrategyRollout}",
        "data.evaluation.rollout=${data.rollout}",
        "data.reward.weights={return: 1.0}",
        "data.transforms={decisive_turns: {_target_: mmrl.methods.agents.epo.process_rewards.DecisiveTurns}}",
        "data.annotators.turn_returns={_target_: mmrl.methods.agents.epo.process_rewards.TurnReturns}",
        "data.transforms.drop_zero_variance=null",
        "data.pipeline=[turn_returns]",
        f"+model.frozen_models={{actor: {model}}}",
        "trainer.max_epochs=1",
    )
    cli, watcher = CLI(to_lightning(compose(words(tmp_path, *parts)))), Watcher()
    cli.trainer.callbacks.append(watcher)
    cli.fit()
    changed = {name for name, value in watcher.ends[0].items() if not torch.equal(value, watcher.start[name])}
    assert changed and all(name.startswith("policy.") for name in changed)
    assert any(name.startswith("models.actor.") for name in watcher.start)
    metrics = record(tmp_path)["metrics"][-1]
    assert metrics["engine/actor/tokens"] > 0 and metrics["rollout/decisive_turns"] == 24
