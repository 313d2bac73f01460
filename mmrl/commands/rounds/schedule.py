"""The steps of a rounds file: every stage of every round in order, with references to earlier steps resolved."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mmrl.commands.rounds.file import RoundsFile, check_stage_name, read_stage, suggest
from mmrl.commands.rounds.stages import FilterStage, FitStage, RecordStage, ScoreStage, Stage, WriteStage
from mmrl.core.errors import ConfigError

_REFERENCE = re.compile(r"\$\{(folder\.)?([A-Za-z]\w*(?:@\d+)?)\}")
BLOCK = ("for", "stages")
"""Keys of a block, which repeats its stages inside of a round."""


@dataclass(frozen=True)
class StageRun:
    """One stage of one round.

    Args:
        name: of its folder below the run's: ROUND/STAGE, or ROUND/STAGE-N in repetition N of a block.
        round: 1, 2, ...; 0 for the stages of `start`.
        stage_name: as the file names it.
        stage: its options.
        place: of the stage in the file, for messages.
        reads: names of the steps whose rows it reads.
        adds: names of the steps whose rows a filter adds, or whose episodes a recording begins with.
        weights: name of the fit whose weights it takes; None for the base, also where it takes none.
        folders: names of the steps whose folders its overrides name, as ${folder.STAGE}.
        gate: name of the write step whose program it needs; None for a step without a gate.
        number: of the step, from 0; its draws depend on it.
    """

    name: str
    round: int
    stage_name: str
    stage: Stage
    place: str
    number: int
    reads: tuple[str, ...] = ()
    adds: tuple[str, ...] = ()
    weights: str | None = None
    folders: tuple[str, ...] = ()
    gate: str | None = None

    @property
    def kind(self) -> str:
        """Kind of the stage."""
        return self.stage.kind

    @property
    def pairs(self) -> bool:
        """Whether its rows are preference pairs."""
        return isinstance(self.stage, FilterStage) and self.stage.pairs is not None


@dataclass(frozen=True)
class _Entry:
    """A stage of the file in one repetition: its mapping with the block's values written in."""

    stage_name: str
    folder: str
    node: Any
    place: str


def list_steps(file: RoundsFile) -> list[StageRun]:
    """List the steps of a file in order.

    Raises:
        ConfigError: naming stage and key, such as one that reads what no earlier stage writes.
    """
    rounds = file.values["rounds"]
    _check_names(file)
    parts = [("start", 0), *(("stages", number) for number in range(1, rounds + 1))]
    steps: list[StageRun] = []
    for section, number in parts:
        for entry in _expand(file.values[section], section, number):
            stage = read_stage(entry.node, entry.place)
            steps.append(_resolve(entry, stage, number, steps, rounds))
    return steps


def _check_names(file: RoundsFile) -> None:
    """Refuse two stages of one name, and names that cannot be used.

    A stage of the rounds may have the name of one of the start of the same kind, which stands for it in round 0.
    """
    begun: dict[str, tuple[str, Any]] = {}  # place and kind by name, of the start
    for section in ("start", "stages"):
        places: dict[str, tuple[str, Any]] = {}
        for key, place, node in _list_nodes(file.values[section], section):
            check_stage_name(key, place)
            kind = node.get("kind") if isinstance(node, dict) else None
            if key in places or begun.get(key, ("", kind))[1] != kind:
                other = (places.get(key) or begun[key])[0]
                raise ConfigError(f"{place}: {other} has this name too; rename one of them")
            places[key] = place, kind
        begun = places


def _list_nodes(section: Mapping[str, Any], place: str) -> Iterator[tuple[Any, str, Any]]:
    """Yield name, place and mapping of every entry of a section, blocks and the stages inside of them."""
    for name, node in section.items():
        yield name, f"{place}.{name}", node
        inner = node["stages"] if is_block(node) and isinstance(node.get("stages"), dict) else {}
        yield from ((key, f"{place}.{name}.stages.{key}", each) for key, each in inner.items())


def is_block(node: Any) -> bool:
    """Whether an entry of `stages` is a block of stages that are repeated in a round."""
    return isinstance(node, dict) and "for" in node


def _expand(section: Mapping[str, Any], place: str, number: int) -> Iterator[_Entry]:
    """Yield the entries of a section in one round, those of a block as often as it is repeated."""
    for name, node in section.items():
        here = f"{place}.{name}"
        if not is_block(node):
            values = {"round": number}
            yield _Entry(name, f"{number}/{name}", _write_values(node, values, here), here)
            continue
        if unknown := [key for key in node if key not in BLOCK]:
            raise ConfigError(f"{here}.{unknown[0]}: a block has the keys {', '.join(BLOCK)} alone")
        columns, inner = node["for"], node.get("stages")
        if not isinstance(inner, dict) or not inner:
            raise ConfigError(f"{here}.stages must be a mapping of the stages that are repeated, got {inner!r}")
        lists = isinstance(columns, dict) and columns and all(isinstance(v, list) and v for v in columns.values())
        if not lists or len({len(column) for column in columns.values()}) != 1:
            raise ConfigError(f"{here}.for must be lists of one length by name, as {{threshold: [0.0, 0.5]}}")
        if wrong := [
            key for key in columns if key in ("round", "folder") or not re.fullmatch(r"[A-Za-z]\w*", str(key))
        ]:
            raise ConfigError(f"{here}.for.{wrong[0]}: choose another name, of letters, digits and _")
        for repetition, row in enumerate(zip(*columns.values()), start=1):
            values = {**dict(zip(columns, row)), "round": number}
            for key, stage_node in inner.items():
                inside = f"{here}.stages.{key}"
                yield _Entry(key, f"{number}/{key}-{repetition}", _write_values(stage_node, values, inside), inside)


