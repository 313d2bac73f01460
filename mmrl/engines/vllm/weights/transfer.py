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
from vllm.model_executor.layers import utils as linear_kernels
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
from vllm.model_executor.model_loader.dummy_loader import DummyModelLoader
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

from mmrl.engines.vllm.weights.factors import Weights
from mmrl.engines.vllm.weights.group import GroupAddress, Header, WeightGroup
from mmrl.engines.vllm.weights.layout import IN_MEMORY, rename_for_model


class CheckpointLoader(DefaultModelLoader):
    """Load a checkpoint folder so that its weights can be replaced and read back later.

    On a CPU vLLM's own loader packs every linear weight and leaves an empty tensor, which no later transfer can write,
    and a tied output head silently keeps its old copy. Decoding is as fast without packing.
    """

    def __init__(self, load_config: Any):
        super().__init__(replace(load_config, load_format="safetensors"))
        _keep_linear_weights()

    def get_all_weights(self, model_config: Any, model: nn.Module) -> Generator[tuple[str, Tensor], None, None]:
        yield from rename_for_model(model, super().get_all_weights(model_config, model))


class EmptyLoader(DummyModelLoader):
    """Start a model whose weights come with the first transfer."""

    def __init__(self, load_config: Any):
        super().__init__(load_config)
        _keep_linear_weights()

    def load_weights(self, model: nn.Module, model_config: ModelConfig) -> None:
        """Set parameters to zero; buffers, which checkpoints lack, keep the values of their modules."""
        for parameter in model.parameters():
            parameter.data.zero_()


@dataclass
class UpdateInfo(WeightTransferUpdateInfo):
    """Transfer request: a safetensors file that the worker can read, or the tensors of a broadcast."""

    version: int  # of the weights
    path: str = IN_MEMORY
    tensors: dict[str, Header] | None = None  # that rank 0 of the group broadcasts, in this order
    scales: dict[str, float] | None = None  # if they are factors of low-rank adapters


@dataclass
class ConnectInfo(WeightTransferInitInfo):
    """Setup information: the group of a broadcast and the rank of the server's first worker; a file needs none."""

    address: dict[str, Any] | None = None
    first_rank: int = 1


class Transfer(WeightTransferEngine[ConnectInfo, UpdateInfo]):
    """Transfer engine that reads the weights from a file, normally in shared memory, or receives a broadcast."""

    init_info_cls = ConnectInfo
    update_info_cls = UpdateInfo

    source: str | None = None  # of the last complete transfer
    version: int | None = None
    _latest: UpdateInfo | None = None
    _group: WeightGroup | None = None

    def init_transfer_engine(self, init_info: ConnectInfo) -> None:
        """Join the group of a broadcast, after leaving the last one; without an address nothing is done."""
        if init_info.address is not None:
            self.shutdown()
            self._group = WeightGroup(GroupAddress(**init_info.address), init_info.first_rank + self._rank())

    def _rank(self) -> int:
        """Return the number of this worker in its server."""
        parallel = self.parallel_config
        return parallel.data_parallel_rank * parallel.world_size + parallel.rank

    def start_weight_update(self) -> None:
        if self.device.type == "cpu":
            reset_expert_kernels(self.model)
        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: UpdateInfo) -> None:
        if update_info.tensors is None:
            with Weights(Path(update_info.path), _device_name(self.device)) as weights:
                self._load(weights)
        else:
            if self._group is None:
                raise RuntimeError("a broadcast of weights was announced, but this worker is in no group")
            tensors = self._group.receive(update_info.tensors, self.device)
            if update_info.scales is None:
                self.receive_tensors(tensors, update_info.version)
            else:
                base = Path(self._default_model_config.model)
                with Weights(base, _device_name(self.device), tensors, update_info.scales) as weights:
                    self._load(weights)
        self._latest = update_info

    def _load(self, weights: Weights) -> None:
        self.model.load_weights(rename_for_model(self.model, ((name, weights.tensor(name)) for name in weights)))

    def receive_tensors(self, tensors: Mapping[str, Tensor], version: int) -> None:
        """Load some of the tensors of a transfer within the process."""
        self.model.load_weights(rename_for_model(self.model, tensors.items()))
        self._latest = UpdateInfo(version)

    def finish_weight_update(self) -> None:
        finalize_layerwise_reload(self.model, self.model_config)
        if self._latest is not None:
            self.source, self.version = self._latest.path, self._latest.version

    def shutdown(self) -> None:
        """Leave the group of a broadcast."""
        group, self._group = self._group, None
        if group is not None:
            group.close()


def _keep_linear_weights() -> None:
    """Let linear layers on a CPU keep their weights, which oneDNN and, with AMX, SGLang's kernel would pack."""
    _custom_ops._supports_onednn = False
    linear_kernels.check_cpu_sgl_kernel = lambda *_: False


def reset_expert_kernels(model: nn.Module) -> None:
    """Let experts be packed again when their weights have arrived.

    On a CPU vLLM packs them for its kernel when it builds the kernel, and copies later weights without packing.
    """
    for module in model.modules():
        method = getattr(module, "quant_method", None)
        if getattr(method, "moe_kernel", None) is not None:
            method.moe_kernel = None  # type: ignore[union-attr]


def _device_name(device: torch.device) -> str:
    return "cpu" if device.type == "cpu" else str(device)
