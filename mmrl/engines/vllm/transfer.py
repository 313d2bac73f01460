"""Weight loading inside vLLM: a loader of the initial checkpoint, and a transfer engine for updates."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from vllm import _custom_ops
from vllm.config import ModelConfig
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
from vllm.model_executor.model_loader.dummy_loader import DummyModelLoader
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

from mmrl.engines.vllm.factors import Weights
from mmrl.engines.vllm.layout import rename_for_model
from mmrl.engines.vllm.worker import IN_MEMORY


class CheckpointLoader(DefaultModelLoader):
    """Load a checkpoint folder so that its weights can be replaced and read back later.

    On a CPU vLLM's own loader packs every linear weight and leaves an empty tensor, which no later transfer can write,
    and a tied output head silently keeps its old copy. Decoding is as fast without packing.
    """

    def __init__(self, load_config: Any):
        super().__init__(replace(load_config, load_format="safetensors"))
        _custom_ops._supports_onednn = False

    def get_all_weights(self, model_config: Any, model: nn.Module) -> Generator[tuple[str, Tensor], None, None]:
        yield from rename_for_model(model, super().get_all_weights(model_config, model))


class EmptyLoader(DummyModelLoader):
    """Start a model whose weights come with the first transfer."""

    def __init__(self, load_config: Any):
        super().__init__(load_config)
        _custom_ops._supports_onednn = False

    def load_weights(self, model: nn.Module, model_config: ModelConfig) -> None:
        """Set parameters to zero; buffers, which checkpoints lack, keep the values of their modules."""
        for parameter in model.parameters():
            parameter.data.zero_()


@dataclass
class FileInfo(WeightTransferUpdateInfo):
    """Transfer request: a safetensors file that the worker can read, and the version of its weights."""

    path: str
    version: int


@dataclass
class NoInfo(WeightTransferInitInfo):
    """Empty setup information: a transfer by file needs none."""


class FileTransfer(WeightTransferEngine[NoInfo, FileInfo]):
    """Transfer engine that reads the weights from a file, normally in shared memory."""

    init_info_cls = NoInfo
    update_info_cls = FileInfo

    source: str | None = None  # of the last complete transfer
    version: int | None = None
    _latest: FileInfo | None = None

    def init_transfer_engine(self, init_info: NoInfo) -> None:
        """Do nothing: a file needs no connection."""

    def start_weight_update(self) -> None:
        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: FileInfo) -> None:
        with Weights(Path(update_info.path), _device_name(self.device)) as weights:
            self.model.load_weights(rename_for_model(self.model, ((name, weights.tensor(name)) for name in weights)))
        self._latest = update_info

    def receive_tensors(self, tensors: Mapping[str, Tensor], version: int) -> None:
        """Load some of the tensors of a transfer within the process."""
        self.model.load_weights(rename_for_model(self.model, tensors.items()))
        self._latest = FileInfo(IN_MEMORY, version)

    def finish_weight_update(self) -> None:
        finalize_layerwise_reload(self.model, self.model_config)
        if self._latest is not None:
            self.source, self.version = self._latest.path, self._latest.version

    def shutdown(self) -> None:
        """Do nothing: no resource is held."""


def _device_name(device: torch.device) -> str:
    return "cpu" if device.type == "cpu" else str(device)
