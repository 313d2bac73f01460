"""ModelCheckpoint callbacks that may share an interval."""

from __future__ import annotations

from lightning.pytorch.callbacks import ModelCheckpoint


class NamedCheckpoint(ModelCheckpoint):
    """ModelCheckpoint whose state is saved under its file name too.

    Lightning identifies callbacks by interval and metric alone, and refuses two that are equal in both.
    """

    @property
    def state_key(self) -> str:
        return f"{super().state_key}/{self.filename}"
