"""The words of tiny runs that write all files of a run."""

from pathlib import Path

from mmrl.__main__ import main
from tests.tiny_recipes import TEXT, override

LOGGED = (
    "trainer.accelerator=cpu",
    "trainer.callbacks.warm_start.stages=null",
    "trainer.callbacks.progress=null",
    "trainer.enable_progress_bar=false",
    "trainer.logger.tensorboard=null",
    "trainer.callbacks.evaluation_plots=null",
)


def fit(folder: Path, *more: str) -> int:
    """`mmrl fit` in this process; the exit status."""
    return main(["fit", *override([*TEXT, *LOGGED, f"run_dir={folder}"], more)])
