"""What a policy server says about itself when a client connects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmrl.core.errors import ConfigError


@dataclass(frozen=True)
class ServerStatement:
    """Observations that a server needs and actions that it gives, as far as it says so.

    Args:
        observations: names.
        dims: A, numbers of a control step; None where it is not said.
        chunk: H, control steps of an answer; None where it is not said.
    """

    observations: tuple[str, ...] = ()
    dims: int | None = None
    chunk: int | None = None


def read_metadata(metadata: Mapping[str, Any], place: str) -> ServerStatement:
    """Read the entries "observations" and "action" of the metadata.

    Args:
        metadata: the first message of the server.
        place: for errors: policy.url=...

    Raises:
        ConfigError: an entry is of another type than `mmrl serve` sends.
    """
    names = metadata.get("observations")
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise ConfigError(f"{place}: the server's metadata has observations={names!r:.60}, not a list of names")
    action = metadata.get("action")
    if action is not None and not isinstance(action, Mapping):
        raise ConfigError(f"{place}: the server's metadata has action={action!r:.60}, not a map of chunk and dims")
    sizes: dict[str, int | None] = {}
    for name in ("dims", "chunk"):
        size = (action or {}).get(name)
        if size is not None and (type(size) is not int or size < 1):
            raise ConfigError(
                f"{place}: the server's metadata has action.{name}={size!r:.60}, not a whole number above 0"
            )
        sizes[name] = size
    return ServerStatement(tuple(names or ()), **sizes)
