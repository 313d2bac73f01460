"""Lightning's ModelCheckpoint, of which a run may have several with the same interval."""

from __future__ import annotations

from lightning.pytorch.callbacks import ModelCheckpoint


class NamedCheckpoint(ModelCheckpoint):
    """ModelCheckpoint whose state is saved under its file name too.

    Lightning tells several callbacks apart by their interval and metric alone, and refuses two that are equal in those.
    """

    @property
    def state_key(self) -> str:
        return f"{super().state_key}/{self.filename}"
