"""The servers of OpenEnv environments that this process has started, and what a server says of its environment."""

from __future__ import annotations

import functools
import json
import shutil
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmrl.tools.guest_process import GuestProcess

HOST = Path(__file__).with_name("host.py")
START_S = 180.0
"""Seconds for the imports of an environment."""


class OpenEnvServer(GuestProcess):
    """A process of another Python that serves an environment; it ends with the program.

    Args:
        target: MODULE:APP of the environment's application.
        python: interpreter that has the package openenv.

    Raises:
        ValueError: the interpreter is missing, or the process ends or says nothing before it listens.
    """

    def __init__(self, target: str, python: str):
        if shutil.which(python) is None:
            raise ValueError(f"task openenv: there is no program python={python!r}; name a Python with openenv")
        super().__init__([python, str(HOST), target])
        started = time.monotonic()
        port = self.read_line(START_S)
        if not port:
            is_late = time.monotonic() - started >= START_S  # otherwise the process has ended
            self.close()
            end = f"did not listen within {START_S:.0f} s" if is_late else f"ended with status {self.status}"
            raise ValueError(
                f"task openenv: server={target!r} under {python} {end}; its messages are above. Give task.server="
                "MODULE:APP, where APP is what openenv's create_app returns, and task.python=PYTHON, an interpreter "
                "that imports both from here"
            )
        self.url = f"http://127.0.0.1:{port}"


@dataclass(frozen=True)
class Description:
    """What a server says of its environment.

    Args:
        description: in words.
        actions: JSON schema of each field of an action, without `metadata`.
        required: fields that an action has to have.
        texts: fields of an observation that are texts.
    """

    description: str
    actions: dict[str, Any]
    required: tuple[str, ...]
    texts: tuple[str, ...]


@functools.lru_cache
def describe(url: str, timeout_s: float) -> Description:
    """Ask a server for its environment's description and the fields of actions and observations.

    Raises:
        ValueError: nothing answers there, or it is no server of OpenEnv.
    """
    schema, metadata = (_get(f"{url}/{page}", timeout_s) for page in ("schema", "metadata"))
    try:
        actions = {name: field for name, field in schema["action"].get("properties", {}).items() if name != "metadata"}
        fields = schema["observation"].get("properties", {})
        texts = tuple(name for name, field in fields.items() if field.get("type") == "string")
        required = tuple(name for name in schema["action"].get("required", ()) if name in actions)
        return Description(str(metadata.get("description") or ""), actions, required, texts)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(
            f"task openenv: {url}/schema is no schema of OpenEnv 0.10 ({type(error).__name__}: {error})"
        ) from error


def _get(url: str, timeout_s: float) -> Any:
    """Read a page of JSON; a server that has just started is asked again until the time is over."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            with opener.open(url, timeout=timeout_s) as response:
                return json.load(response)
        except (OSError, ValueError) as error:
            if time.monotonic() + 0.5 < deadline and isinstance(getattr(error, "reason", None), ConnectionError):
                time.sleep(0.5)
                continue
            raise ValueError(
                f"task openenv: {url} gives no answer of an OpenEnv server: {error}; start the server, correct "
                "task.url, or let task.server=MODULE:APP start it"
            ) from error
