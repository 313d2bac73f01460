"""`mmrl rounds`: run the stages of a rounds file, or resume them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from mmrl.commands.rounds.checks import check_steps
from mmrl.commands.rounds.execution import Execution
from mmrl.commands.rounds.file import RoundsFile, read_rounds
from mmrl.commands.rounds.playing import play_stage
from mmrl.commands.rounds.receipts import Receipt, check_same_file, read_receipt, record_file
from mmrl.commands.rounds.recording import RECORDING, record_stage
from mmrl.commands.rounds.schedule import StageRun, list_steps
from mmrl.commands.rounds.table import format_table, plot_scores, write_table
from mmrl.commands.rounds.writing import WRITING, write_stage
from mmrl.runs.run_folder import own_folder
from mmrl.runs.writable import writable


def rounds(arguments: Sequence[str]) -> Path | None:
    """Run all steps of a rounds file that have not ended, and return the folder.

    Args:
        arguments: as of `read_rounds`; or --stage=FOLDER alone, which this command gives to the process of a stage.
    """
    if len(arguments) == 1 and arguments[0].startswith("--stage="):
        folder = Path(arguments[0].partition("=")[2])
        runs = {WRITING: write_stage, RECORDING: record_stage}
        next((run for name, run in runs.items() if (folder / name).is_file()), play_stage)(folder)
        return None
    file = read_rounds(arguments)
    steps = list_steps(file)
    run_dir = Path(file.values["run_dir"] or f"runs/rounds/{file.name}").absolute()
    with writable(run_dir, "run_dir"), own_folder(str(run_dir), None):
        if not check_same_file(run_dir, file):
            check_steps(file, steps, run_dir)
            record_file(run_dir, file)
        _run(file, steps, run_dir)
    return run_dir


def _run(file: RoundsFile, steps: Sequence[StageRun], run_dir: Path) -> None:
    execution, title = Execution(file, steps, run_dir), str(file.values.get("title") or file.name)
    ended: list[tuple[StageRun, Receipt]] = []
    for step in steps:
        if read_receipt(run_dir / step.name) is None:
            print(f"[{step.number + 1}/{len(steps)}] round {step.round}: {step.name} ({step.kind})", flush=True)
        ended.append((step, execution.run(step)))
        write_table(run_dir, ended)
    plot_scores(run_dir, ended, title)
    Console(width=None if Console().is_terminal else 140, markup=False, emoji=False).print(format_table(ended, title))
    print(f"rounds folder: {run_dir}")
