"""The process of a write stage: ask for a program until one can be used, and report every answer."""

from __future__ import annotations

import difflib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch

from mmrl.callbacks.warm_start import load_policy
from mmrl.commands.cli import CLI
from mmrl.commands.rounds.words import QUIET, merge_words
from mmrl.config.compose import compose, to_lightning
from mmrl.core.rng import derive_seed
from mmrl.core.types import Request
from mmrl.engines.local import LocalEngine
from mmrl.files.atomic import write_file
from mmrl.runs.run_folder import last_checkpoint
from mmrl.tools.programs.program import ProgramError, RewardProgram
from mmrl.tools.programs.questions import describe_state, extremes, first_question, refuse, report, tabulate_parts
from mmrl.tools.programs.traces import Trace, order_share
from mmrl.tools.programs.writers import Writer, build_writer, find_program

WRITING = "writing.json"
REPORT = "report.json"
PROGRAM = "reward.py"
_TRIED = 10
"""Decisions of a random episode with which a program is tried twice; with those of all episodes it is tried once."""


@dataclass(frozen=True)
class WriteRequest:
    """What the process of a write stage is asked for.

    Args:
        words: overrides of `mmrl fit`.
        stage: options of the stage.
        round: its round.
        seed: of the recorded episodes.
        before: of each round before, the folder of its write step, `results` of its policies (metric and mean), and
            `fits`, their folders.
    """

    words: Sequence[str]
    stage: Mapping[str, Any]
    round: int
    seed: int
    before: Sequence[Mapping[str, Any]]


def write_stage(folder: Path) -> None:
    """Write the program, or what came nearest to one, and the report of the stage whose request is in the folder."""
    request = WriteRequest(**json.loads((folder / WRITING).read_text()))
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    cli = CLI(to_lightning(compose(merge_words(request.words, QUIET))), trains=False)
    task: Any = cli.datamodule.task.on("train")  # type: ignore[attr-defined]
    traces = record_traces(task, cli, request)
    writer, asked = build_writer(request.stage["writer"]), sum(_count_answers(b) for b in request.before)
    messages, functions = begin(folder, task, traces, request, writer, asked)
    asked += bool(functions)
    for number, outcome in enumerate(request.before):
        messages += recall(outcome, number, request.stage["comments"], traces, task.build_program)
    answers: list[dict[str, Any]] = []
    while len(answers) < request.stage["attempts"]:
        number = asked + len(answers)
        place = folder / "answers" / f"{len(answers) + 1}.md"  # a resumed stage asks for no answer twice
        if not place.is_file():
            place.parent.mkdir(exist_ok=True)
            write_file(place, writer.write(messages, number))
        text = place.read_text()
        order, success = request.stage["order"], request.stage["success"]
        answers.append(try_answer(text, traces, order, success, task.build_program, functions))
        if answers[-1]["problem"] is None:
            break
        messages += [{"role": "assistant", "content": text}, refuse(answers[-1]["problem"])]
    last = answers[-1]
    write_file(folder / PROGRAM, last["program"] or "")
    write_file(folder / "reward.diff", _diff(request.before, last["program"] or ""))
    write_file(folder / "conversation.json", json.dumps(messages, indent=2) + "\n")
    accepted = last["problem"] is None
    order = "" if last["order"] is None else f", {last['order']:.0%} of the pairs in order"
    note = f"answer {len(answers)} accepted{order}" if accepted else f"refused: {last['problem']}"
    result = {"accepted": accepted, "note": note, "answers": answers, "asked": len(answers) + bool(functions)}
    write_file(folder / REPORT, json.dumps(result, indent=2) + "\n")


def begin(
    folder: Path, task: Any, traces: Sequence[Trace], request: WriteRequest, writer: Writer, asked: int
) -> tuple[list[dict[str, str]], str]:
    """The messages before the first program; and relational functions that stand before it, empty where none are asked.

    A task with objects has two questions: for the functions, and for the reward that calls them.
    """
    goal = request.stage["goal"]
    if not hasattr(task, "first_questions"):
        return [first_question(describe_task(task, traces), goal)], ""
    relations, reward = task.first_questions(goal, traces)
    place = folder / "answers" / "relations.md"  # a resumed stage asks for no answer twice
    if not place.is_file():
        place.parent.mkdir(exist_ok=True)
        write_file(place, writer.write([relations], asked))
    text = place.read_text()
    functions = (find_program(text) or "").rstrip() + "\n\n\n"
    return [relations, {"role": "assistant", "content": text}, reward], functions