def _write_values(node: Any, values: Mapping[str, Any], place: str) -> Any:
    """Replace ${NAME} of a block's values and ${round}; a text that is nothing else becomes the value itself."""
    if isinstance(node, dict):
        return {key: _write_values(value, values, f"{place}.{key}") for key, value in node.items()}
    if isinstance(node, list):
        return [_write_values(value, values, place) for value in node]
    if not isinstance(node, str):
        return node
    match = _REFERENCE.fullmatch(node)
    if match and not match[1] and match[2] in values:
        return values[match[2]]
    return _REFERENCE.sub(lambda m: str(values[m[2]]) if not m[1] and m[2] in values else m[0], node)


def _resolve(entry: _Entry, stage: Stage, number: int, before: Sequence[StageRun], rounds: int) -> StageRun:
    """Build a step, and find the earlier steps that its stage names."""
    # weights of an earlier fit; None for those of the configuration
    weights = None
    name = getattr(stage, "weights", "base")
    if name == "newest":
        weights = next((step.name for step in reversed(before) if step.kind == "fit"), None)
    elif name != "base":
        step = _find(name, f"{entry.place}.weights", before, rounds)
        if step.kind != "fit":
            raise ConfigError(f"{entry.place}.weights: {name!r} is a {step.kind} stage; weights are those of a fit")
        weights = step.name
    # folders of earlier steps in the overrides
    folders = [m[2] for word in stage.overrides for m in _REFERENCE.finditer(word) if m[1]]
    step = StageRun(
        name=entry.folder,
        round=number,
        stage_name=entry.stage_name,
        stage=stage,
        place=entry.place,
        number=len(before),
        reads=tuple(each.name for each in _find_rows(stage, "reads", entry.place, before, rounds)),
        adds=tuple(each.name for each in _find_rows(stage, "adds", entry.place, before, rounds)),
        weights=weights,
        folders=tuple(_find(name, f"{entry.place}.overrides", before, rounds).name for name in folders),
        gate=_find_gate(getattr(stage, "gate", None), entry.place, before, rounds),
    )
    if isinstance(stage, ScoreStage | FilterStage) and not step.reads:
        raise ConfigError(f"{entry.place}.reads: name the earlier stage whose rows a {stage.kind} stage reads")
    if isinstance(stage, FitStage) and len(step.reads) > 1:
        raise ConfigError(f"{entry.place}.reads: a fit reads the rows of one stage; join several by a filter stage")
    return step


def _find_gate(name: str | None, place: str, before: Sequence[StageRun], rounds: int) -> str | None:
    """Find the write step that a stage names as its gate."""
    if name is None:
        return None
    step = _find(name, f"{place}.gate", before, rounds)
    if not isinstance(step.stage, WriteStage):
        raise ConfigError(f"{place}.gate: {name!r} is a {step.kind} stage; a gate is a stage of kind write")
    return step.name


def _find_rows(stage: Stage, key: str, place: str, before: Sequence[StageRun], rounds: int) -> list[StageRun]:
    """Find the steps whose rows a key names; a stage that reads completions refuses pairs."""
    names = getattr(stage, key, None) or []
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{place}.{key} must be the name of a stage, or a list of them, got {names!r}")
    steps = []
    for name in names:
        step = _find(name, f"{place}.{key}", before, rounds)
        if isinstance(stage, RecordStage):
            if not isinstance(step.stage, RecordStage):
                raise ConfigError(f"{place}.{key}: {name!r} is a {step.kind} stage; episodes are those of kind record")
            steps.append(step)
            continue
        if not step.stage.writes_rows:
            raise ConfigError(f"{place}.{key}: {name!r} is a stage of kind {step.kind}, which writes no rows")
        if step.pairs and not isinstance(stage, FitStage):
            raise ConfigError(f"{place}.{key}: {name!r} writes pairs, which only a fit reads; read the stage before it")
        steps.append(step)
    return steps


def _find(name: str, place: str, before: Sequence[StageRun], rounds: int) -> StageRun:
    """Find the newest step of a stage before this one, or that of a round: NAME or NAME@ROUND."""
    stage_name, at, number = name.partition("@")
    if at and (not number.isdigit() or int(number) > rounds):
        raise ConfigError(f"{place}: {name!r}: there is no round {number or '?'}; rounds are 1 to {rounds}, 0 is start")
    candidates = [step for step in before if step.stage_name == stage_name]
    matches = [step for step in candidates if not at or step.round == int(number)]
    if matches:
        return matches[-1]
    if candidates:
        raise ConfigError(
            f"{place}: {name!r}: no earlier stage of round {number} has this name; it is in the rounds "
            f"{sorted({step.round for step in candidates})}"
        )
    names = list(dict.fromkeys(step.stage_name for step in before))
    raise ConfigError(
        f"{place}: no earlier stage is named {stage_name!r}.{suggest(stage_name, names)} Earlier: {names}"
    )


def write_folders(word: str, folders: Mapping[str, str]) -> str:
    """Replace ${folder.STAGE} by the folder of that step."""
    return _REFERENCE.sub(lambda match: folders[match[2]] if match[1] else match[0], word)


def folder_names(step: StageRun) -> dict[str, str]:
    """By the name in ${folder.NAME}: the name of the step."""
    names = [m[2] for word in step.stage.overrides for m in _REFERENCE.finditer(word) if m[1]]
    return dict(zip(names, step.folders))


def list_readers(steps: Sequence[StageRun]) -> list[StageRun]:
    """List the steps of distinct configuration: one of each stage, whatever its round."""
    return [next(group) for _, group in itertools.groupby(sorted(steps, key=_key), key=_key)]


def _key(step: StageRun) -> tuple[str, str]:
    return step.place, repr(step.stage)
