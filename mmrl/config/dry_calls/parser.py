"""Parser that builds the data module before any model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jsonargparse import Namespace
from lightning.pytorch.cli import LightningArgumentParser


class DataFirstParser(LightningArgumentParser):
    """Parser that builds the data module, and hands it to a check, before it builds any model.

    Attributes:
        check: refuses a data module; None accepts all.
    """

    check: Callable[[Any], None] | None = None

    def instantiate_classes(self, cfg: Any, **kwargs: Any) -> Any:
        """Build the parts of a configuration. Building the data leaves torch's random state as it was."""
        if not isinstance(cfg, Namespace) or "data" not in cfg:
            return super().instantiate_classes(cfg, **kwargs)
        with torch.random.fork_rng(devices=[]):
            data = super().instantiate_classes(Namespace(data=cfg.data), **kwargs).data
        if self.check is not None:
            self.check(data)
        return super().instantiate_classes(Namespace(**{**vars(cfg), "data": data}), **kwargs)
