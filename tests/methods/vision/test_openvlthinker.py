"""OpenVLThinker: the reward by hand, traces of a frozen model and which of them are kept, captions of scenes."""

import pytest
import torch

from mmrl.core.types import Completion, Context, Prompt, Sampling
from mmrl.engines.base import mark_sampled
from mmrl.methods.vision.openvlthinker import SelectTraces, SolverTraces, explained_accuracy
from mmrl.policies.text.policy import TextPolicy
from mmrl.rollouts.text.scripted import scripted_episode
from tasks.scenes.captions import CaptionedCounting
from tests.composed_words import compose_words
from tests.policies.text.oracle import TINY

TASK = CaptionedCounting(colours=("red", "blue"), describe="colour", objects=(0, 3), distractors=(0, 2), question="{}?")


@pytest.mark.parametrize(
    "completion, reward",
    [
        ("<think>r b</think>one is red<answer>1</answer>", 1.0),
        ("<think>r b</think>\n <answer>1</answer>", 0.5),  # spaces explain nothing
        ("<think>r b one is red<answer>1</answer>", 0.0),  # a thought that does not end has no answer
        ("one is red<answer> 1 </answer>", 1.0),  # a template may have opened and closed the thought
        ("<answer>1</answer>", 0.5),
        ("<think>r</think>two are red<answer>2</answer>", 0.0),
        ("<think>r</think><answer>2</answer>", 0.0),
        ("<think>r</think>no tag, so all is the answer: 1", 0.0),
        ("1", 1.0),
        ("", 0.0),
    ],
)
def test_reward_by_hand(completion, reward):
    assert explained_accuracy(completion, 1) == reward


class Solver:
    """An engine whose frozen model writes the next of its texts."""

    def __init__(self, policy, *texts):
        self.policy, self.texts, self.requests = policy, list(texts), []

    def sample(self, requests, sampling):
        self.requests += requests
        out = []
        for request in requests:
            text = self.texts.pop(0)
            ids = self.policy.tokenize(text)
            mask = torch.ones(len(ids), dtype=torch.bool)
            seen = self.policy.encode(request.observation)
            ended = "done" if len(ids) < sampling.max_tokens else "length"
            out.append(mark_sampled(Completion(seen, ids, -mask.float(), mask, text, ended=ended), request.model))
        return out


def test_traces_of_the_solver_are_demonstrations_of_the_policy():
    policy = TextPolicy(config=TINY).eval()
    engine = Solver(policy, "3", "4", "12345", "")
    ctx = Context(None, engine, policy, Sampling(max_tokens=5), seed=0, iteration=0, group_size=2)
    prompts = [(slot, Prompt(f"toy/train/{slot}", ({"role": "user", "content": "1+2="},))) for slot in (4, 7)]
    rollout = SolverTraces()
    episodes = rollout.collect(prompts, ctx)
    assert {request.model for request in engine.requests} == {"solver"} == rollout.sampled_models()
    assert len({request.seed for request in engine.requests}) == 4
    assert [(e.group, e.sample_index, e.output, e.ended) for e in episodes] == [
        (4, 0, "3", "done"), (4, 1, "4", "done"), (7, 0, "12345", "length"), (7, 1, "", "done"),
    ]  # fmt: skip
    for episode in episodes:
        done = episode.turns[0].completion
        assert episode.source == "demo" and done.model is None and done.action_mask.all()
        expected = policy.encode_demonstration(episode.prompt.observation, episode.output)
        assert done.action.tolist() == expected.tolist()
    assert rollout.collect([], ctx) == []
    for episode in episodes:
        episode.reward = 1.0  # the end of the sequence is a token: "12345" has 6
    assert [e.output for e in SelectTraces(count=2, max_tokens=5)(episodes, ctx)] == ["3", "4", ""]
    assert [e.output for e in SelectTraces(count=2, max_tokens=6)(episodes, ctx)] == ["3", "4", "12345", ""]


def traces(*pairs):
    """Episodes of one prompt with these outputs and rewards."""
    out = []
    for index, (text, reward) in enumerate(pairs):
        episode = scripted_episode(Prompt("toy/train/0"), text)
        episode.sample_index, episode.reward = index, reward
        out.append(episode)
    return out


def test_correct_traces_without_repetition_are_kept():
    # of "a b a b a b" with n = 2 the grams are ab ba ab ba ab: 3 of 5 occurred before
    group = traces(("a b c", 0.5), ("a b a b a b", 1.0), ("c a b", 1.0), ("b c a", 1.0))
    texts = [e.output for e in SelectTraces(ngram=2, max_repeated=0.59)(group, None)]
    assert texts == ["c a b"]
    assert [e.output for e in SelectTraces(count=3, ngram=2, max_repeated=0.6)(group, None)] == [
        "a b a b a b", "c a b", "b c a",
    ]  # fmt: skip
    assert SelectTraces()(traces(("a", 0.0)), None) == []


@pytest.mark.parametrize("wrong", [{"count": 0}, {"max_tokens": 0}, {"max_repeated": 1.1}])
def test_refusals(wrong):
    with pytest.raises(ValueError, match=f"select_traces.{next(iter(wrong))} must be"):
        SelectTraces(**wrong)


def test_captions_name_all_objects_and_demonstrations_earn_everything():
    for task in (TASK, TASK.on("held_out")):
        for index in range(20):
            prompt, said = task[index], task.demonstrate(index)
            thought, _, rest = said.removeprefix("<think>").partition("</think>")
            tops = sorted((shape.box[1], shape.box[0], shape.colour[0]) for shape in prompt.info["shapes"])
            assert thought.split() == [letter for _, _, letter in tops]
            colour = rest.split()[1]
            assert thought.split().count(colour[0]) == prompt.answer
            assert explained_accuracy(said, prompt.answer) == 1
            assert task.score(scripted_episode(prompt, said)) == {"exact": 1.0, "format": 1.0}
    with pytest.raises(ValueError, match="different first letters"):
        CaptionedCounting(colours=("purple", "pink"))


def test_the_solver_of_the_first_round_starts_from_the_captions_and_learns_the_medium_problems():
    traces_run = compose_words(("start=openvlthinker_traces",))
    start = traces_run.trainer.callbacks.warm_start
    assert list(start.stages) == ["base", "solver"]
    solver = compose_words((*start.common, *start.stages.solver))
    assert solver.data.task.objects == traces_run.data.task.objects == [0, 3]
    assert solver.trainer.callbacks.warm_start.stages == {"sft": ["start=openvlthinker"]}
    last = compose_words(("recipe=openvlthinker",))
    assert last.data.task.objects == [0, 4]
    assert last.trainer.callbacks.warm_start.stages == {"sft": ["start=openvlthinker_traces"]}
