"""Episodes whose turns do not fit into the context: truncated by brute force, or summarized by the policy."""

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.types import Completion, Context, Sampling
from mmrl.data.collate import collate
from mmrl.engines.local import LocalEngine
from mmrl.rollouts.text.environment import EnvironmentRollout
from mmrl.rollouts.text.long_episodes import FULL, SUMMARIES, LongEpisodeRollout
from tests.rollouts.text.test_environment import POLICY, choices
from tests.text_environments import Count, texts

ASK = "?"


class Lines:
    """An engine that writes "-" for an action and s1, s2, ... for summaries."""

    def __init__(self, action="-"):
        self.raws, self.summaries, self.action = [], 0, action

    def sample(self, requests, sampling):
        return [self._one(request) for request in requests]

    def _one(self, request):
        raw = request.observation
        self.raws.append(raw)
        line = self.action
        if raw["messages"][-1]["content"] == ASK:
            self.summaries += 1
            line = f"s{self.summaries}"
        ids = POLICY.tokenize(line)
        return Completion(
            POLICY.encode(raw), ids, torch.full((len(ids),), -0.5), torch.ones(len(ids)).bool(), line,
            extra={"temperature": torch.tensor(1.0)}, prompt_id=request.prompt_id,
        )  # fmt: skip


def play(task, engine, **options):
    ctx = Context(task, engine, POLICY, Sampling(), seed=0, iteration=0)
    [episode] = LongEpisodeRollout(**options).collect([(2, task[2])], ctx)
    return episode


def draw(rollout, task, group_size=2):
    engine = LocalEngine()
    engine.sync(POLICY, 3)
    ctx = Context(task, engine, POLICY, Sampling(max_tokens=3), seed=0, iteration=0, group_size=group_size)
    return rollout.collect([(slot, task[slot]) for slot in range(3)], ctx)


def length(raw):
    return len(POLICY.encode(raw)["input_ids"])


def test_episodes_that_fit_are_those_of_the_plain_rollout():
    task = Count(chance=True, max_turns=6)
    plain = draw(EnvironmentRollout(history=1000, gamma=0.9), task)
    for context in ("truncate", "summary"):
        long = draw(LongEpisodeRollout(max_context=4000, context=context, gamma=0.9), task)
        assert choices(long) == choices(plain)
        assert [episode.info["scores"] for episode in long] == [episode.info["scores"] for episode in plain]
        for one, other in zip(long, plain):
            for turn, same in zip(one.turns, other.turns):
                assert torch.equal(turn.completion.behavior_logprobs, same.completion.behavior_logprobs)


@pytest.mark.parametrize("most", [20, 27, 34, 50])
def test_the_oldest_turns_are_left_out(most):
    """Every context is the longest tail of the conversation that fits, by trying all of them."""
    engine = Lines()
    episode = play(Count(max_turns=9), engine, max_context=most)
    assert len(episode.turns) == 9 and episode.ended == "time" and episode.info["counts"][FULL] == 0
    system, conversation = ("system", "Count to 3. "), []
    for turn, raw in enumerate(engine.raws):
        conversation += [("assistant", "-")] * (turn > 0) + [("user", f"[{-turn}]")]
        tails = [[system, *conversation[2 * first :]] for first in range(turn + 1)]
        fitting = [
            tail
            for tail in tails
            if length({**raw, "messages": [{"role": role, "content": text} for role, text in tail]}) <= most
        ]
        assert texts(raw) == fitting[0]
    assert any(len(texts(raw)) < 2 * turn + 2 for turn, raw in enumerate(engine.raws))


