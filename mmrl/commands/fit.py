"""Train a policy."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from mmrl.cli import CLI
from mmrl.commands.fit_words import check_dashed
from mmrl.config import ConfigError, compose, groups, hydra_words, typed
from mmrl.overrides import check_groups


def fit(words: Sequence[str]) -> None:
    """Hydra words (key=value) or LightningCLI words (--key value); --print_config only prints the resolved file."""
    only_print = "--print_config" in words
    words = [word for word in words if word != "--print_config"]
    dashed = any(word.startswith("--") for word in words)
    if dashed and any(not w.startswith("--") and "=" in w and not _value_of(words, i) for i, w in enumerate(words)):
        raise ConfigError(
            "give either Hydra words (key=value) or LightningCLI words (--key value), not both; several runs at once "
            "are scripts/train.py --multirun key=a,b"
        )
    if dashed:
        check_dashed(words)
    else:
        hydra_words(words)  # an option that there is not is said before one that is there twice
        check_groups(words, groups())
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)  # hints about loggers and devices
    cli = CLI(words if dashed else typed(compose(words)), build=not only_print)
    if only_print:
        print(cli.resolved(), end="")
        return
    cli.fit()
    if cli.trainer.is_global_zero:
        print(f"run folder: {cli.config.run_dir}")


def _value_of(words: Sequence[str], i: int) -> bool:
    """Whether word i is the value of the option before it."""
    return i > 0 and words[i - 1].startswith("--") and "=" not in words[i - 1]
