"""SSP: rounds in which the policy proposes questions, checks them, and solves them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from mmrl.core.errors import check_at_least
from mmrl.core.rng import derive_rng
from mmrl.core.types import Context, Episode, Prompt, Task
from mmrl.files.patterns import compile_pattern, fill_template
from mmrl.methods.problems.ssp.credit import PROPOSER, SOLVER
from mmrl.methods.problems.ssp.questions import (
    answer_from_documents,
    apply_rules,
    find_documents,
    mix_documents,
)
from mmrl.rollouts.base import Rollout
from mmrl.rollouts.text.tools import ToolUse

if TYPE_CHECKING:
    from mmrl.policies.base import Policy

SOLVER_SLOTS = 2**30
"""Added to the slot of a proposal for the random draws of its solvers, and for their prompt in an iteration."""


class SearchSelfPlay(Rollout):
    """Rollout of self-play by search. A group is one proposal, sample 0, and its `group_size` - 1 solvers.

    1. The proposer reads the answer a* of the task's problem, in `proposer_prompt`, searches, and writes a question.
    2. Rules: the question has the form of `question_pattern`, it does not have a* in it, and `min_searches` different
       searches returned something. Then the check: the policy answers the question without tools, from `check_prompt`
       with the results of the proposer's searches among `noise_documents` results of other proposers, in random order.
       A question whose checked answer is not a* is invalid.
    3. The policy answers a valid question by search. In the place of an invalid one it answers an earlier valid one,
       drawn from a pool that is emptied every `reuse_iterations` iterations; there may be none.

    The check repeats the proposer's searches, so a tool must return the same again. Metrics count the outcomes of
    proposals as `rollout/self_play/`: valid, malformed, leaked, unsearched, unsupported (by the check), failed (by a
    fault of a tool or the engine), and reused.

    Source: Lu et al., "Search Self-play", 2025, arXiv:2510.18821; released code: ssp_ray_trainer.py.

    Args:
        rollout: how the policy searches, in both roles.
        proposer_prompt: with {answer}.
        solver_prompt: with {question}.
        check_prompt: with {documents} and {question}.
        question_pattern: regular expression whose first group is the question in the proposer's last turn.
        check: False plays every question that keeps the rules.
        min_searches: different searches of a proposal.
        noise_documents: of other proposals, that the check mixes in; fewer where there are fewer.
        reuse_iterations: after which the pool of valid questions is emptied.
        score: of the task, 1 for a right answer.
    """

    def __init__(
        self,
        rollout: ToolUse,
        proposer_prompt: str = (
            "Search for facts about {answer}. Then write a question that takes several searches to answer, whose only "
            "answer is {answer} and which does not name it, as <question>...</question>."
        ),
        solver_prompt: str = "{question}",
        check_prompt: str = "{documents}\n\nAnswer from these documents alone: {question}",
        question_pattern: str = r"(?s)<question>(.*?)</question>",
        check: bool = True,
        min_searches: int = 2,
        noise_documents: int = 4,
        reuse_iterations: int = 10,
        score: str = "exact",
    ):
        check_at_least(0, "rollout", noise_documents=noise_documents, min_searches=min_searches)
        check_at_least(1, "rollout", reuse_iterations=reuse_iterations)
        _check_template("proposer_prompt", proposer_prompt, "answer")
        _check_template("solver_prompt", solver_prompt, "question")
        _check_template("check_prompt", check_prompt, "documents", "question")
        self.pattern = compile_pattern("rollout.question_pattern", question_pattern, "the question")
        self.rollout, self.score = rollout, score
        self.proposer_prompt, self.solver_prompt, self.check_prompt = proposer_prompt, solver_prompt, check_prompt
        self.check, self.min_searches, self.noise_documents = check, min_searches, noise_documents
        self.reuse_iterations = reuse_iterations
        self.pool: list[tuple[str, str]] = []  # valid questions of earlier iterations, and their answers
        self.iterations = 0  # observed

    @classmethod
    def writes(cls) -> frozenset[str]:
        return frozenset({"proposes"})

    def check_task(self, task: Task) -> None:
        self._ask(task[0])

    def close(self) -> None:
        self.rollout.close()

    def build_observation(self, prompt: Prompt, policy: Policy) -> Mapping[str, Any]:
        return self.rollout.build_observation(self._ask(prompt), policy)

    def collect(self, prompts: Sequence[tuple[int, Prompt]], ctx: Context) -> list[Episode]:
        if ctx.group_size < 2:
            raise ValueError("data.group_size must be at least 2 with SSP: a proposal and its solvers")
        # [slots] proposals with their outcomes
        proposer_prompts = [(slot, self._ask(prompt)) for slot, prompt in prompts]
        proposals = self.rollout.collect(proposer_prompts, replace(ctx, group_size=1, requested_indices=None))
        self._judge(proposals, ctx)
        # solvers of the valid and the reused questions, by slot
        questions = self._choose_questions(proposals, ctx)
        solver_prompts = [
            (slot + SOLVER_SLOTS, self._pose(*question, slot, ctx)) for slot, question in questions.items()
        ]
        indices = {slot: range(1, ctx.group_size) for slot, _ in solver_prompts}
        solutions = (
            self.rollout.collect(solver_prompts, replace(ctx, requested_indices=indices)) if solver_prompts else []
        )
        by_slot: dict[int, list[Episode]] = {}
        for episode in solutions:
            by_slot.setdefault(episode.group - SOLVER_SLOTS, []).append(episode)
        episodes = []
        for proposal in proposals:
            solvers = by_slot.get(proposal.group, [])
            if proposal.info["proposal"] == "valid" and all(solver.ended == "error" for solver in solvers):
                proposal.ended = "error"  # without a solver it has no reward
            episodes.append(_as_role(proposal, PROPOSER, proposal.group))
            episodes += [_as_role(solver, SOLVER, proposal.group) for solver in solvers]
        return episodes

    def _judge(self, proposals: Sequence[Episode], ctx: Context) -> None:
        """Write outcome and question of each proposal into its info."""
        for proposal in proposals:
            outcome, question = apply_rules(proposal, self.pattern, self.min_searches)
            proposal.info |= {"proposal": outcome, "question": question}
        checked = [number for number, proposal in enumerate(proposals) if proposal.info["proposal"] == "valid"]
        if self.check and checked:
            documents = [find_documents(proposal, self.rollout) for proposal in proposals]
            trials = []
            for number in checked:
                proposal = proposals[number]
                key = (ctx.seed, ctx.purpose, "ssp documents", ctx.iteration, proposal.group)
                mixed = mix_documents(documents, number, self.noise_documents, *key)
                question = proposal.info["question"]
                text = fill_template(self.check_prompt, documents="\n\n".join(mixed), question=question)
                trials.append(Episode(_write(proposal.prompt, text), proposal.group, 0))
            for number, right in zip(checked, answer_from_documents(trials, ctx, self.score)):
                if right is None:
                    proposals[number].ended = "error"
                elif not right:
                    proposals[number].info["proposal"] = "unsupported"
        for proposal in proposals:
            counts = proposal.info.get("counts", {})
            proposal.info["counts"] = {**counts, f"self_play/{proposal.info['proposal']}": 1}

    def _choose_questions(self, proposals: Sequence[Episode], ctx: Context) -> dict[int, tuple[str, str]]:
        """Return for each slot its valid question and answer, or those of the pool in their place."""
        questions = {}
        for proposal in proposals:
            if proposal.info["proposal"] == "valid" and proposal.ended != "error":
                questions[proposal.group] = (proposal.info["question"], proposal.prompt.answer)
            elif self.pool:
                rng = derive_rng(ctx.seed, ctx.purpose, "ssp reuse", ctx.iteration, proposal.group)
                questions[proposal.group] = self.pool[int(rng.integers(len(self.pool)))]
                proposal.info["counts"]["self_play/reused"] = 1
        return questions

    def _ask(self, prompt: Prompt) -> Prompt:
        """Return the proposer's prompt for the answer of a problem."""
        if not isinstance(prompt.answer, str) or not prompt.answer.strip():
            raise ValueError(
                f"{prompt.place or prompt.key}: the answer is {prompt.answer!r}, and proposers write questions for a "
                "text; use a task whose answers are texts"
            )
        return _write(prompt, fill_template(self.proposer_prompt, answer=prompt.answer))

    def _pose(self, question: str, answer: str, slot: int, ctx: Context) -> Prompt:
        """Return the solvers' prompt."""
        prompt = Prompt(f"{ctx.task.name}/play/{slot}", answer=answer)
        return _write(prompt, fill_template(self.solver_prompt, question=question))

    def observe(self, groups: Sequence[Sequence[Episode]]) -> None:
        """Add the valid questions of all processes to the pool, each once; after its time it is emptied first."""
        self.iterations += 1
        if self.iterations % self.reuse_iterations == 0:
            self.pool = []
        proposals = [e for group in groups for e in group if e.info.get("proposal") == "valid" and e.ended != "error"]
        pairs = [(str(e.info["question"]), str(e.prompt.answer)) for e in proposals]
        self.pool = list(dict.fromkeys([*self.pool, *pairs]))

    def metrics(self) -> dict[str, float]:
        """Questions of the pool."""
        return {"self_play/pool": float(len(self.pool))}

    def state_dict(self) -> dict[str, Any]:
        return {"pool": [list(pair) for pair in self.pool], "iterations": self.iterations}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.pool = [(question, answer) for question, answer in state["pool"]]
        self.iterations = state["iterations"]


def _check_template(key: str, template: str, *names: str) -> None:
    for name in names:
        if f"{{{name}}}" not in template:
            raise ValueError(f"rollout.{key}={template!r} lacks {{{name}}}; write it where its value belongs")


def _write(prompt: Prompt, text: str) -> Prompt:
    return replace(prompt, messages=({"role": "user", "content": text},))


def _as_role(episode: Episode, role: str, slot: int) -> Episode:
    proposes = torch.tensor(role == PROPOSER)
    turns = [turn.with_columns(proposes=proposes) for turn in episode.turns]
    return replace(episode, role=role, group=slot, turns=turns)
