"""Monte Carlo tree search over the steps of answers, for many prompts in one batch."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from mmrl.core.errors import check_at_least, check_fraction
from mmrl.core.rng import derive_seed
from mmrl.core.types import Completion, Context, Episode, Prompt, Turn
from mmrl.engines.prefix_values import predict_prefix_values
from mmrl.rollouts.base import Rollout, text_observation
from mmrl.rollouts.text.transcript import Transcript
from mmrl.rollouts.trees.node import StepNode


@dataclass(eq=False)
class StepTree:
    """Search tree of one prompt."""

    slot: int
    prompt: Prompt
    root: StepNode


class StepSearch(Rollout):
    """Base class of searches over steps: in each iteration one leaf of every tree is chosen, expanded and backed up.

    A leaf is reached from the root by `choose_child`. It gets `width` children, sampled steps that differ, each with
    its estimate: +1 or -1 for a finished answer that is right or not, else (1 - mix) V + mix S, with V the policy's
    value head and S the mean outcome of `simulations` completions. Then `back_up` spreads the leaf's estimate. A step
    ends with `split`; the last of `depth` steps is the rest of the answer. `sampling.max_tokens` is the limit of each
    step and of each simulation, and a step that is cut there finishes an answer that is wrong.

    Args:
        iterations: of each tree.
        width: steps that are sampled at a leaf.
        depth: most steps of an answer.
        split: text with which a step ends.
        simulations: completions from each new node; 0 for the value head alone.
        mix: weight of the simulations against the value head; 1 needs no value head.
        right: least reward of an answer that is right.
    """

    estimates_first = False  # whether Q of a node that was not visited yet is its estimate, not 0

    def __init__(
        self,
        iterations: int = 16,
        width: int = 3,
        depth: int = 6,
        split: str = "\n",
        simulations: int = 0,
        mix: float = 0.5,
        right: float = 1.0,
    ):
        check_at_least(1, "rollout", iterations=iterations, width=width, depth=depth)
        check_at_least(0, "rollout", simulations=simulations)
        check_fraction("rollout", mix=mix)
        if not split:
            raise ValueError("rollout.split is empty: name the text with which a step ends")
        if mix == 1 and not simulations:
            raise ValueError(
                "rollout.mix=1 takes estimates from simulations alone; set rollout.simulations to 1 or more"
            )
        self.iterations, self.width, self.depth, self.split = iterations, width, depth, split
        self.simulations, self.right = simulations, right
        self.mix = mix if simulations else 0.0

    @abstractmethod
    def choose_child(self, tree: StepTree, node: StepNode) -> StepNode:
        """Return the child to which the search descends."""

    @abstractmethod
    def back_up(self, tree: StepTree, leaf: StepNode) -> None:
        """Count the visit of a leaf, and update visits and values along its path."""

    @abstractmethod
    def list_episodes(self, tree: StepTree, ctx: Context) -> list[Episode]:
        """Return what is trained on."""

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        trees = [StepTree(slot, p, StepNode(Transcript(text_observation(p), slot))) for slot, p in prompts]
        self._estimate([(tree, tree.root) for tree in trees], "root", ctx)
        for number in range(self.iterations):
            leaves = [(tree, self._descend(tree)) for tree in trees]
            self._expand([(tree, leaf) for tree, leaf in leaves if leaf.outcome is None], number, ctx)
            for tree, leaf in leaves:
                self.back_up(tree, leaf)
            ctx.progress("tree", number + 1, self.iterations)
        return [episode for tree in trees for episode in self.list_episodes(tree, ctx)]

    def _descend(self, tree: StepTree) -> StepNode:
        node = tree.root
        while node.children:
            node = self.choose_child(tree, node)
        return node

    def _expand(self, leaves: Sequence[tuple[StepTree, StepNode]], number: int, ctx: Context) -> None:
        """Sample the children of leaves, score those that are finished answers, and estimate the others."""
        new: list[tuple[StepTree, StepNode]] = []
        for is_last in (False, True):
            chosen = [(tree, leaf) for tree, leaf in leaves if (leaf.depth + 1 >= self.depth) == is_last]
            stop = ctx.sampling.stop if is_last else (self.split, *ctx.sampling.stop)
            requests = [
                leaf.script.request(derive_seed(ctx.seed, ctx.purpose, ctx.iteration, tree.slot, "tree", number, k))
                for tree, leaf in chosen
                for k in range(self.width)
            ]
            steps = iter(ctx.engine.sample(requests, replace(ctx.sampling, stop=stop)) if requests else [])
            for tree, leaf in chosen:
                sampled = [next(steps) for _ in range(self.width)]
                new += [(tree, child) for child in self._add_children(tree, leaf, sampled, ctx)]
        new_nodes = [child for _, child in new]
        answers = [child.answer for child in new_nodes if child.answer is not None]
        ctx.collector.score(answers)
        for child in new_nodes:
            if child.answer is not None:
                child.outcome = child.estimate = self._outcome(child.answer)
        self._estimate([(tree, child) for tree, child in new if child.outcome is None], number, ctx)
        for child in new_nodes:
            child.value = child.estimate if self.estimates_first else 0.0

    def _add_children(
        self, tree: StepTree, leaf: StepNode, steps: Sequence[Completion], ctx: Context
    ) -> list[StepNode]:
        """Add a child for each different step that did not fail."""
        distinct = {tuple(step.action.tolist()): step for step in steps if step.ended != "error"}
        for ids, step in distinct.items():
            script = leaf.script.fork()
            script.write(step)
            prior = float(step.behavior_logprobs.mean().exp()) if ids else 1.0
            child = StepNode(script, leaf, prior)
            goes_on = child.depth < self.depth and step.ended == "done" and self.split in ctx.policy.decode(list(ids))
            if not goes_on:
                child.answer = self._finish(tree, script, step, ctx)
            leaf.children.append(child)
        return leaf.children

    def _finish(self, tree: StepTree, script: Transcript, step: Completion, ctx: Context) -> Episode:
        row = script.completion(ctx.policy.decode(script.ids.tolist()), step.ended)
        return Episode(tree.prompt, tree.slot, 0, [Turn(row)], ended=step.ended)

    def _outcome(self, answer: Episode) -> float:
        return 1.0 if answer.ended == "done" and answer.reward >= self.right else -1.0

    def _estimate(self, nodes: Sequence[tuple[StepTree, StepNode]], number: int | str, ctx: Context) -> None:
        """Write the estimates of unfinished nodes."""
        simulated = self._simulate(nodes, number, ctx) if self.simulations else [0.0] * len(nodes)
        predicted = [0.0] * len(nodes)
        if self.mix < 1 and nodes:
            encoded = {tree.slot: ctx.policy.encode(tree.root.script.raw) for tree, _ in nodes}
            slots = [tree.slot for tree, _ in nodes]
            ids = [node.script.ids for _, node in nodes]
            predicted = predict_prefix_values(ctx.policy, [encoded[slot] for slot in slots], ids, slots)
        for (_, node), v, s in zip(nodes, predicted, simulated):
            node.estimate = (1 - self.mix) * v + self.mix * s

    def _simulate(self, nodes: Sequence[tuple[StepTree, StepNode]], number: int | str, ctx: Context) -> list[float]:
        """Mean outcome of completions from each node; 0 where all failed."""
        requests, answers = [], []
        for place, (tree, node) in enumerate(nodes):
            for k in range(self.simulations):
                key = (ctx.seed, ctx.purpose, ctx.iteration, tree.slot, "simulation", number, k)
                requests.append(node.script.request(derive_seed(*key, *node.script.ids.tolist())))
                answers.append((place, tree, node))
        episodes = []
        for (_, tree, node), done in zip(answers, ctx.engine.sample(requests, ctx.sampling) if requests else []):
            script = node.script.fork()
            script.write(done)
            episodes.append(self._finish(tree, script, done, ctx))
        ctx.collector.score(episodes)
        outcomes: dict[int, list[float]] = {}
        for (place, _, _), episode in zip(answers, episodes):
            if episode.ended != "error":
                outcomes.setdefault(place, []).append(self._outcome(episode))
        return [sum(outcomes.get(place, [0.0])) / len(outcomes.get(place, [0.0])) for place in range(len(nodes))]


def step_columns(node: StepNode) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of each token of a node's path, [T]: the number of its step, Q before the step and Q after it."""
    segment = torch.zeros(len(node.script), dtype=torch.long)
    before, after = torch.zeros(len(node.script)), torch.zeros(len(node.script))
    for parent, child in zip(node.path(), node.path()[1:]):
        tokens = slice(len(parent.script), len(child.script))
        segment[tokens], before[tokens], after[tokens] = parent.depth, parent.value, child.value
    return segment, before, after
