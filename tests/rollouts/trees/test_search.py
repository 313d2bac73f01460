"""Tree search over steps: values of prefixes, what is sampled and finished, and how draws and estimates are mixed."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from mmrl.core.types import Context, Episode, Sampling, Turn
from mmrl.data.collate import collate
from mmrl.engines.prefix_values import predict_prefix_values
from mmrl.methods.search.cpl import PlanSearch
from mmrl.policies.text.policy import TextPolicy
from mmrl.rewards.compose import WeightedSum
from mmrl.rewards.scoring import Scorer
from mmrl.rollouts.offline.demonstrations import demonstration
from mmrl.rollouts.text.transcript import Transcript
from mmrl.rollouts.trees.node import StepNode
from mmrl.rollouts.trees.search import StepTree, step_columns
from tests.methods.problems.test_ssp import Says
from tests.rollouts.text.test_tools import POLICY
from tests.tiny_recipes import Counting


def value_policy():
    torch.manual_seed(3)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    return TextPolicy(config={"model_type": "qwen2", **sizes, "num_key_value_heads": 2}, value_head=True).eval()


def test_values_of_prefixes_are_those_before_the_next_token():
    """The policy's own values of whole answers, whatever tokens follow the prefix."""
    policy, task = value_policy(), Counting()
    torch.nn.init.normal_(policy.value_head.weight)
    ctx = Context(task, None, policy, Sampling(), seed=0, iteration=0)
    answers = ["one two", "one", "three four five"]
    episodes = [
        Episode(task[n], n, 0, [Turn(demonstration(task[n].observation, text, ctx))]) for n, text in enumerate(answers)
    ]
    whole = policy(collate(episodes, policy)).values.detach()
    rows = [(n, t) for n, text in enumerate(answers) for t in range(len(text))]
    encoded = [policy.encode(task[n].observation) for n, _ in rows]
    ids = [episodes[n].turns[0].completion.action[:t] for n, t in rows]
    for per_batch in (256, 4):
        out = predict_prefix_values(policy, encoded, ids, [n for n, _ in rows], per_batch)
        assert_close(torch.tensor(out), torch.stack([whole[n, t] for n, t in rows]), atol=1e-5, rtol=1e-4)
    with pytest.raises(ValueError, match=r"set model\.policy\.value_head=true"):
        predict_prefix_values(POLICY, encoded[:1], ids[:1], [0])


class EndsWithX(Counting):
    def score(self, episode):
        return {"exact": float(str(episode.output).endswith("x"))}


def plans(text, before, number):
    """Steps "a" and "b", of which one is drawn twice; behind "a" an answer is right, behind "b" every other one."""
    if "\n" not in before:
        return "aba"[number % 3] + "\n"
    return "x" if before.startswith("a") or number % 2 else "y"


def collect(rollout, answer=plans, policy=POLICY, slots=(0, 1), **options):
    engine = Says(answer)
    ctx = Context(
        EndsWithX(), engine, policy, Sampling(**options), 0, 0, group_size=2,
        collector=Scorer(EndsWithX(), WeightedSum({"exact": 1.0})),
    )  # fmt: skip
    trees = []

    class Keeps(type(rollout)):
        def list_episodes(self, tree, ctx):
            trees.append(tree)
            return super().list_episodes(tree, ctx)

    rollout.__class__ = Keeps
    return rollout.collect([(slot, EndsWithX()[slot]) for slot in slots], ctx), trees, engine


def decode(node):
    return POLICY.decode(node.script.ids.tolist())


def test_equal_steps_are_one_child_and_the_last_step_ends_the_answer():
    _, trees, _ = collect(PlanSearch(iterations=6, width=3, depth=2, simulations=1, mix=1.0))
    for tree in trees:
        assert sorted(decode(child) for child in tree.root.children) == ["a\n", "b\n"]
        for child in tree.root.children:
            assert child.outcome is None and child.answer is None and child.depth == 1
            for leaf in child.children:
                right = decode(leaf).endswith("x")
                assert leaf.outcome == leaf.estimate == (1 if right else -1) and leaf.depth == 2
                assert leaf.answer.group == tree.slot and leaf.answer.prompt is tree.prompt
            assert len({decode(leaf) for leaf in child.children}) == len(child.children)


def test_a_step_without_its_end_is_an_answer_that_is_wrong():
    class Cut(Says):
        def _one(self, request):
            done = super()._one(request)
            return replace(done, ended="length") if done.output == "b\n" else done

    ctx = Context(
        EndsWithX(), Cut(plans), POLICY, Sampling(), 0, 0, group_size=2,
        collector=Scorer(EndsWithX(), WeightedSum({"exact": 1.0})),
    )  # fmt: skip
    rollout = PlanSearch(iterations=1, depth=4, simulations=1, mix=1.0)
    prompt = EndsWithX()[0]
    tree = StepTree(0, prompt, StepNode(Transcript(prompt.observation, 0)))
    rollout._expand([(tree, tree.root)], 0, ctx)
    assert [(decode(c), c.outcome) for c in tree.root.children] == [("a\n", None), ("b\n", -1.0)]


def test_an_estimate_mixes_the_value_head_and_simulations():
    """Behind "a" every completion is right: (1 - 1/4) V + 1/4."""
    policy = value_policy()
    torch.nn.init.normal_(policy.value_head.weight)
    _, trees, _ = collect(PlanSearch(iterations=1, depth=2, simulations=2, mix=0.25), policy=policy, slots=(0,))
    child = next(c for c in trees[0].root.children if decode(c) == "a\n")
    encoded = policy.encode(trees[0].prompt.observation)
    (value,) = predict_prefix_values(policy, [encoded], [child.script.ids], [0])
    assert child.estimate == pytest.approx(0.75 * value + 0.25, abs=1e-5)
    _, trees, _ = collect(PlanSearch(iterations=1, depth=2), policy=policy, slots=(0,))
    child = next(c for c in trees[0].root.children if decode(c) == "a\n")
    assert child.estimate == pytest.approx(value, abs=1e-5)


def test_columns_of_steps():
    _, trees, _ = collect(PlanSearch(iterations=4, depth=2, simulations=1, mix=1.0), slots=(0,))
    leaf = trees[0].root.children[0].children[0]
    segment, before, after = step_columns(leaf)
    root, step, end = leaf.path()
    assert segment.tolist() == [0, 0, 1]
    assert_close(before, torch.tensor([root.value, root.value, step.value]))
    assert_close(after, torch.tensor([step.value, step.value, end.value]))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"width": 0}, "width"),
        ({"split": ""}, r"rollout\.split is empty"),
        ({"mix": 1.5}, "mix"),
        ({"mix": 1.0}, r"set rollout\.simulations"),
    ],
)
def test_options_that_cannot_be_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        PlanSearch(**options)
