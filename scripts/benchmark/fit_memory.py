"""Train like `mmrl fit WORDS` and write the process's memory to FILE.RANK: fit_memory.py FILE WORDS..."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from mmrl.commands.cli import CLI
from mmrl.commands.fit import train
from mmrl.config.compose import compose, to_lightning
from mmrl.runs.signals import stop_request

STATUS = Path("/proc/self/status")


def read_status(name: str) -> int:
    """Bytes of an entry of this process's status, such as VmRSS or its peak VmHWM."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


def main() -> None:
    file, words = sys.argv[1], sys.argv[2:]
    with stop_request() as request:
        cli = CLI(to_lightning(compose(words)), build=False)
        before = read_status("VmRSS")
        train(cli, request, overwrite=True)
    rank = os.environ.get("LOCAL_RANK", "0")
    found = {"before": before, "peak": read_status("VmHWM"), "metrics": dict(cli.trainer.callback_metrics)}
    found["metrics"] = {name: float(value) for name, value in found["metrics"].items()}
    Path(f"{file}.{rank}").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
