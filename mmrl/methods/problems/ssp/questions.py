"""SSP: rules for a proposed question, and its check by retrieval-augmented generation (RAG)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from mmrl.core.rng import derive_rng, derive_seed
from mmrl.core.types import Context, Episode, Request, Turn
from mmrl.rewards.answers.leak import leaks
from mmrl.rollouts.text.tools import ToolUse
from mmrl.tools.call_parser import ToolCall, bind_arguments


def extract_question(text: str, pattern: re.Pattern[str]) -> str | None:
    """Return the first group of the pattern in the proposer's last turn; None if there is none or it is empty."""
    match = pattern.search(text)
    return ((match[1] or "").strip() or None) if match else None


def successful_calls(proposal: Episode) -> list[tuple[str, Any]]:
    """Return name and arguments of the different calls that returned something, in order."""
    result: list[tuple[str, Any]] = []
    for name, arguments, outcome in proposal.info["calls"]:
        if outcome in ("ok", "truncated") and (name, arguments) not in result:
            result.append((name, arguments))
    return result


def apply_rules(proposal: Episode, pattern: re.Pattern[str], min_searches: int) -> tuple[str, str]:
    """Return the outcome of the rules (valid, malformed, leaked, unsearched; failed for an error) and the question."""
    if proposal.ended == "error":
        return "failed", ""
    question = extract_question(str(proposal.output), pattern) if proposal.ended == "done" else None
    if question is None:
        return "malformed", ""
    if leaks(question, str(proposal.prompt.answer)):
        return "leaked", question
    return "valid" if len(successful_calls(proposal)) >= min_searches else "unsearched", question


def find_documents(proposal: Episode, rollout: ToolUse) -> list[str]:
    """Return the results of a proposal's searches, each once, by searching again."""
    results = []
    for name, arguments in successful_calls(proposal):
        tool = rollout.tools[name]
        results.append(str(tool.run(**bind_arguments(ToolCall(name, arguments), tool)))[: tool.max_chars])
    return list(dict.fromkeys(results))


def mix_documents(documents: Sequence[Sequence[str]], number: int, noise: int, *key: int | str) -> list[str]:
    """Return the documents of one proposal and `noise` of the others, each once and in an order drawn by the key."""
    rng = derive_rng(*key)
    others = [text for n, texts in enumerate(documents) if n != number for text in texts]
    others = [text for text in dict.fromkeys(others) if text not in documents[number]]
    mixed = [*documents[number], *(others[i] for i in rng.permutation(len(others))[:noise])]
    return [mixed[i] for i in rng.permutation(len(mixed))]


def answer_from_documents(trials: Sequence[Episode], ctx: Context, score: str) -> list[bool | None]:
    """Answer each prompt in one turn without tools: whether the task says it is right; None where sampling failed."""
    seeds = [derive_seed(ctx.seed, ctx.purpose, "ssp check", ctx.iteration, trial.group) for trial in trials]
    requests = [Request(trial.prompt.observation, seed) for trial, seed in zip(trials, seeds)]
    for trial, done in zip(trials, ctx.engine.sample(requests, ctx.sampling)):
        trial.turns, trial.ended = [Turn(done)], done.ended
    scores = iter(ctx.task.scores([trial for trial in trials if trial.ended != "error"]))
    return [None if trial.ended == "error" else next(scores)[score] >= 1 for trial in trials]
