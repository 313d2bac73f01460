"""Lock a run's folder for one process, and refuse to overwrite the run in it by accident."""

from __future__ import annotations

import fcntl
import itertools
import math
import os
import re
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from mmrl.core.errors import ConfigError
from mmrl.files.atomic import check_inside, open_unlinked, remove_path

LOCK = ".lock"
RESULTS = (
    *(
        "checkpoints",
        "metrics.csv",
        "tensorboard",
        "wandb",
        "mlflow",
        "policy",
        "plots",
        "learning_curve.png",
        "config.yaml",
    ),
    *("tracker_run_id.txt", "sweep.json"),
    *("contract.json", "environment.json", "report.html", "evaluation.json", "protocol.json", "episodes.jsonl"),
    *("videos", "rollouts", "rollouts.html", "start", "logged.pt", "servers"),
)
"""What runs and their evaluations write into the folder; `overwrite=true` removes these and nothing else."""


def last_checkpoint(folder: Path) -> Path:
    """Return the path of a run's newest checkpoint."""
    return folder / "checkpoints" / "last.ckpt"


def best_checkpoint(folder: Path) -> Path:
    """Return the path of a run's best weights, which the callback BestCheckpoint keeps."""
    return folder / "checkpoints" / "best.ckpt"


def resume_command(folder: Path) -> str:
    """Return the command that resumes the run of a folder."""
    return f"mmrl fit --config {folder / 'config.yaml'} --ckpt_path {last_checkpoint(folder)}"


def checkpoints_of(folder: Path) -> list[Path]:
    """List the checkpoints that a run can be resumed from, oldest first; start.ckpt and best.ckpt have weights only."""
    weights = ("start.ckpt", best_checkpoint(folder).name)
    paths = [path for path in (folder / "checkpoints").glob("*.ckpt") if path.name not in weights]
    return sorted(paths, key=count_iterations)


def count_iterations(checkpoint: Path) -> tuple[float, bool]:
    """Iterations that a checkpoint says it has, by which checkpoints are ordered; times of files change with a copy.

    Its manifest says them, or its name, `epoch=N.ckpt`. A last.ckpt without a manifest is the newest, and of two
    checkpoints of one iteration last.ckpt is.
    """
    from mmrl.runs.checkpoint_file import CheckpointError, read_manifest  # imports torch

    is_last = checkpoint.name == "last.ckpt"
    count: Any = None
    with suppress(CheckpointError, OSError, zipfile.BadZipFile):
        count = read_manifest(checkpoint).get("epoch")
    if type(count) is int:
        return count, is_last
    named = re.search(r"epoch=(\d+)", checkpoint.name)
    return float(named[1]) if named else math.inf if is_last else -1.0, is_last


def claim_folder(folder: Path) -> Path:
    """Create a new folder, whose name gets a number where it is taken: several runs may begin within one second."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        name = folder.name if number == 1 else f"{folder.name}-{number}"
        try:
            (folder.parent / name).mkdir()
        except FileExistsError:
            continue
        return folder.parent / name
    raise AssertionError


@contextmanager
def own_folder(run_dir: str, ckpt_path: str | None, overwrite: bool = False, claimed: bool = False) -> Iterator[Path]:
    """Lock the folder for this process, and prepare it for a new or a resumed run.

    A run that resumes from a checkpoint of this folder leaves its files as they are. A new run refuses a folder with
    checkpoints or a policy unless `overwrite`, and deletes metrics that have no checkpoint. A run that ends with an
    error before it has written anything leaves no folder that it made.

    Args:
        run_dir: the folder; created if missing.
        ckpt_path: checkpoint that the run resumes from; None for a new run.
        overwrite: delete the results in the folder.
        claimed: whether the folder was made for this run alone (`claim_folder`).

    Raises:
        ConfigError: the folder cannot be used, or a folder in it is a link to another place; the message names it and
            the choices.
    """
    if not run_dir.strip():
        raise ConfigError("run_dir is empty; name a folder, or leave it out for runs/<recipe>/<time>")
    if overwrite and ckpt_path is not None:
        raise ConfigError("give either ckpt_path=..., which resumes a run, or overwrite=true, which removes it")
    folder = Path(run_dir)
    new_folders = [place for place in (folder, *folder.parents) if not os.path.lexists(place)]
    if claimed and not new_folders:
        new_folders = [folder]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.fdopen(open_unlinked(folder / LOCK, os.O_RDWR | os.O_APPEND), "a+")
    except OSError as error:
        raise ConfigError(f"run_dir={run_dir}: {error.strerror}; name a folder that can be written to") from error
    with lock:
        _lock(lock, folder)
        try:
            _prepare(folder, ckpt_path, overwrite)
            yield folder
        except BaseException:
            _remove_unused(new_folders)
            raise


def _remove_unused(folders: Sequence[Path]) -> None:
    """Remove folders that hold nothing but the lock of a run, the innermost first."""
    if folders and os.listdir(folders[0]) == [LOCK]:
        (folders[0] / LOCK).unlink()
        with suppress(OSError):  # another run has a folder there
            for folder in folders:
                folder.rmdir()


def _lock(lock: object, folder: Path) -> None:
    """Lock the folder until this process ends, however it ends.

    The lock is a POSIX record lock, because forked children would hold one of flock(2) beyond the end of this process.
    """
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # type: ignore[arg-type]
    except OSError as error:
        lock.seek(0)  # type: ignore[attr-defined]
        owner = lock.read().strip() or "another process"  # type: ignore[attr-defined]
        raise ConfigError(
            f"run_dir={folder} is in use by a running process ({owner}); wait for its end or name another folder"
        ) from error
    lock.truncate(0)  # type: ignore[attr-defined]
    lock.write(f"process {os.getpid()} on {os.uname().nodename}\n")  # type: ignore[attr-defined]
    lock.flush()  # type: ignore[attr-defined]


def _prepare(folder: Path, ckpt_path: str | None, overwrite: bool) -> None:
    for path in () if overwrite else (folder / name for name in RESULTS):
        if path.is_symlink() and not path.is_file():  # links to files are replaced
            check_inside(path, folder)
    checkpoints = checkpoints_of(folder)
    if ckpt_path is not None and Path(ckpt_path).resolve().is_relative_to((folder / "checkpoints").resolve()):
        return
    if overwrite:
        for name in RESULTS:
            remove_path(folder / name)
        return
    if checkpoints or (folder / "policy").exists():
        resume = f"ckpt_path={checkpoints[-1]}" if checkpoints else None
        if resume and ckpt_path is None:
            raise ConfigError(
                f"run_dir={folder} holds a run already: resume it with {resume}, or give another run_dir, or "
                "overwrite=true, which removes that run"
            )
        raise ConfigError(
            f"run_dir={folder} holds another run already: give another run_dir, or overwrite=true without ckpt_path, "
            "which removes that run"
        )
    if ckpt_path is None:
        remove_path(folder / "metrics.csv")  # left by a run that ended before its first checkpoint
