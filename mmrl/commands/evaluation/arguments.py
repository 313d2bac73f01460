"""Parse the arguments of `mmrl evaluate`."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mmrl.config.bounds import LARGEST
from mmrl.config.compose import ROOTS, SHORT
from mmrl.config.renamed import find_new_name
from mmrl.core.errors import ConfigError

OPTIONS = (
    *("checkpoint", "compare", "count", "num_samples", "decode"),
    *("video", "video_episodes", "accept", "trust", "send"),
)
_EMPTY = {
    "checkpoint": "must be last, best, start or a file",
    "compare": "must be start, a file or another run's folder",
    "count": "must be a whole number of at least 1",
    "num_samples": "must be a whole number of at least 1",
    "video_episodes": "must be a whole number of at least 1",
    "decode": "must be sample, argmax, mean, or a decode of the configuration",
    "video": "must be true or false",
    "send": "must be true or false",
}
"""Messages about an option without a value."""


@dataclass(frozen=True)
class EvaluationRequest:
    """What the command line asks for.

    Args:
        folder: of the run.
        checkpoint: file to measure; None for the policy as the configuration builds it, where there is no run.
        compare: file to measure before it, on the same problems and draws; None for no comparison.
        against: folder with an earlier measurement to compare with, of this or another run; None for none.
        count: held-out problems; None as configured.
        num_samples: per problem; None as configured.
        decodes: names of configured decodes, or sample, argmax, mean; empty for all that are configured.
        video: record a video of the first held-out initial states of a simulator.
        video_episodes: number of those states.
        accept: entries of the simulator's contract that may differ from the training's; the differences are printed.
        trust: whether pickled objects in a checkpoint may be loaded; they can run any code.
        send: also send metrics, samples and videos to the loggers of the run.
        arguments: LightningCLI arguments that change the configuration of the run.
    """

    folder: Path
    checkpoint: Path | None
    compare: Path | None = None
    against: Path | None = None
    count: int | None = None
    num_samples: int | None = None
    decodes: tuple[str, ...] = ()
    video: bool = False
    video_episodes: int = 6
    accept: tuple[str, ...] = ()
    trust: bool = False
    send: bool = False
    arguments: tuple[str, ...] = field(default=())

    @property
    def checkpoints(self) -> dict[str, Path | None]:
        """By title, in the order in which they are measured."""
        if self.against is not None:
            return {"after": self.checkpoint}
        if self.compare is None:
            return {"policy" if self.checkpoint is None else self.checkpoint.stem: self.checkpoint}
        return {"before": self.compare, "after": self.checkpoint}


def parse(arguments: Sequence[str]) -> EvaluationRequest:
    """Parse what follows `mmrl evaluate`: a run folder or a checkpoint, then key=value."""
    if flags := [argument for argument in arguments if argument.startswith("-")]:
        raise ConfigError(f"{flags[0]}: options are written key=value, as in video=true; see `mmrl evaluate --help`")
    # the one argument that is a path; a folder may have = in its name
    places = [
        argument
        for argument in arguments
        if "=" not in argument or (argument.partition("=")[0] not in OPTIONS and Path(argument).exists())
    ]
    if len(places) != 1 or not places[0].strip():
        unknown = [
            argument
            for argument in arguments
            if "=" in argument and argument.partition("=")[0] not in OPTIONS and "." not in argument
        ]
        missing = f"; {unknown[0]} is neither an option nor an existing folder" if unknown and not places else ""
        raise ConfigError(
            f"give one run folder or checkpoint, got {places}{missing}; for example "
            "`mmrl evaluate runs/demo compare=start`"
        )
    # options of the command, and overrides of the configuration
    options: dict[str, str] = {}
    more: list[str] = []
    for argument in arguments:
        key, _, value = argument.partition("=")
        if key in OPTIONS and argument not in places:
            if options.setdefault(key, value) != value:
                raise ConfigError(f"{key}={options[key]} and {key}={value}: give {key} once")
            if not value.strip():
                raise ConfigError(f"{argument}: {_EMPTY.get(key, f'{key} is empty; leave it out or give a value')}")
        elif argument not in places:
            more.append(_to_lightning_argument(key, value))
    # checkpoint to measure, and the checkpoint or run to compare it with
    folder, file = _resolve_place(Path(places[0]))
    if file is not None and "checkpoint" in options:
        raise ConfigError(f"{places[0]} is a checkpoint already; leave out checkpoint={options['checkpoint']}")
    checkpoint = options.get("checkpoint")
    if file is None and (checkpoint is not None or (folder / "checkpoints").exists()):
        file = find_checkpoint(folder, checkpoint or "last")
    other = options.get("compare")
    measured = Path(other) if other is not None and (Path(other) / "config.yaml").exists() else None
    return EvaluationRequest(
        folder=folder,
        checkpoint=file,
        compare=find_checkpoint(folder, other) if other is not None and measured is None else None,
        against=measured,
        count=_parse_count(options, "count"),
        num_samples=_parse_count(options, "num_samples"),
        decodes=_parse_names(options, "decode"),
        video=_parse_switch(options, "video"),
        video_episodes=_parse_count(options, "video_episodes") or 6,
        accept=_parse_names(options, "accept"),
        trust=_parse_switch(options, "trust"),
        send=_parse_switch(options, "send"),
        arguments=tuple(more),
    )


def _resolve_place(place: Path) -> tuple[Path, Path | None]:
    """The run's folder, and the checkpoint when the place is one."""
    if (place / "config.yaml").exists():
        return place, None
    if place.suffix == ".ckpt" and place.exists():
        folder = next((f for f in place.resolve().parents[:3] if (f / "config.yaml").exists()), None)
        if folder is None:
            raise ConfigError(f"{place}: no config.yaml beside the checkpoints folder; keep checkpoints in their run")
        return folder, place
    raise ConfigError(f"{place}: neither the folder of a run (with a config.yaml) nor a .ckpt file")


