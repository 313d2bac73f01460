"""Greedy completions as a baseline and as a filter."""

import pytest
import torch

from mmrl.core.types import Collector, Completion, Context, Episode, Prompt, Sampling, Turn
from mmrl.transforms.greedy import DropGreedySuccesses, GreedyReward


def complete(output):
    zero = torch.zeros(2)
    return Completion({}, zero.long(), zero, torch.ones(2).bool(), output)


class Engine:
    """Answers greedily with the prompt's own text."""

    def __init__(self):
        self.asked = []

    def sample(self, requests, sampling):
        self.asked.append((len(requests), sampling.decode, sampling.max_tokens))
        return [complete(request.observation["messages"][0]["content"]) for request in requests]


class Verifier(Collector):
    """A letter is right that is upper case."""

    def score(self, episodes):
        for episode in episodes:
            episode.scores = {"exact": float(episode.output.isupper())}
            episode.reward = 0.5 * episode.scores["exact"]


def play(prompts):
    """Two sampled answers to each prompt, of which the second is right."""
    engine = Engine()
    ctx = Context(None, engine, None, Sampling(max_tokens=7), seed=0, iteration=0, collector=Verifier())
    episodes = [
        Episode(
            Prompt(f"letters/train/{slot}", ({"role": "user", "content": text},)), slot, i, [Turn(complete(output))]
        )
        for slot, text in enumerate(prompts)
        for i, output in enumerate("xX")
    ]
    ctx.collector.score(episodes)
    return engine, ctx, episodes


def test_the_baseline_is_the_reward_of_the_greedy_answer_to_the_same_prompt():
    engine, ctx, episodes = play("Ab")
    out = GreedyReward()(episodes, ctx)
    assert engine.asked == [(2, "argmax", 7)]  # once per prompt
    column = [float(episode.turns[0].completion.extra["greedy_reward"]) for episode in out]
    assert column == [0.5, 0.5, 0.0, 0.0]
    assert [episode.reward for episode in out] == [0.0, 0.5, 0.0, 0.5]
    assert "greedy_reward" not in episodes[0].turns[0].completion.extra
    assert GreedyReward()([], ctx) == []


@pytest.mark.parametrize(("prompts", "kept"), [("AbCd", [1, 3]), ("AB", []), ("ab", [0, 1])])
def test_prompts_that_are_solved_greedily_are_dropped(prompts, kept):
    _, ctx, episodes = play(prompts)
    out = DropGreedySuccesses("exact")(episodes, ctx)
    assert sorted({episode.group for episode in out}) == kept and len(out) == 2 * len(kept)
    assert DropGreedySuccesses()(episodes, ctx) == episodes  # a reward of 1/2 is no success
    assert DropGreedySuccesses(success_threshold=0.5)(episodes, ctx) == out


def test_episodes_of_several_turns_are_refused():
    _, ctx, episodes = play("A")
    episodes[0].turns = [*episodes[0].turns, *episodes[0].turns]
    with pytest.raises(ValueError, match="rollout=single_turn"):
        GreedyReward()(episodes, ctx)
