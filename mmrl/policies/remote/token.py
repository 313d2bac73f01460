"""Token of a policy server, from a file or the environment; never from the configuration, which is written to disk."""

from __future__ import annotations

import hmac
import os

from mmrl.core.errors import ConfigError
from mmrl.files.foreign import read_foreign

TOKEN = "MMRL_SERVE_TOKEN"
_LARGEST = 2**16  # bytes of the file


def read_token(file: str | None, key: str) -> str | None:
    """Read the token of a file, or of the environment variable MMRL_SERVE_TOKEN; None where neither is given.

    Args:
        file: path, or None.
        key: the option that names the file, for messages.
    """
    if file is None:
        return os.environ.get(TOKEN, "").strip() or None
    try:
        token = read_foreign(file, "give a file with one line", _LARGEST).decode().strip()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{key}={file}: cannot be read ({error})") from error
    if not token or not (token.isascii() and token.isprintable()):
        raise ConfigError(f"{key}={file}: must hold one line of ASCII characters")
    return token


def is_token(sent: str, token: str | None) -> bool:
    """Whether a client has sent the token, in a time that does not depend on where it differs; None asks for none."""
    return token is None or hmac.compare_digest(sent.strip().encode(errors="replace"), token.encode())
