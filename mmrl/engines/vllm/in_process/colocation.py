"""What a vLLM in a training process shares with it: the variables of a launcher, and process groups."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from mmrl.distributed.parallel import rank_and_size


@contextmanager
def launcher_variables() -> Iterator[None]:
    """Set the variables of torchrun inside the context, by which vLLM's external launcher finds rank and device.

    LOCAL_RANK is the number of the learner's GPU, which `trainer.devices=[2,3]` makes different from Lightning's local
    rank. Nothing is set for one process.
    """
    rank, processes = rank_and_size()
    if processes == 1:
        yield
        return
    device = torch.cuda.current_device() if torch.cuda.is_available() else int(os.environ.get("LOCAL_RANK", rank))
    variables = {"RANK": str(rank), "LOCAL_RANK": str(device), "WORLD_SIZE": str(processes)}
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def keep_training_group() -> None:
    """Let an engine that shuts down leave the process group of several training processes as it is."""
    from vllm.v1.engine import core

    if rank_and_size()[1] > 1:
        core.cleanup_dist_env_and_memory = leave_groups


def leave_groups() -> None:
    """Destroy vLLM's process groups; the group of several training processes stays."""
    from vllm.distributed import cleanup_dist_env_and_memory, parallel_state

    if rank_and_size()[1] == 1:
        cleanup_dist_env_and_memory()
        return
    parallel_state.destroy_model_parallel()
    if parallel_state._WORLD is not None:
        parallel_state._WORLD.destroy()
    parallel_state._WORLD = parallel_state._NODE_COUNT = None
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
