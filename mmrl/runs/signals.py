"""SIGTERM and Ctrl-C end a run after its iteration, with a checkpoint; a second Ctrl-C ends it at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Checkpoint

from mmrl.distributed import parallel
from mmrl.runs.checkpoint_file import read_manifest
from mmrl.runs.run_folder import last_checkpoint

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """Signal handler that stores the request to stop: `number` is the signal, None before one arrives.

    Outside an iteration the process ends at once, since nothing is lost. During an iteration the request is kept for
    `StopAfterIteration`.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.in_iteration = False

    @property
    def code(self) -> int:
        """The exit status 128 + signal number: 143 for SIGTERM, 130 for SIGINT."""
        return 128 + (self.number or signal.SIGTERM)

    def install(self) -> None:
        """Install the handler of both signals; does nothing outside the main thread, where Python forbids it."""
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                signal.signal(number, self._receive)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None:
            return
        self.number = number
        if not self.in_iteration:
            raise SystemExit(self.code)
        name = signal.Signals(number).name
        _say(f"\nmmrl fit: {name}, the run ends with a checkpoint after this iteration; Ctrl-C again ends it at once\n")


def _end_at_second_interrupt(numbers: int) -> None:
    """End the process at a SIGINT after another signal, whatever the main thread does: it may be in a call of C, before
    whose end Python runs no signal handler.

    Args:
        numbers: file descriptor from which each arriving signal is read as a byte, until the end of the file.
    """
    first = None
    while data := os.read(numbers, 1):
        if first is not None and data[0] == signal.SIGINT:
            _say("\x1b[?25hmmrl fit: ended at once\n")  # a progress bar hides the cursor
            os._exit(128 + first)
        if data[0] in SIGNALS:
            first = first or data[0]
    os.close(numbers)


def _say(text: str) -> None:
    """Write to standard error unbuffered, as signal handlers must; the cursor's escape code only to a terminal."""
    with suppress(BrokenPipeError):
        os.write(2, (text if os.isatty(2) else text.removeprefix("\x1b[?25h")).encode())


@contextmanager
def stop_request() -> Iterator[StopRequest]:
    """Handle SIGTERM and SIGINT with a `StopRequest` inside the context; restore the previous handlers after it."""
    request, before = StopRequest(), {number: signal.getsignal(number) for number in SIGNALS}
    request.install()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    numbers, arriving = os.pipe()
    os.set_blocking(arriving, False)
    descriptor = signal.set_wakeup_fd(arriving, warn_on_full_buffer=False)
    threading.Thread(target=_end_at_second_interrupt, args=(numbers,), daemon=True, name="second interrupt").start()
    try:
        yield request
    finally:
        signal.set_wakeup_fd(descriptor)
        os.close(arriving)
        for number, handler in before.items():
            signal.signal(number, handler)


class StopAfterIteration(Checkpoint):
    """End the run after the iteration in which a stop was requested, with <run_dir>/checkpoints/last.ckpt.

    Only at the end of an iteration does a checkpoint hold the whole state of a run. With several processes, a request
    to one of them ends all.

    Args:
        request: the stop request of this process.
        run_dir: folder of the run.
    """

    def __init__(self, request: StopRequest, run_dir: Any):
        self.request, self.last = request, last_checkpoint(run_dir)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.request.install()  # again, since Lightning has installed handlers that end a run within an iteration

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.request.in_iteration = True

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if parallel.on_any(trainer, self.request.number is not None):
            if parallel.on_any(trainer, not self._is_saved(trainer)):
                trainer.save_checkpoint(self.last)
            raise SystemExit(self.request.code)
        self.request.in_iteration = False

    def _is_saved(self, trainer: L.Trainer) -> bool:
        """Whether last.ckpt was already written at the present epoch and step."""
        manifest = read_manifest(self.last) if self.last.is_file() else {}
        return (manifest.get("epoch"), manifest.get("global_step")) == (trainer.current_epoch, trainer.global_step)
