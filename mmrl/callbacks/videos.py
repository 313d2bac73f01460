"""Record videos of held-out episodes during training, and send them to the loggers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.trainer.states import TrainerFn

from mmrl.data.rollout_data import RolloutData
from mmrl.evaluation.report.checkpoint_metrics import success_rates
from mmrl.evaluation.video.clips import compose_clip
from mmrl.evaluation.video.encoder import PACKAGES as VIDEO_PACKAGES
from mmrl.evaluation.video.recording import EpisodeVideos, prepare_recording
from mmrl.evaluation.video.writer import CountingVideoWriter
from mmrl.loggers.base import SampleLogger


class Videos(L.Callback):
    """After every evaluation, write <run_dir>/videos/<iteration>/<decode>-<number>.mp4 and log them.

    The videos show the first held-out initial states under the first decode, played again with the draws of the
    evaluation. A video that ffmpeg does not write is counted, and the run goes on. Only in runs of one process.

    Args:
        run_dir: folder of the run.
        count: episodes; 0 records none.
        size: pixels a side of a frame.
    """

    def __init__(self, run_dir: str, count: int = 0, size: int = 192):
        for name, value, least in (("count", count, 0), ("size", size, 16)):
            if value < least:
                raise ValueError(f"trainer.callbacks.videos.{name} must be at least {least}, got {value}")
        self.folder, self.count, self.size = Path(run_dir) / "videos", count, size
        self.writer = CountingVideoWriter()

    @classmethod
    def packages_of(cls, init_args: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the packages that writing videos needs; none where no video is written."""
        return VIDEO_PACKAGES if init_args.get("count") else ()

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        data: RolloutData = trainer.datamodule  # type: ignore[attr-defined]
        key = f"trainer.callbacks.videos.count={self.count}"
        if self.count and trainer.world_size > 1:
            raise ValueError(f"{key}: videos are recorded in runs of one process; set it to 0 or trainer.devices=1")
        if self.count and (data.evaluation is None or getattr(data.task, "sim", None) is None):
            raise ValueError(f"{key}: it needs a task with a simulator (sim=...) and an evaluation; set it to 0")

    @torch.no_grad()
    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if not self.count or trainer.sanity_checking or trainer.state.fn != TrainerFn.FITTING:
            return
        data: RolloutData = trainer.datamodule  # type: ignore[attr-defined]
        decode = next(iter(data.evaluation.sampling))  # type: ignore[union-attr]
        evaluated, sim = prepare_recording(data, decode, range(self.count), self.size)
        evaluated.measure()
        sim.close()
        videos = EpisodeVideos(sim.videos, evaluated.evaluation.latest[decode], sim.fps)
        score = next((rate.score_name for rate in success_rates(data.evaluation).values()), None)
        for number in range(len(videos.episodes)):
            frames = compose_clip({"policy": videos}, number, score)
            path = self.folder / str(data.iteration) / f"{decode}-{number}.mp4"
            file = self.writer.write(frames, path, videos.fps)
            if file is None:
                continue
            for logger in trainer.loggers:
                if isinstance(logger, SampleLogger):
                    logger.log_video(f"videos/{file.stem}", file, trainer.global_step)

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.writer.warn_failures()
