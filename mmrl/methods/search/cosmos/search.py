"""COS(M+O)S: tree search over the steps of a story, and pairs of sibling steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import torch

from mmrl.annotators.logprobs import score_rows
from mmrl.core.errors import ConfigError, check_at_least
from mmrl.core.rng import derive_seed
from mmrl.core.types import Context, Episode, Prompt, Request, Turn
from mmrl.data.collate import collate
from mmrl.methods.search.cosmos.value import QUESTION, StoryValue, read_coherence
from mmrl.ops.masked import masked_mean
from mmrl.rewards.judges.base import LanguageJudge, NoAnswer
from mmrl.rewards.judges.questions import Question
from mmrl.rollouts.base import text_observation
from mmrl.rollouts.offline.demonstrations import demonstrated_choices
from mmrl.rollouts.trees.node import StepNode
from mmrl.rollouts.trees.search import StepSearch, StepTree
from mmrl.transforms.best_worst import label_preference


def uct(value: float, visits: int, parent_visits: int, exploration: float = 1.4) -> float:
    """Q + c sqrt(ln N_parent / N); infinite where N = 0."""
    return value + exploration * math.sqrt(math.log(max(parent_visits, 1)) / visits) if visits else math.inf


def select_siblings(root: StepNode, gap: float = 0.1, count: int = 8) -> list[tuple[StepNode, StepNode]]:
    """Pairs (best, worst) of the children of a node whose Q differ by more than a gap; `count` of the largest gaps."""
    pairs = []
    for node in root.nodes():
        if len(node.children) >= 2:
            best, worst = max(node.children, key=lambda n: n.value), min(node.children, key=lambda n: n.value)
            if best.value - worst.value > gap:
                pairs.append((best, worst))
    return sorted(pairs, key=lambda pair: pair[1].value - pair[0].value)[:count]


class StorySearch(StepSearch):
    """Tree search over the steps of a story, which is a prompt and its continuation.

    Children are chosen by `uct`, and a node's Q is the mean of the values of the leaves below it. The value of a story
    so far is a `StoryValue`. Before the first collection the policy writes `rated` stories to training prompts, and
    `StoryValue.fit` learns from their scores by the task; no other score is asked. With returns="pairs" a pair of
    siblings (`select_siblings`) is a group of two rows, each a step behind the steps before it; a tree without a pair
    gives one row without a preference. With returns="story" it is the finished story of highest value.
    Source: COS(M+O)S, 2025, sections 3.2 to 3.5, arXiv:2501.17104.

    Args:
        iterations: as in `StepSearch`.
        width: as in `StepSearch`.
        depth: as in `StepSearch`.
        split: as in `StepSearch`.
        exploration: c of `uct`.
        base: the model of surprisal, by its name in `model.frozen_models`.
        judge: of coherence; None judges nothing.
        question: to the judge, with {story}.
        rating: score of the task that the value learns.
        rated: stories that are rated.
        gap: of `select_siblings`.
        max_pairs: of a tree.
        returns: "pairs" or "story".
        rows: texts per forward pass of the base model.
    """

    estimates_first = True

    def __init__(
        self,
        iterations: int = 16,
        width: int = 4,
        depth: int = 4,
        split: str = "\n",
        exploration: float = 1.4,
        base: str = "base",
        judge: LanguageJudge | None = None,
        question: str = QUESTION,
        rating: str = "quality",
        rated: int = 128,
        gap: float = 0.1,
        max_pairs: int = 8,
        returns: Literal["pairs", "story"] = "pairs",
        rows: int = 128,
    ):
        super().__init__(iterations, width, depth, split)
        check_at_least(0, "rollout", exploration=exploration, gap=gap)
        check_at_least(1, "rollout", max_pairs=max_pairs, rows=rows)
        check_at_least(4, "rollout", rated=rated)
        if returns not in ("pairs", "story"):
            raise ValueError(f"rollout.returns must be pairs or story, got {returns!r}")
        if "{story}" not in question:
            raise ValueError(f"rollout.question={question!r} lacks {{story}}; write it at the end")
        self.exploration, self.base, self.judge, self.question = exploration, base, judge, question
        self.rating, self.rated, self.gap, self.max_pairs = rating, rated, gap, max_pairs
        self.returns, self.rows = returns, rows
        self.value: StoryValue | None = None

    @classmethod
    def writes(cls) -> frozenset[str]:
        return frozenset({"preference"})

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        if self.value is None:
            self.value = self.fit_value(ctx)
        return super().collect(prompts, ctx)

    def fit_value(self, ctx: Context) -> StoryValue:
        """Fit the value to stories that the policy writes to training prompts, the same on all ranks."""
        task = ctx.task.on("train")
        prompts = [task[index % len(task)] for index in range(self.rated)]
        seeds = [derive_seed("rated", ctx.seed, number) for number in range(self.rated)]
        requests = [Request(text_observation(prompt), seed) for prompt, seed in zip(prompts, seeds)]
        stories = [
            Episode(prompt, number, 0, [Turn(done)], ended=done.ended)
            for number, (prompt, done) in enumerate(zip(prompts, ctx.engine.sample(requests, ctx.sampling)))
            if done.ended != "error"
        ]
        scores = task.scores(stories)
        if missing := [story.prompt.key for story, score in zip(stories, scores) if self.rating not in score]:
            raise ConfigError(
                f"rollout.rating={self.rating!r} is no score of {missing[0]!r}, which has {list(scores[0])}"
            )
        texts = [(text_observation(story.prompt), str(story.output)) for story in stories]
        features = self.measure(texts, ctx)
        return StoryValue.fit(*zip(*features), [score[self.rating] for score in scores])

    def measure(self, texts: Sequence[tuple[Any, str]], ctx: Context) -> list[tuple[float, float]]:
        """Mean surprisal in nats per token under the base model, and coherence, of (observation, text)."""
        if self.base not in ctx.models:
            raise ConfigError(
                f"rollout.base={self.base!r} is no model of the run; name it under model.frozen_models, as in "
                f"+model.frozen_models.{self.base}={{_target_: mmrl.policies.text.policy.TextPolicy, path: FOLDER}}"
            )
        base = ctx.models[self.base]
        rows = []
        for number, (raw, text) in enumerate(texts):
            action = base.encode_demonstration(raw, text)
            mask = torch.ones(len(action), dtype=torch.bool)
            mask[-1] = len(action) == 1  # a story that goes on has no end yet
            done = demonstrated_choices(action, base.encode(raw), text, mask)
            rows.append(Episode(Prompt(f"story/{number}"), number, 0, [Turn(done)]))
        batch = collate(rows, base)
        logprobs = score_rows(base, batch, lambda out: out.full_logprobs, self.rows, ctx.device)
        surprisals = (-masked_mean(logprobs, batch["action_mask"], 1)).tolist()
        return list(zip(surprisals, self._judge(texts)))

    def _judge(self, texts: Sequence[tuple[Any, str]]) -> list[float]:
        if self.judge is None:
            return [0.0] * len(texts)
        asked = []
        for raw, text in texts:
            opening = str(raw["messages"][-1]["content"]).rstrip(":")
            asked.append(Question(self.question.replace("{story}", f"{opening} {text}".strip()), read_coherence))
        return [0.0 if isinstance(share, NoAnswer) else share for share in self.judge.judge(asked)]

    def choose_child(self, tree: StepTree, node: StepNode) -> StepNode:
        return max(node.children, key=lambda child: uct(child.value, child.visits, node.visits, self.exploration))

    def back_up(self, tree: StepTree, leaf: StepNode) -> None:
        for node in leaf.path():
            node.visits += 1
            node.value += (leaf.estimate - node.value) / node.visits

    def _expand(self, leaves: Sequence[tuple[StepTree, StepNode]], number: int, ctx: Context) -> None:
        super()._expand(leaves, number, ctx)
        # finished stories have a value as the others do, not an outcome
        finished = [(tree, child) for tree, leaf in leaves for child in leaf.children if child.outcome is not None]
        self._estimate(finished, number, ctx)
        for _, child in finished:
            child.value = child.estimate

    def _estimate(self, nodes: Sequence[tuple[StepTree, StepNode]], number: int | str, ctx: Context) -> None:
        written = [(tree, node) for tree, node in nodes if len(node.script)]
        if not written:
            return
        assert self.value is not None
        texts = [(tree.root.script.raw, self._read(node, ctx)) for tree, node in written]
        for (_, node), (surprisal, coherence) in zip(written, self.measure(texts, ctx)):
            node.estimate = self.value(surprisal, coherence)

    def _read(self, node: StepNode, ctx: Context) -> str:
        text = ctx.policy.decode(node.script.ids.tolist())
        return text if node.outcome is not None else text.removesuffix(self.split)

    def list_episodes(self, tree: StepTree, ctx: Context) -> list[Episode]:
        if not tree.root.children:
            error = {"error": "no step could be sampled", "counts": {"tree/failed": 1}}
            return [Episode(tree.prompt, tree.slot, 0, ended="error", info=error)]
        return self._best_story(tree, ctx) if self.returns == "story" else self._list_pairs(tree)

    def _best_story(self, tree: StepTree, ctx: Context) -> list[Episode]:
        """Return the finished story of highest value; the path of highest Q is written to its end first."""
        node = tree.root
        while node.outcome is None:
            if not node.children:
                self._expand([(tree, node)], self.iterations + node.depth, ctx)
            if not node.children:
                break
            node = max(node.children, key=lambda child: child.value)
        finished = [node for node in tree.root.nodes() if node.answer is not None]
        if not finished:
            error = {"error": "no story could be finished", "counts": {"tree/failed": 1}}
            return [Episode(tree.prompt, tree.slot, 0, ended="error", info=error)]
        best = max(finished, key=lambda node: node.estimate)
        assert best.answer is not None
        return [replace(best.answer, info={"counts": {"tree/finished": len(finished)}})]

    def _list_pairs(self, tree: StepTree) -> list[Episode]:
        """Return a group of two rows for each pair of siblings."""
        pairs, first = select_siblings(tree.root, self.gap, self.max_pairs), tree.slot * self.max_pairs
        out = [
            label_preference(Episode(tree.prompt, first + number, index, [write_step(node)]), sign)
            for number, pair in enumerate(pairs)
            for index, (node, sign) in enumerate(zip(pair, (1, -1)))
        ]
        if not out:
            out = [label_preference(Episode(tree.prompt, first, 0, [write_step(tree.root.children[0])]), 0)]
        out[0].info["counts"] = {"tree/pairs": len(pairs), "tree/searched": 1}
        return out

    def metrics(self) -> dict[str, float]:
        """Peak of the inverted U in nats per token, and the weights of curiosity and coherence."""
        if self.value is None:
            return {}
        _, curiosity, order = self.value.weights
        return {"story/best_surprisal": self.value.best, "story/curiosity": curiosity, "story/coherence": order}

    def state_dict(self) -> dict[str, Any]:
        if self.value is None:
            return {}
        return {"best": self.value.best, "width": self.value.width, "weights": list(self.value.weights)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state:
            self.value = StoryValue(state["best"], state["width"], tuple(state["weights"]))


def write_step(node: StepNode) -> Turn:
    """Return the row of a step, of which the steps before it are context and are not trained on."""
    done = node.script.completion("", "done")
    before = len(node.parent.script) if node.parent is not None else 0
    mask = done.action_mask & (torch.arange(len(done.action_mask)) >= before)
    return Turn(replace(done, action_mask=mask))
