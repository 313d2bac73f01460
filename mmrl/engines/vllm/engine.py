"""Engine that samples with vLLM from a copy of the weights, updated and verified before every rollout."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mmrl.core.batch import Batch
from mmrl.core.evaluation_mode import evaluation_mode
from mmrl.core.types import Completion, Observation, Prompt, Request, Sampling
from mmrl.distributed.parallel import rank_and_size
from mmrl.distributed.sharding import collect_weights, without_weights
from mmrl.engines.base import Engine, context_id, contexts, distinct
from mmrl.engines.vllm.backend import Backend, EngineFailure, EngineOutput, EnginePrompt, EngineSampling
from mmrl.engines.vllm.private_folder import make_private_folder
from mmrl.engines.vllm.ranks import broadcast, raise_together
from mmrl.engines.vllm.sampling import COLDEST, HOTTEST, check_prompt, refuse_videos, support_of
from mmrl.engines.vllm.strings import ChoosesStrings, choose_strings
from mmrl.engines.vllm.weights.blocks import WeightBlocks
from mmrl.engines.vllm.weights.sent_weights import SentWeights
from mmrl.engines.vllm.weights.update import AdapterFactors, FullWeights
from mmrl.engines.vllm.weights.verification import verify_canary, verify_weights
from mmrl.policies.text.language_model import refuse_mean

log = logging.getLogger(__name__)

CANARY = Sampling(decode="argmax", max_tokens=8)


class VllmEngine(Engine):
    """Samples text and vision-language policies with vLLM.

    vLLM receives token ids and images and returns ids and log-probs, so no text is tokenised twice. Log-probs are those
    of the sampling distribution. Every weight transfer is verified: see `mmrl.engines.vllm.weights.verification`.

    Args:
        backend: where vLLM runs.
        folder: for the initial checkpoint and the weight updates; vLLM must be able to read it. None creates one in
        shared memory, or among the temporary files, and removes it at the end. An engine in the process gets the
        weights as tensors, unless it has `adapters`, and reads the configuration there.
        adapters: send only the factors of low-rank adapters, which vLLM merges into its base weights. False merges them
        here and sends all weights. In both cases vLLM decodes with merged weights.
    """

    uses_policy = False

    def __init__(self, backend: Backend, folder: str | None = None, adapters: bool = False):
        super().__init__()
        self.backend, self.folder = backend, folder
        self.thread_obstacle = backend.thread_obstacle
        self.sent = AdapterFactors() if adapters else FullWeights()
        self._folder: Path | None = None
        self._writes = False  # rank 0 writes into the folder, and empties it at the end
        self._policy: Any = None  # whose weights vLLM holds
        self._chooser: ChoosesStrings | None = None  # that chooses by its scores, in place of its tokens
        self._version = 0
        self._dtypes: set[str] = set()
        self._warned: set[str] = set()

    def check_prompt(self, prompt: Prompt) -> None:
        refuse_videos(prompt.observation)

    # ---------------------------------------------------------------- weights

    def sync(self, policy: Any, version: int) -> None:
        self._chooser = policy if isinstance(policy, ChoosesStrings) else None
        policy = policy.language_model if isinstance(policy, ChoosesStrings) else policy
        with raise_together():  # no rank samples from now on
            canary = policy.canary()  # refuses, by name, a policy that vLLM cannot serve
        if self.backend.takes_tensors and self.sent.whole:
            self._verify_weights(self._load(policy, version), version)
        else:
            with collect_weights(policy) as whole:
                exported = self._start(whole, version) if self._folder is None else None
                exported = self._push(whole, version) if exported is None else exported
                self._verify_weights(SentWeights(exported), version)
        self._policy, self._version = policy, version
        self._run_canary(canary)

    def _load(self, policy: Any, version: int) -> SentWeights:
        """Let vLLM load the weights, block by block; it is started without any."""
        if self._folder is None:
            self._start_empty(policy, version)
        with raise_together():
            blocks = WeightBlocks(policy)
        if self._writes and not self.backend.in_process:
            self.measured["engine/sent_mib"] = sum(t.numel() * t.itemsize for t in blocks.headers.values()) / 2**20
        return self.backend.load(blocks, version)

    def _start_empty(self, policy: Any, version: int) -> None:
        """Start vLLM with the policy's configuration: of each rank, or of the pool of all ranks."""
        with raise_together():
            self._writes = self.backend.in_process or rank_and_size()[0] == 0
            if self._writes:
                self._folder = self._make_folder()
                without_weights(policy).save_config(self._folder / "start")
        if not self.backend.in_process:
            self._folder = broadcast(self._folder)
        self.backend.start(self._folder / "start", version)

    def _make_folder(self) -> Path:
        """Make a folder, of this rank's own if each has an instance of vLLM."""
        if self.folder is None:
            return make_private_folder()
        rank, processes = rank_and_size()
        return Path(self.folder) / f"rank-{rank}" if processes > 1 and self.backend.in_process else Path(self.folder)

    def _start(self, policy: Any, version: int) -> Mapping[str, Tensor] | None:
        """Start vLLM; return the tensors that it must then hold, or None if weights must be pushed first.

        Ranks but 0, which write no weights, return an empty mapping for tensors.
        """
        exported: Mapping[str, Tensor] | None = None
        with raise_together():
            self._writes = rank_and_size()[0] == 0
            if self._writes:
                self._folder = Path(self.folder) if self.folder else make_private_folder()
                exported = self.sent.save(policy, self._folder / "start")
        self._folder, complete = broadcast((self._folder, exported is not None))
        self.backend.start(self._folder / "start", version)
        return ({} if exported is None else exported) if complete else None

    def _push(self, policy: Any, version: int) -> Mapping[str, Tensor]:
        """Push the policy's weights; return the tensors that vLLM must then hold, on ranks but 0 none."""
        assert self._folder is not None
        path = self._folder / f"weights-{version}.safetensors"
        exported: Mapping[str, Tensor] = {}
        with raise_together():
            if self._writes:
                exported = self.sent.write(policy, self._folder / "start", path)
                self.measured["engine/sent_mib"] = path.stat().st_size / 2**20
        self.backend.push(path, version)
        if self._writes:
            for older in self._folder.glob("weights-*.safetensors"):  # kept, for a server that is restarted
                if older != path:
                    older.unlink()
        return exported

    def _verify_weights(self, fingerprints: SentWeights, version: int) -> None:
        """Verify the weights of each vLLM; where one rank wrote a file for all, its fingerprints are those of all."""
        report = self.backend.report_weights()
        dtypes = set() if report is None else {t.dtype for t in report.tensors.values()}
        if self.backend.in_process and not self.sent.whole:
            fingerprints = broadcast(fingerprints.fix(dtypes) if self._writes else None)
        with raise_together():
            if report is not None:
                verify_weights(fingerprints, report, version)
        self._dtypes = {kind for kind in broadcast(dtypes | fingerprints.dtypes) if "float" in kind}

    def _run_canary(self, canary: Mapping[str, Any]) -> None:
        """Compare log-probs on one prompt that is longer than a block of the prefix cache, on every rank.

        Every rank calls the policy once, because sharded weights are gathered by all ranks at the same time.
        """
        with raise_together():
            (completion,) = self._completions([Request(canary, 0)], CANARY)
            if completion.ended == "error":
                raise EngineFailure("vLLM cannot answer the canary prompt; see the warning above")
        policy = self._policy
        columns = policy.collate([completion.observation])
        batch = Batch(
            action=completion.action[None],
            action_mask=completion.action_mask[None],
            temperature=completion.extra["temperature"][None],
            **{f"obs.{name}": column for name, column in columns.items()},
        )
        with torch.no_grad(), evaluation_mode(policy):
            logprobs = policy(Batch({name: column.to(policy.device) for name, column in batch.items()})).logprobs[0]
        with raise_together():
            self.measured["engine/canary_difference"] = verify_canary(
                completion.behavior_logprobs, logprobs.float().cpu(), self._dtypes, self._version
            )

    # ---------------------------------------------------------------- sampling

    def sample(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        return self.sample_by_model(requests, sampling, self._sample_policy)

    def _sample_policy(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        if self._policy is None:
            raise RuntimeError("the engine has no weights yet: call sync(policy, version) before sample")
        started = time.perf_counter()
        if self._chooser is None:
            completions = self._completions(requests, sampling)
        else:
            completions = choose_strings(
                self._chooser, self.backend, requests, sampling, self._version, self._count_failure
            )
        self.count("time/generate", time.perf_counter() - started)
        self.count("engine/tokens", float(sum(int(c.action_mask.sum()) for c in completions)))
        return completions

    def _completions(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        drawing = self._drawing(sampling)
        distinct_requests, owner = distinct(requests)
        read = contexts(distinct_requests, self._policy)
        fields = [self._build_prompt(request) for request in distinct_requests]
        prompts = [EnginePrompt(*fields[number], request.seed) for number, request in zip(owner, requests)]
        outputs = self.backend.generate(prompts, drawing)
        return [
            self._completion(request, read[number], output, drawing)
            for request, number, output in zip(requests, owner, outputs, strict=True)
        ]

    def _build_prompt(self, request: Request) -> tuple[tuple[int, ...], tuple[Any, ...]]:
        """Build vLLM's prompt: token ids, including the prefix, and images."""
        refuse_videos(request.observation)
        ids, images = self._policy.engine_prompt(request.observation)
        return (*ids, *(() if request.prefix is None else request.prefix.tolist())), tuple(images)

    def _drawing(self, sampling: Sampling) -> EngineSampling:
        refuse_mean(sampling)
        greedy = sampling.decode == "argmax"
        if not greedy and sampling.annealing is not None:
            raise ValueError("sampling.annealing: vLLM draws a completion at one temperature; use engine=local")
        if not greedy and not COLDEST <= sampling.temperature <= HOTTEST:
            raise ValueError(
                f"sampling.temperature={sampling.temperature}: vLLM draws with {COLDEST} to {HOTTEST}; "
                "use decode=argmax for greedy, or engine=local"
            )
        ids, texts = self._policy.stop_ids(sampling.stop)
        vocabulary = self._policy.model.config.get_text_config().vocab_size
        return EngineSampling(
            temperature=sampling.temperature,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
            max_tokens=sampling.max_tokens,
            greedy=greedy,
            stop=tuple(texts),
            stop_ids=tuple(ids),
            forbidden=tuple(self._policy.forbidden),
            support=support_of(sampling.top_k, vocabulary, sampling.truncated and not greedy),
            guide=sampling.guide,
        )

    def _completion(
        self, request: Request, observation: Observation, output: EngineOutput, drawing: EngineSampling
    ) -> Completion:
        # vLLM reports greedy choices at temperature 1 without truncation; the learner scores them so too
        extra = {"temperature": torch.tensor(1.0 if drawing.greedy else drawing.temperature)}
        failed = output.ended == "error" or not output.ids
        if not failed and drawing.guide and not self._policy.grammars.follows(drawing.guide, output.ids):
            failed, output = True, replace(output, error=f"vLLM did not follow {drawing.guide}")
        if failed:  # a failed completion has one forced token; its episode is counted, and dropped before training
            self._count_failure(output.error or "vLLM gave no token")
            output = replace(output, ids=(self._policy.tokenizer.pad_token_id,), logprobs=(0.0,), support_ids=((),))
        else:
            check_prompt(output.prompt_ids, observation["input_ids"].tolist(), self._policy.forbidden)
        if drawing.support:
            support = output.support_ids or ()
            extra["packed_support_ids"] = torch.tensor([number for row in support for number in row], dtype=torch.int32)
            extra["support_sizes"] = torch.tensor([len(row) for row in support], dtype=torch.long)
        elif drawing.guide and not failed:
            extra |= self._policy.grammars.row(drawing.guide, len(output.ids))
        return Completion(
            observation=observation,
            action=torch.tensor(output.ids, dtype=torch.long),
            behavior_logprobs=torch.tensor(output.logprobs, dtype=torch.float32),
            action_mask=torch.full((len(output.ids),), not failed),
            output="" if failed else self._policy.decode(output.ids),
            ended="error" if failed else output.ended,
            extra=extra,
            policy_version=self._version if output.version is None else output.version,
            prompt_id=context_id(request),
        )

    def _count_failure(self, reason: str) -> None:
        self.count("engine/failed", 1)
        if reason not in self._warned:
            self._warned.add(reason)
            log.warning("a request failed in vLLM; its episode counts as an error and is not trained on: %s", reason)

    # ---------------------------------------------------------------- the end

    def release_memory(self) -> None:
        super().release_memory()
        self.backend.sleep()

    def close(self) -> None:
        super().close()
        self.backend.close()
        if self._folder is not None and self._writes:
            for path in (self._folder / "start", *self._folder.glob("weights-*.safetensors")):
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
            if self.folder is None:
                shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = self._policy = self._chooser = None