def test_a_summary_stands_for_the_turns_before_it():
    engine = Lines()
    options = {"context": "summary", "summary_prompt": ASK, "summary_template": " So far: {summary}", "gamma": 0.5}
    episode = play(Count(max_turns=9), engine, max_context=36, **options)
    outputs = [turn.completion.output for turn in episode.turns]
    assert outputs.count("-") == 9 == episode.info["turns"] == episode.info["scores"]["turns"]
    assert episode.info["counts"][SUMMARIES] == engine.summaries == len(outputs) - 9 >= 2
    assert all(length(raw) <= 36 for raw in engine.raws)
    asked = [row for row, raw in enumerate(engine.raws) if texts(raw)[-1] == ("user", ASK)]
    assert [outputs[row] for row in asked] == [f"s{number + 1}" for number in range(len(asked))]
    for number, row in enumerate(asked):
        # the turn after a summary shows it and the new observation; the observation was not in the question
        system, user = texts(engine.raws[row + 1])
        assert system == ("system", f"Count to 3. \n\n So far: s{number + 1}")
        assert user == ("user", f"[{-(row - number)}]") and user not in texts(engine.raws[row])
        # with all turns since the last summary the turn would not have fitted
        longer = [*engine.raws[row - 1]["messages"], {"role": "assistant", "content": "-"}]
        longer.append({"role": "user", "content": user[1]})
        assert length({**engine.raws[row], "messages": longer}) > 36
    # a summary has no reward, and discounts count the turns of the environment
    rewards = [turn.reward for row, turn in enumerate(episode.turns) if row not in asked]
    assert [episode.turns[row].reward for row in asked] == [0.0] * len(asked)
    assert episode.info["scores"]["return"] == sum(0.5**turn * reward for turn, reward in enumerate(rewards))


def test_the_reward_of_an_action_stays_with_it():
    """Three actions reach the target; the context has room for two of them."""
    engine = Lines("+")
    options = {"context": "summary", "summary_prompt": ASK, "summary_template": "{summary}"}
    episode = play(Count(), engine, max_context=21, **options)
    assert [turn.completion.output for turn in episode.turns] == ["+", "+", "s1", "+"]
    assert [turn.reward for turn in episode.turns] == [1.0, 1.0, 0.0, 1.0]
    assert episode.ended == "done" and episode.info["scores"] == {"return": 3.0, "turns": 3.0, "exact": 1.0}


def test_the_learner_scores_summaries_as_they_were_sampled():
    options = {"context": "summary", "summary_prompt": ASK, "summary_template": "{summary}"}
    episodes = draw(LongEpisodeRollout(max_context=26, **options), Count(max_turns=4))
    assert sum(episode.info["counts"][SUMMARIES] for episode in episodes)
    batch = collate(episodes, POLICY)
    with torch.no_grad():
        scored = POLICY(batch).logprobs
    mask = batch["action_mask"]
    assert_close(scored[mask], batch["behavior_logprobs"][mask], atol=2e-5, rtol=0)


def test_an_observation_that_does_not_fit_ends_the_episode_and_is_counted():
    for context in ("truncate", "summary"):
        episode = play(Count(max_turns=9), Lines(), max_context=3, context=context)
        assert episode.ended == "time" and not episode.turns and episode.info["counts"][FULL] == 1


def test_the_turns_that_are_left_are_said():
    engine = Lines()
    play(Count(max_turns=3), engine, max_context=4000, turns_left="{left} left ")
    assert [texts(raw)[-1][1] for raw in engine.raws] == ["3 left [0]", "2 left [-1]", "1 left [-2]"]
    assert texts(engine.raws[2])[1] == ("user", "[0]")


def test_what_cannot_work_is_refused():
    for options, message in (
        ({"max_context": 0}, r"rollout\.max_context"),
        ({"max_context": 9, "summary_template": "x"}, r"summary_template='x' has no \{summary\}"),
        ({"max_context": 9, "turns_left": "x"}, r"turns_left='x' has no \{left\}"),
        ({"max_context": 9, "gamma": 2.0}, "gamma"),
    ):
        with pytest.raises(ValueError, match=message):
            LongEpisodeRollout(**options)
    assert POLICY.context_length is not None
    with pytest.raises(ValueError, match=r"rollout\.max_context=\d+ and sampling\.max_tokens=\d+ are \d+ tokens, more"):
        play(Count(), Lines(), max_context=POLICY.context_length)
