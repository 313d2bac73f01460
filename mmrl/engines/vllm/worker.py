"""vLLM plug-in: registers mmrl's loader and transfer engine, and adds methods to vLLM's worker.

It is imported in every process of vLLM, in an environment that may lack mmrl's other dependencies.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from mmrl.engines.vllm.weights.factors import Weights
from mmrl.engines.vllm.weights.fingerprint import fingerprint
from mmrl.engines.vllm.weights.group import Header, build_empty
from mmrl.engines.vllm.weights.layout import IN_MEMORY, WeightLayout, headers, headers_of, layout, model_tensors

TRANSFER = "mmrl_file"  # --weight-transfer-config '{"backend": "mmrl_file"}'
LOADER = "mmrl"  # --load-format mmrl
EMPTY = "mmrl_empty"  # of a model whose weights come with the first transfer
EXTENSION = "mmrl.engines.vllm.worker.Questions"  # --worker-extension-cls


def register() -> None:
    """Entry point of the group vllm.general_plugins; may be called any number of times."""
    from vllm.distributed.weight_transfer import WeightTransferEngineFactory
    from vllm.model_executor import model_loader

    if TRANSFER not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(TRANSFER, "mmrl.engines.vllm.weights.transfer", "Transfer")
    if LOADER not in model_loader._LOAD_FORMAT_TO_MODEL_LOADER:
        from mmrl.engines.vllm.weights.transfer import CheckpointLoader, EmptyLoader

        model_loader.register_model_loader(LOADER)(CheckpointLoader)
        model_loader.register_model_loader(EMPTY)(EmptyLoader)


class Questions:
    """Methods of vLLM's worker for `collective_rpc`; arguments and results can be written as JSON."""

    weight_transfer_engine: Any
    model_config: Any
    mmrl_layouts: dict[str, WeightLayout]  # by path; kept because the file may be gone when weights are verified

    def mmrl_check(self, path: str) -> dict[str, Any]:
        """Return the reasons why a safetensors file cannot be loaded, {"problems": [...]}; empty if it can."""
        with Weights(Path(path)) as weights:
            if problems := weights.problems():
                return {"problems": problems}
        model_layout = layout(self.get_model(), headers(Path(path)))  # type: ignore[attr-defined]
        self._mmrl_layouts()[path] = model_layout
        return {"problems": model_layout.problems}

    def mmrl_check_tensors(self, headers: Mapping[str, Tensor]) -> dict[str, Any]:
        """Return the reasons why tensors of these shapes cannot be loaded, and the dtypes of the model's tensors.

        In the process of vLLM alone, since tensors cannot be written as JSON.
        """
        model = self.get_model()  # type: ignore[attr-defined]
        model_layout = layout(model, headers)
        if not model_layout.problems:  # tensors that are refused leave the model as it was
            self._mmrl_layouts()[IN_MEMORY] = model_layout
        dtypes = {str(tensor.dtype).removeprefix("torch.") for tensor in model_tensors(model).values()}
        return {"problems": model_layout.problems, "dtypes": sorted(dtypes)}

    def mmrl_check_broadcast(self, headers: Mapping[str, Header], scales: Mapping[str, float] | None) -> dict[str, Any]:
        """Answer as `mmrl_check_tensors` for tensors that will be broadcast, and name the device type of the model.

        With scales they are factors, which are merged with the checkpoint that the model was started from.
        """
        tensors = build_empty(headers)
        device = self.weight_transfer_engine.device.type
        if scales is not None:
            base = Path(self.model_config.model)
            if next(base.glob("*.safetensors"), None) is None:
                problem = f"{base}, from which the server was started, has no weights that factors can be merged with"
                return {"problems": [problem], "dtypes": [], "device": device}
            with Weights(base, factors=tensors, scales=scales) as weights:
                if problems := weights.problems():
                    return {"problems": problems, "dtypes": [], "device": device}
                tensors = headers_of(weights)
        return self.mmrl_check_tensors(tensors) | {"device": device}

    def mmrl_load(self, tensors: Mapping[str, Tensor], version: int) -> None:
        """Load some of the tensors of a transfer that has been started."""
        self.weight_transfer_engine.receive_tensors(tensors, version)

    def mmrl_report_weights(self) -> dict[str, Any]:
        """Return the running model's tensors, and the transferred (or initial) tensors that each is made of.

        {"version": of the last transfer or None, "parts": {held: [checkpoint tensors]}, "ignored": [checkpoint
        tensors], "tensors": {held: {"sum", "squares": float.hex(), "count": int, "dtype": str}}}. A tied tensor stands
        under each of its names.
        """
        transfer = self.weight_transfer_engine
        path, version = getattr(transfer, "source", None), getattr(transfer, "version", None)
        path = path or self.model_config.model
        layouts = self._mmrl_layouts()
        if path not in layouts:
            layouts[path] = layout(self.get_model(), headers(Path(path)))  # type: ignore[attr-defined]
        model_layout = layouts[path]
        self.mmrl_layouts = {path: model_layout}
        tensors = {}
        for name, tensor in model_tensors(self.get_model()).items():  # type: ignore[attr-defined]
            first, second = fingerprint(tensor)
            tensors[name] = {
                "sum": first.hex(),
                "squares": second.hex(),
                "count": tensor.numel(),
                "dtype": str(tensor.dtype).removeprefix("torch."),
            }
        return {"version": version, "parts": model_layout.parts, "ignored": model_layout.ignored, "tensors": tensors}

    def _mmrl_layouts(self) -> dict[str, WeightLayout]:
        if not hasattr(self, "mmrl_layouts"):
            self.mmrl_layouts = {}
        return self.mmrl_layouts
