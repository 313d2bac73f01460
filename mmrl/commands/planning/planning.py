"""Plan a run: sizes of its modules, traces of its passes, and the memory of its ranks by phase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from mmrl.annotators.logprobs import ForwardAnnotator
from mmrl.commands.planning.engine import EngineBytes, measure_engine
from mmrl.commands.planning.memory import Held, Passes, Phase, peak, plan_phases
from mmrl.commands.planning.optimizer import OptimizerBytes, measure_optimizer
from mmrl.commands.planning.parameters import ModuleSize, measure_module
from mmrl.commands.planning.passes import LearnPass, PlannedGroup, RolloutPass, TextPasses
from mmrl.commands.planning.prompts import Prompts, build_batch, collate_prompts, read_prompts
from mmrl.commands.planning.run import IterationRows, Processes, count_rows, read_processes
from mmrl.commands.planning.shapes import fake_weights
from mmrl.core.errors import ConfigError
from mmrl.engines.local import LocalEngine
from mmrl.learners.learner import Learner
from mmrl.learners.offload import refuse_offload
from mmrl.policies.text.policy import TextPolicy

IMPORTS = 870 << 20
"""Resident memory of a process when everything is imported and no model is built: measured with torch 2.14."""


@dataclass(frozen=True)
class Given:
    """What the command line gives beside the words of `mmrl fit`.

    Args:
        memory: bytes of a device; None takes the present one's.
        prompt_tokens: length of a prompt; None encodes those of the task.
        response_tokens: length of a completion; None takes the longest that the sampling allows.
        trace: count activations and sampling too, which takes seconds to a minute for a large model.
    """

    memory: int | None = None
    prompt_tokens: int | None = None
    response_tokens: int | None = None
    trace: bool = True


@dataclass(frozen=True)
class RankPlan:
    """Memory of a rank on its device, or of its process on a CPU."""

    name: str
    phases: dict[str, Phase]
    sync: int
    host: int
    files: int = 0  # of its engine, in shared memory

    @property
    def peak(self) -> int:
        return peak(self.phases)


@dataclass(frozen=True)
class RunPlan:
    """Plan of a run."""

    policy: str
    size: ModuleSize
    processes: Processes
    optimizer: OptimizerBytes
    rows: IterationRows
    prompt_tokens: int
    response_tokens: int
    update_epochs: int
    ranks: list[RankPlan]
    without_checkpointing: LearnPass | None
    with_checkpointing: LearnPass | None
    checkpointing: bool
    memory: int
    max_rows: int
    notes: list[str] = field(default_factory=list)

    @property
    def used(self) -> int:
        """Bytes that are compared with `memory`: of the fullest device, or of all processes of a host."""
        largest = max(rank.peak for rank in self.ranks)
        if self.processes.device == "cuda":
            return largest
        return self.processes.devices * (largest + IMPORTS)

    @property
    def fits(self) -> bool:
        return self.used <= self.memory


def plan_run(learner: Any, data: Any, trainer: Mapping[str, Any], given: Given) -> RunPlan:
    """Plan a run from its built parts; policies are on the meta device.

    Args:
        learner: a `Learner`.
        data: a `RolloutData`.
        trainer: the trainer's options.
    """
    processes = read_processes(trainer, given.memory is not None)
    if processes.precision == "64-true":
        learner.double()
    memory = given.memory or present_memory(processes.device)
    modules = measure_modules(learner)
    trained = [modules.policy, *modules.trained.values()]
    optimizer = measure_optimizer(learner.make_optimizer, trained, processes.device)
    max_rows = data.engine.max_rows if isinstance(data.engine, LocalEngine) else data.num_prompts * data.group_size
    sizes = (data.num_prompts, data.group_size, data.num_minibatches, processes.accumulate)
    rows = count_rows(*sizes, processes.world, max_rows, sequence=processes.sequence)
    engines = [
        measure_engine(data.engine, learner.policy, modules.policy, processes.device, memory, first, processes.devices)
        for first in ([True] if processes.world == 1 else [True, False])
    ]
    notes = [engines[0].note] if engines[0].kind != "local" else []
    if processes.device == "cpu":
        notes.append("gaps of the C library's heap are counted in part: measured runs held 0.97 to 1.28 times the plan")
    traced = _Traced(None, None, None, 0, given.response_tokens or data.sampling.max_tokens)
    checkpointing = bool(getattr(getattr(learner.policy, "model", None), "is_gradient_checkpointing", False))
    if not given.trace:
        notes.append("activations and sampling are not counted")
    elif isinstance(learner.policy, TextPolicy):
        traced = _trace(learner.policy, data, processes, rows, given, checkpointing, notes)
    else:
        kind = type(learner.policy).__name__
        notes.append(f"activations of {kind} are not counted: only text and vision-language policies are traced")
    traced, moved = _offload(learner, traced, processes, notes)
    copies = data.staleness  # one for each version that samples beside the learner
    phases = [plan_phases(modules, optimizer, traced.passes, engine, processes, copies) for engine in engines]
    loaded = [moved + modules.policy.bytes, moved + (0 if processes.strategy == "fsdp2" else modules.policy.bytes)]
    ranks = [
        RankPlan(name, of_rank, engine.sync, _host_bytes(whole, engine, traced, processes, peak(of_rank)), engine.files)
        for name, of_rank, engine, whole in zip(("rank 0", "each other rank"), phases, engines, loaded)
    ]
    return RunPlan(
        policy=type(learner.policy).__name__,
        size=modules.policy,
        processes=processes,
        optimizer=optimizer,
        rows=rows,
        prompt_tokens=traced.prompt_tokens,
        response_tokens=traced.response_tokens,
        update_epochs=data.update_epochs,
        ranks=ranks,
        without_checkpointing=traced.plain,
        with_checkpointing=traced.checkpointed,
        checkpointing=checkpointing,
        memory=memory,
        max_rows=rows.rollout,
        notes=notes,
    )


def measure_modules(learner: Learner) -> Held:
    """Measure policy, auxiliary models, reference and teachers."""
    size = measure_module(learner.policy)
    copied = replace(size, parameters=size.trainable, parameter_bytes=size.trainable_bytes)  # shares the other layers
    frozen = {"reference": copied} if learner.reference else {}
    frozen |= {name: measure_module(model) for name, model in learner.models.items()}
    merges = hasattr(getattr(learner.policy, "model", None), "merge_and_unload")
    return Held(size, dict.fromkeys(learner.auxiliary_models, size), frozen, merges)


def present_memory(device: str) -> int:
    """Bytes of the first CUDA device, or of the host."""
    import os

    if device == "cuda":
        if not torch.cuda.is_available():
            raise ConfigError("there is no CUDA device here: give the memory of one, as in --memory 80GB")
        return torch.cuda.get_device_properties(0).total_memory
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@dataclass(frozen=True)
class _Traced:
    passes: Passes | None
    plain: LearnPass | None
    checkpointed: LearnPass | None
    prompt_tokens: int
    response_tokens: int


def _trace(
    policy: TextPolicy,
    data: Any,
    processes: Processes,
    rows: IterationRows,
    given: Given,
    checkpointing: bool,
    notes: list[str],
) -> _Traced:
    """Trace learning with and without activation checkpointing, scoring and sampling."""
    prompts = read_prompts(policy, data, given.prompt_tokens)
    turns = getattr(data.rollout, "max_turns", 1)
    choices = given.response_tokens or data.sampling.max_tokens * turns
    notes.append(f"prompts: {prompts.source}, {prompts.longest} tokens at most; every completion has {choices} tokens")
    if turns > 1:
        notes.append("what tools return is not counted; --response-tokens N gives the length of a whole episode")
    policy.one_pass = processes.shards > 1
    fake_weights(policy)
    tracer = TextPasses(policy, processes.device, processes.mixed)
    micro = build_batch(policy, prompts, rows.micro_batch, rows.group_in_micro_batch, choices)
    scored, score = _scored_rows(data, rows.iteration * processes.sequence), 0
    with PlannedGroup(size=processes.sequence).divide():
        plain, checkpointed = (tracer.learn(micro, flag) for flag in (False, True))
        if scored:
            score = tracer.score(build_batch(policy, prompts, scored, min(rows.group_size, scored), choices))
    whole = build_batch(policy, prompts, rows.iteration, rows.group_size, choices)
    rollout = None
    if isinstance(data.engine, LocalEngine):
        rollout = _trace_rollout(tracer, policy, data, rows, prompts)
    learn = checkpointed if checkpointing else plain
    assert learn is not None  # a policy refuses an option that its model does not have
    columns = sum(column.nbytes for column in whole.values() if isinstance(column, torch.Tensor))
    return _Traced(Passes(learn, score, rollout, columns), plain, checkpointed, prompts.longest, choices)


def _offload(learner: Learner, traced: _Traced, processes: Processes, notes: list[str]) -> tuple[_Traced, int]:
    """Move the activations of the learn step to host memory, if asked for; return what stays, and the bytes moved."""
    if not learner.offload_activations:
        return traced, 0
    refuse_offload(processes.device)
    if traced.passes is None:
        return traced, 0
    notes.append("activations are in host memory; the copies that backward reads are not counted")
    learn = traced.passes.learn
    moved = learn.activations
    peaks = {"first_peak": learn.first_peak - moved, "next_peak": learn.next_peak - moved}
    return replace(traced, passes=replace(traced.passes, learn=replace(learn, activations=0, **peaks))), moved


def _trace_rollout(
    tracer: TextPasses, policy: TextPolicy, data: Any, rows: IterationRows, prompts: Prompts
) -> RolloutPass:
    """Trace the larger batch of completions: of training, or of held-out problems."""
    count = -(-rows.rollout // rows.group_size)
    owner = torch.arange(rows.rollout) // rows.group_size
    passes = [tracer.sample(collate_prompts(policy, prompts, count), owner, data.sampling)]
    if data.evaluation is not None:
        rows_of_each = data.evaluation.num_samples
        most = min(data.engine.max_rows, data.evaluation.count * rows_of_each)
        owner = torch.arange(most) // rows_of_each
        observation = collate_prompts(policy, prompts, int(owner[-1]) + 1)
        longest = max(data.evaluation.sampling.values(), key=lambda sampling: sampling.max_tokens)
        passes.append(tracer.sample(observation, owner, longest))
    return max(passes, key=lambda each: max(each.prefill_peak, each.decode_peak))


def _scored_rows(data: Any, rows: int) -> int:
    """Most of the rows that an annotator or the parity check scores in one pass."""
    passes: Sequence[int] = [part.rows for part in data.annotators.values() if isinstance(part, ForwardAnnotator)]
    parity = [] if data.parity is None else [min(16, data.parity.rows)]
    return min(max([*passes, *parity], default=0), rows)


def _host_bytes(loaded: int, engine: EngineBytes, traced: _Traced, processes: Processes, used: int) -> int:
    """Host memory of a rank's process: imports, rows, and what a CPU process holds or a GPU's loads and offloads."""
    rows = 2 * traced.passes.columns if traced.passes is not None else 0
    return IMPORTS + rows + engine.host + (loaded if processes.device == "cuda" else used)
