"""Evaluate through Hydra, one run or many: python scripts/evaluate.py --multirun run=runs/a,runs/b count=128.

Options are those of `mmrl evaluate`, with run=FOLDER instead of a bare folder; results are written into each run.
"""

from __future__ import annotations

import os
import sys

import hydra
from omegaconf import DictConfig

from mmrl.commands.sweep import evaluate_words, plain_words
from mmrl.config.compose import CONF
from mmrl.errors import ConfigError

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@hydra.main(config_path=str(CONF), config_name="evaluate", version_base="1.3")
def main(cfg: DictConfig) -> None:
    from mmrl.commands.evaluate import evaluate

    evaluate(plain_words(cfg))


if __name__ == "__main__":
    try:
        sys.argv[1:] = evaluate_words(sys.argv[1:])
        main()
    except ConfigError as error:
        sys.exit(f"evaluate: {error}")
