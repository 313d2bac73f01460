"""RL-GPT's policy: an actor-critic over primitive and macro-actions, with the programs of the latter in a buffer.

RL-GPT, 2024, arXiv:2402.19299.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from mmrl.core.errors import check_at_least
from mmrl.policies import policy_folder
from mmrl.policies.control.policy import ControlPolicy
from mmrl.rollouts.options import ELAPSED


class MacroPolicy(ControlPolicy):
    """`ControlPolicy` with an action mask and with the programs of its macro-actions, which are saved with its weights.

    Args:
        observation_dims: length of the state vector.
        actions: how many actions there are, macro-actions included.
        slots: K, how many of them are macro-actions, the last ones.
        kind: distribution of the action, which must be categorical.
        hidden: widths of the hidden layers, of actor and critic alike.
        activation: between the layers.
        program_bytes: most bytes of a program, in UTF-8.
        path: folder that `save_pretrained` wrote; its settings replace all others.
    """

    def __init__(
        self,
        observation_dims: int | None = None,
        actions: int | None = None,
        slots: int | None = None,
        kind: Literal["categorical"] = "categorical",
        hidden: Sequence[int] = (64, 64),
        activation: Literal["tanh", "relu", "silu"] = "tanh",
        program_bytes: int = 4096,
        path: str | None = None,
    ):
        settings = policy_folder.resolve(locals(), path, sizes=("observation_dims", "actions", "slots"))
        extra = ("slots", "program_bytes")
        super().__init__(**{name: value for name, value in settings.items() if name not in extra}, action_mask=True)
        self.config = settings
        check_at_least(1, "policy", program_bytes=settings["program_bytes"])
        if not settings["slots"] or not 1 <= settings["slots"] < settings["actions"] or self.kind != "categorical":
            raise ValueError(
                f"policy.slots={settings['slots']}, policy.actions={settings['actions']}, policy.kind={self.kind}: "
                "macro-actions are some of several numbered actions (kind=categorical); take sim=craft_macros"
            )
        shape = (settings["slots"], settings["program_bytes"])
        self.register_buffer("programs", torch.zeros(shape, dtype=torch.uint8))
        policy_folder.load(path, self)

    def read_programs(self) -> list[str]:
        """Source of the program of each macro-action, "" for an empty place."""
        rows = self.get_buffer("programs").cpu().numpy()
        return [row.tobytes().rstrip(b"\0").decode() for row in rows]

    def write_programs(self, programs: Sequence[str]) -> None:
        """Put programs in the place of those before; raises a ValueError for more or longer ones than there is room."""
        buffer = self.get_buffer("programs")
        rows = np.zeros(buffer.shape, np.uint8)
        if len(programs) > len(rows):
            raise ValueError(f"{len(programs)} programs for policy.slots={len(rows)}; raise sim.slots")
        for row, source in zip(rows, programs):
            encoded = np.frombuffer(source.encode(), np.uint8)
            if len(encoded) > len(row):
                raise ValueError(
                    f"a program of {len(encoded)} bytes for policy.program_bytes={len(row)}; shorten it or raise that"
                )
            row[: len(encoded)] = encoded
        buffer.copy_(torch.from_numpy(rows))

    def encode_batch(self, raw: Mapping[str, Any]) -> dict[str, Tensor]:
        encoded = super().encode_batch(raw)
        if ELAPSED in raw:
            encoded[ELAPSED] = torch.from_numpy(np.array(raw[ELAPSED], dtype=np.float32))
        return encoded
