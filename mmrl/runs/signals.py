"""SIGTERM and Ctrl-C end a run after its iteration, with a checkpoint; a second Ctrl-C ends it at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Checkpoint

from mmrl import parallel
from mmrl.runs.checkpoint_file import read_manifest
from mmrl.runs.run_folder import last_checkpoint

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """The signal that asked this process to end, if one did.

    Between iterations, before the first and after the last, the process ends as soon as the signal comes: nothing is
    lost. During an iteration the request is kept for `StopAfterIteration`.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.in_iteration = False

    @property
    def code(self) -> int:
        """The exit status that tells a scheduler which signal it was: 143 or 130."""
        return 128 + (self.number or signal.SIGTERM)

    def install(self) -> None:
        """Take both signals; does nothing outside the main thread, which alone may."""
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                signal.signal(number, self._receive)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None:
            if number == signal.SIGINT:
                _say("\x1b[?25hmmrl fit: ended at once\n")  # a progress bar hides the cursor
                os._exit(self.code)
            return
        self.number = number
        if not self.in_iteration:
            raise SystemExit(self.code)
        name = signal.Signals(number).name
        _say(f"\nmmrl fit: {name}, the run ends with a checkpoint after this iteration; Ctrl-C again ends it at once\n")


def _say(text: str) -> None:
    """Write past Python's buffers, which a signal handler may not use; the cursor's code for terminals alone."""
    os.write(2, (text if os.isatty(2) else text.removeprefix("\x1b[?25h")).encode())


@contextmanager
def stop_request() -> Iterator[StopRequest]:
    """Inside, SIGTERM and SIGINT go to the request; afterwards to whom they went before."""
    request, before = StopRequest(), {number: signal.getsignal(number) for number in SIGNALS}
    request.install()
    try:
        yield request
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, handler)


class StopAfterIteration(Checkpoint):
    """Ends the run after the iteration in which a stop was requested, with <run_dir>/checkpoints/last.ckpt.

    The end of an iteration is the only moment at which a checkpoint holds the whole state of a run. With several
    processes it is enough that one of them was asked.

    Args:
        request: of this process.
        run_dir: folder of the run.
    """

    def __init__(self, request: StopRequest, run_dir: Any):
        self.request, self.last = request, last_checkpoint(run_dir)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.request.install()  # again: Lightning's own handlers end a run in the middle of an iteration

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.request.in_iteration = True

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if parallel.on_any(trainer, self.request.number is not None):
            if parallel.on_any(trainer, not self._is_saved(trainer)):
                trainer.save_checkpoint(self.last)
            raise SystemExit(self.request.code)
        self.request.in_iteration = False

    def _is_saved(self, trainer: L.Trainer) -> bool:
        """Whether last.ckpt is of this moment already."""
        manifest = read_manifest(self.last) if self.last.is_file() else {}
        return (manifest.get("epoch"), manifest.get("global_step")) == (trainer.current_epoch, trainer.global_step)