def find_checkpoint(folder: Path, name: str) -> Path:
    """A file by its short name (last, start, epoch=49) or by its path."""
    for path in (folder / "checkpoints" / f"{name}.ckpt", folder / "checkpoints" / name, Path(name)):
        if path.is_dir():
            raise ConfigError(
                f"{path} is a sharded checkpoint; make one file of it first: "
                f"python -m lightning.pytorch.utilities.consolidate_checkpoint {path}"
            )
        if path.exists():
            return path
    names = sorted(file.stem for file in (folder / "checkpoints").glob("*.ckpt"))
    raise ConfigError(f"no checkpoint {name!r} in {folder}; there are {names}")


def _to_lightning_argument(key: str, value: str) -> str:
    """sim.renderer=ray as --data.task.sim.renderer=ray."""
    head, _, rest = key.partition(".")
    if rest and head in SHORT:
        return f"--{SHORT[head]}.{rest}={value}"
    if rest and head in ROOTS:
        return f"--{key}={value}"
    if new := find_new_name("commands", "evaluate", key):
        raise ConfigError(f"{key} was renamed to {new}")
    keys = [*OPTIONS, *(f"{slot}." for slot in (*SHORT, *ROOTS))]
    near = difflib.get_close_matches(key, keys, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    if f"{key}." in keys:
        hint = (
            f" A run is measured with its own {key}; change values of it by {key}.KEY=VALUE, or serve the run "
            "(`mmrl serve RUN`) and evaluate policy=remote without a run folder."
        )
    raise ConfigError(
        f"{key}={value}: `mmrl evaluate` does not know {key!r}.{hint} Options are {', '.join(OPTIONS)}, and single "
        "values of the run's configuration such as sim.renderer=ray or engine.max_rows=64"
    )


def _parse_names(options: dict[str, str], name: str) -> tuple[str, ...]:
    return tuple(options[name].strip("[]").replace(" ", "").split(",")) if name in options else ()


def _parse_count(options: dict[str, str], name: str) -> int | None:
    if name not in options:
        return None
    if not (options[name].isascii() and options[name].isdigit()) or int(options[name]) < 1:
        raise ConfigError(f"{name}={options[name]}: must be a whole number of at least 1")
    if int(options[name]) > LARGEST:
        raise ConfigError(f"{name}={options[name]}: must be at most {LARGEST}")
    return int(options[name])


def _parse_switch(options: dict[str, str], name: str) -> bool:
    value = options.get(name, "false").lower()
    if value not in ("true", "false"):
        raise ConfigError(f"{name}={options[name]}: must be true or false")
    return value == "true"
