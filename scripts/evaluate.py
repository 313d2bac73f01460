"""Evaluate through Hydra, one run or many: python scripts/evaluate.py --multirun run=runs/a,runs/b count=128.

Options are those of `mmrl evaluate`, with run=FOLDER instead of a bare folder; results are written into each run.
"""

from __future__ import annotations

import os
import sys

import hydra
from omegaconf import DictConfig

from mmrl.commands.sweep import to_evaluate_arguments, to_evaluate_overrides
from mmrl.config.compose import CONF
from mmrl.errors import ConfigError

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@hydra.main(config_path=str(CONF), config_name="evaluate", version_base="1.3")
def main(cfg: DictConfig) -> None:
    from mmrl.commands.evaluate import evaluate

    evaluate(to_evaluate_arguments(cfg))


if __name__ == "__main__":
    try:
        sys.argv[1:] = to_evaluate_overrides(sys.argv[1:])
        main()
    except ConfigError as error:
        sys.exit(f"evaluate: {error}")