def record_traces(task: Any, cli: CLI, request: WriteRequest) -> list[Trace]:
    """Episodes with random actions, then those of the policies of the rounds before."""
    count, policy, engine = request.stage["episodes"], cli.model.policy, LocalEngine()
    held_out: Any = cli.datamodule.evaluation  # type: ignore[attr-defined]
    sampling = next(iter(held_out.sampling.values()))
    traces = task.record_random(count, request.seed)

    def act(env: Any, observation: Any) -> np.ndarray:
        rows = observation if isinstance(observation, Mapping) else {"state": observation}
        raws = [{name: values[i] for name, values in rows.items()} for i in range(env.num_envs)]
        asked = [Request(raw, derive_seed("recorded", request.seed, i)) for i, raw in enumerate(raws)]
        with torch.no_grad():
            return np.stack([np.asarray(completion.output) for completion in engine.sample(asked, sampling)])

    for place in (place for outcome in request.before for place in outcome["fits"]):
        load_policy(policy, str(last_checkpoint(Path(place))))  # type: ignore[arg-type]
        engine.sync(policy, 0)  # type: ignore[arg-type]
        traces += task.record(act, count, request.seed)
    return traces


def describe_task(task: Any, traces: Sequence[Trace]) -> str:
    """The simulator's name, the names of its state, and its action."""
    before, action, _ = traces[0].steps[0]
    size = f"list of {len(action)} floats" if isinstance(action, Sequence) else "number"
    return f"{task.name}\nThe state:\n{describe_state(before, '  ')}\nThe action: {size}"


def recall(
    outcome: Mapping[str, Any],
    number: int,
    comments: Sequence[str],
    traces: Sequence[Trace],
    build: Callable[[str], RewardProgram] = RewardProgram,
) -> list[dict[str, str]]:
    """The messages of a round before: its last program, and what became of it."""
    written = _read_report(outcome)
    last = written["answers"][-1]
    answer = {"role": "assistant", "content": f"```python\n{last['program'] or ''}```"}
    if not written["accepted"]:
        return [answer, refuse(last["problem"])]
    table = None
    if (pair := extremes(traces)) is not None:
        program = build(last["program"])
        try:
            table = "\n\n".join(tabulate_parts(program.parts(trace.steps)) for trace in pair)
        except ProgramError as error:  # in a state that was not recorded when it was tried
            table = str(error)
    return [answer, report(outcome["results"], table, comments[number] if number < len(comments) else None)]


def try_answer(
    answer: str,
    traces: Sequence[Trace],
    least: float,
    success: float,
    build: Callable[[str], RewardProgram] = RewardProgram,
    functions: str = "",
) -> dict[str, Any]:
    """The program of an answer, what is wrong with it (None: nothing), and its share of pairs in the right order.

    Args:
        answer: of the writer.
        traces: recorded episodes.
        least: share of pairs of success and failure that is asked for.
        success: least score of a success.
        build: the program of a text.
        functions: that stand before it.
    """
    source = find_program(answer)
    source = None if source is None else functions + source
    tried: dict[str, Any] = {"program": source, "problem": None, "order": None}
    if source is None:
        return {**tried, "problem": "the answer has no block of Python"}
    try:
        program = build(source)
        steps = traces[0].steps[:_TRIED]
        if program.parts(steps) != program.parts(steps):
            raise ProgramError("two calls with the same arguments give different rewards")
        share, wrong = _rank(program, traces, success)
    except ProgramError as error:
        return {**tried, "problem": str(error)}
    if least == 0:
        return tried
    if share is not None and share < least:
        tried["problem"] = (
            f"of {share:.0%} of the pairs of a successful and a failed episode it pays the successful one more, and "
            f"{least:.0%} are asked for; parts that do not: {', '.join(wrong) or 'none, their sum does not'}"
        )
    return {**tried, "order": share}


def _rank(program: RewardProgram, traces: Sequence[Trace], success: float) -> tuple[float | None, list[str]]:
    """The share of pairs of success and failure in the right order, and the parts that are not larger for success."""
    sums: list[dict[str, float]] = []
    for trace in traces:
        rewards = program.parts(trace.steps)
        names = dict.fromkeys(name for parts in rewards for name in parts)
        sums.append({name: sum(parts.get(name, 0.0) for parts in rewards) for name in names})
    good = [trace.score >= success for trace in traces]
    share = order_share([sum(parts.values()) for parts in sums], [float(each) for each in good])
    if share is None:
        return None, []
    means = {
        name: [mean(parts.get(name, 0.0) for parts, each in zip(sums, good) if each is kind) for kind in (True, False)]
        for name in dict.fromkeys(name for parts in sums for name in parts)
    }
    return share, [name for name, (high, low) in means.items() if high <= low]


def _read_report(outcome: Mapping[str, Any]) -> dict[str, Any]:
    return json.loads((Path(outcome["folder"]) / REPORT).read_text())


def _count_answers(outcome: Mapping[str, Any]) -> int:
    report = _read_report(outcome)
    return report.get("asked", len(report["answers"]))


def _diff(before: Sequence[Mapping[str, Any]], program: str) -> str:
    """What has changed since the program of the round before."""
    old = (Path(before[-1]["folder"]) / PROGRAM).read_text() if before else ""
    lines = difflib.unified_diff(old.splitlines(True), program.splitlines(True), "before/reward.py", "now/reward.py")
    return "".join(lines)
