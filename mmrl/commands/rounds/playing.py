"""The processes of sample and score stages: episodes of training problems, written part by part."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mmrl.callbacks.warm_start import load_policy
from mmrl.commands.cli import CLI
from mmrl.commands.rounds.rows import build_row, group_rows, read_rows, write_rows
from mmrl.commands.rounds.words import QUIET, merge_words
from mmrl.config.compose import compose, to_lightning
from mmrl.core.errors import ConfigError
from mmrl.core.types import Completion, Episode, Prompt, Task, Turn
from mmrl.evaluation.report.checkpoint_metrics import override_evaluation
from mmrl.rewards.scoring import score
from mmrl.runs.checkpoint_file import CheckpointError

REQUEST = "request.json"
PARTS = "parts"
DECODE = "sample"


@dataclass(frozen=True)
class PlayRequest:
    """What the process of a sample or score stage is asked for.

    Args:
        words: overrides of `mmrl fit`.
        part: problems of a part.
        weights: checkpoint of the policy; None for the policy as it is configured.
        count: problems that are sampled; None for all from `offset` on.
        offset: index of the first one.
        num_samples: completions of each.
        seed: of the draws.
        reads: files whose rows are scored; empty where a policy samples.
    """

    words: Sequence[str]
    part: int
    weights: str | None = None
    count: int | None = None
    offset: int = 0
    num_samples: int = 1
    seed: int = 0
    reads: Sequence[str] = ()


def play_stage(folder: Path) -> None:
    """Write the parts that are missing of the stage whose request is in the folder."""
    request = PlayRequest(**json.loads((folder / REQUEST).read_text()))
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    cli = CLI(to_lightning(compose(merge_words(request.words, QUIET))), trains=False)
    if request.reads:
        _score(folder, request, cli)
    else:
        _sample(folder, request, cli)


def part_path(folder: Path, number: int) -> Path:
    """Return the file of a part."""
    return folder / PARTS / f"{number:05d}.jsonl"


def _sample(folder: Path, request: PlayRequest, cli: CLI) -> None:
    if request.weights is not None:
        try:
            load_policy(cli.model.policy, request.weights)  # type: ignore[arg-type]
        except (CheckpointError, ValueError, RuntimeError) as error:
            raise ConfigError(f"weights {request.weights}: {' '.join(str(error).split())}") from error
    data = copy.copy(cli.datamodule)
    held_out = override_evaluation(data.evaluation, data.sampling, None, request.num_samples, (DECODE,))
    held_out.sampling = {DECODE: data.sampling}
    held_out.evaluators, held_out.task, held_out.split, held_out.seed = {}, {}, "train", request.seed
    held_out.offset, data.evaluation = request.offset, held_out
    total = len(data.task.on("train")) - request.offset
    if total < (request.count or 1):
        raise ConfigError(
            f"task {data.task.name!r} has {total + request.offset} training problems, and problems {request.offset} to "
            f"{request.offset + (request.count or 1) - 1} are asked for; lower count or offset"
        )
    held_out.count = request.count or total
    for number, first in enumerate(range(0, held_out.count, request.part)):
        if part_path(folder, number).is_file():
            continue
        held_out.only = range(first, min(first + request.part, held_out.count))
        cli.trainer.validate(cli.model, data, verbose=False)
        if cli.trainer.is_global_zero:
            episodes = sorted(held_out.latest[DECODE], key=lambda episode: (episode.group, episode.sample_index))
            write_rows(part_path(folder, number), (build_row(e, _read_answer(e, data.task)) for e in episodes))


def _read_answer(episode: Episode, task: Task) -> str:
    answer = episode.info.get("answer")
    if isinstance(answer, str):
        return answer
    if episode.ended == "error":
        return ""
    raise ConfigError(f"task {task.name!r}: its episodes are no text with one answer, which a sample stage needs")


def _score(folder: Path, request: PlayRequest, cli: CLI) -> None:
    task = cli.datamodule.task.on("train")  # type: ignore[attr-defined]
    reward = cli.datamodule.reward  # type: ignore[attr-defined]
    reward.check_task(task)
    groups = list(group_rows(row for path in request.reads for row in read_rows(Path(path))).values())
    for number, first in enumerate(range(0, len(groups), request.part)):
        if part_path(folder, number).is_file():
            continue
        rows = [(slot, row) for slot, group in enumerate(groups[first : first + request.part]) for row in group]
        episodes = [_rebuild_episode(task, row, slot) for slot, row in rows]
        score(episodes, task, reward)
        scored = [build_row(episode, row["completion"]) for episode, (_, row) in zip(episodes, rows)]
        write_rows(part_path(folder, number), scored)


def _rebuild_episode(task: Task, row: Mapping[str, Any], slot: int) -> Episode:
    prompt: Prompt | None = task[row["index"]] if 0 <= row["index"] < len(task) else None
    if prompt is None or prompt.key != row["key"]:
        raise ConfigError(f"a row answers {row['key']!r}, which the task {task.name!r} of this stage does not have")
    count, text = row["tokens"], row["completion"]  # the tokens themselves are not needed, their number is
    mask = torch.ones(count, dtype=torch.bool)
    completion = Completion({}, mask.long(), torch.zeros(count), mask, text, ended=row["ended"])
    info = {"prompt_end": row["prompt_end"]} if "prompt_end" in row else {}
    return Episode(prompt, slot, row["sample_index"], [Turn(completion)], ended=row["ended"], info=info)
