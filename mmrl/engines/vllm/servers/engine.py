"""Engine on one or more vLLM servers; server options are keys of `engine`, as in engine.servers=2."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mmrl.core.errors import ConfigError
from mmrl.engines.vllm.engine import VllmEngine
from mmrl.engines.vllm.servers.backend import Server


class ServerEngine(VllmEngine):
    """VllmEngine with the backend `mmrl.engines.vllm.servers.backend.Server`, whose arguments it takes.

    Args:
        folder: for the checkpoint and the weights that the servers read; None creates one in shared memory. Servers on
            other machines than rank 0's need a folder on shared storage.
        adapters: send the factors of low-rank adapters alone, see VllmEngine.
        models: servers of the frozen models that requests name, by name: the arguments of a ServerEngine, which gets
            the model's weights once. `python` is that of the policy's servers unless it is given.
    """

    def __init__(
        self,
        folder: str | None = None,
        adapters: bool = False,
        models: dict[str, dict[str, Any]] | None = None,
        **server: Any,
    ):
        super().__init__(Server(**server), folder, adapters)
        self.models, self._python, self._logs = models or {}, server.get("python"), server.get("logs")

    def check_models(self, names: Iterable[str]) -> None:
        model_names = frozenset(names)
        super().check_models(sorted(model_names))
        if unused := sorted(self.models.keys() - model_names):
            raise ConfigError(
                f"data.engine.models names servers of {unused}, which no rollout and no transform asks for; asked for "
                f"are {sorted(model_names)}"
            )

    def build_engine(self, name: str) -> ServerEngine:
        if name not in self.models:
            raise ConfigError(
                f"a part of data asks for the model {name!r}, and data.engine.models has {sorted(self.models)}; give "
                f"it servers of its own, as in engine.models.{name}.urls=[http://HOST:PORT] or "
                f"engine.models.{name}.servers=1, or use engine=local"
            )
        logs = None if self._logs is None else str(Path(self._logs) / name)
        options: dict[str, Any] = {"python": self._python, "logs": logs} | self.models[name]
        return ServerEngine(**options)
