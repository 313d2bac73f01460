"""Settings of a policy as LeRobot writes them to config.json."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from mmrl.policies.vla.lerobot.features import Features
from mmrl.policies.vla.lerobot.files import CONFIG, read_config


@dataclasses.dataclass(frozen=True)
class LeRobotSettings:
    """Entries of config.json that a network depends on; subclasses add theirs, with LeRobot's names and defaults.

    Args:
        features: what the policy reads and returns.
        raw: all entries of the file; those that the network does not depend on are saved again.
    """

    features: Features
    raw: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    kind: ClassVar[str]
    """The entry `type` of config.json."""

    @classmethod
    def entries(cls) -> list[str]:
        """Return the names of the entries that the network depends on."""
        return [part.name for part in dataclasses.fields(cls) if part.name not in ("features", "raw")]

    @classmethod
    def read(cls, path: str) -> Self:
        """Read config.json of a folder or hub repository.

        Raises:
            ValueError: it is of another policy, or of a variant that mmrl does not compute.
        """
        raw = read_config(path, cls.kind)
        values = {name: _freeze(raw[name]) for name in cls.entries() if name in raw}
        return cls(features=Features.read(raw, f"{path}/{CONFIG}"), raw=raw, **values)

    @classmethod
    def of(cls, features: Features, given: Mapping[str, Any]) -> Self:
        """Build those of a new policy from `policy.settings`.

        Raises:
            ValueError: an entry is unknown.
        """
        if unknown := sorted(set(given) - set(cls.entries())):
            raise ValueError(f"policy.settings: unknown {unknown}; known are {cls.entries()}")
        return cls(features=features, **{name: _freeze(value) for name, value in given.items()})

    def save(self, folder: Path, changes: Mapping[str, Any]) -> None:
        """Write config.json; `changes` are entries that are not those of the checkpoint any more."""
        values = {name: getattr(self, name) for name in self.entries()}
        # without an entry LeRobot takes weights of ImageNet, which it would download before it reads ours
        raw = {"pretrained_backbone_weights": None, **self.raw}
        content = {"type": self.kind, **raw, **values, **self.features.to_json(), **changes}
        (folder / CONFIG).write_text(json.dumps(content, indent=4) + "\n")


def _freeze(value: Any) -> Any:
    """Return a list as a tuple."""
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
