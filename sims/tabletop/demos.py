"""Data that needs no labeller: what the expert does, and where the named object is in the picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mmrl.rng import derived_rng
from sims.tabletop.expert import expert
from sims.tabletop.scene import CAMERAS
from sims.tabletop.vector import TabletopVectorEnv

Demo = list[tuple[dict[str, Any], np.ndarray]]
"""One episode: (raw observation, the expert's chunk float32 [chunk, 3]) per decision."""

_SMALLEST = 4  # pixels; of a thing that is hidden more than this, the projected centre is the label


def play(env: TabletopVectorEnv, seeds: Sequence[int], noise: float) -> list[Demo]:
    """Demonstrations from the initial states of `seeds`: noise on what is executed, none on what is recorded."""
    observation, _ = env.reset(seed=list(seeds))
    rngs = [derived_rng("demonstration", seed) for seed in seeds]
    demos: list[Demo] = [[] for _ in seeds]
    while env.live.any():
        labels = expert(env)
        executed = labels.copy()
        for i in np.flatnonzero(env.live):
            demos[i].append(({name: rows[i] for name, rows in observation.items()}, labels[i]))
            executed[i] += (noise * rngs[i].standard_normal(labels[i].shape)).astype(np.float32)
        observation, *_ = env.step(executed)
    failed = [seed for seed, success in zip(seeds, env.scores["success"]) if not success]
    if failed:
        raise RuntimeError(
            f"the expert failed from {len(failed)} of {len(seeds)} seeds, first {failed[0]}; less noise?"
        )
    return demos


def label(env: TabletopVectorEnv, seeds: Sequence[int], spread: float) -> dict[str, Any]:
    """Scenes at the initial states of `seeds` with the arm moved by up to `spread` rad per joint, and where to point.

    Returns "image" uint8 [n, H, W, 3], "proprio" float32 [n, 13], "instruction" list[str], "mask" bool [n, H, W] of
    the named object's pixels and "centroid" float32 [n, 2], their mean (column, row) in pixels.
    """
    ids = np.arange(env.num_envs)
    starts = []
    for seed in seeds:
        start = env.task.start(derived_rng(env.task.name, seed))
        shift = derived_rng("scene", seed).uniform(-spread, spread, start.joints.shape)
        starts.append(replace(start, joints=start.joints + shift))
    env.begin(ids, starts)
    batch, size = env.worlds.batch, env.image_size
    drawn = env.renderer.views(batch, ids, "front", size, ("rgb", "segmentation"))
    image, shown = drawn["rgb"], drawn["segmentation"]
    geoms = np.array([env.worlds.model.geom(thing.name).id for thing in env.task.things])
    mask = shown == geoms[env.goal][:, None, None]
    return {
        "image": image,
        "proprio": env.worlds.proprio,
        "instruction": list(env.instructions),
        "mask": mask,
        "centroid": _centroids(mask, CAMERAS["front"].project(env.worlds.objects[ids, env.goal], size)),
    }


def _centroids(mask: np.ndarray, projected: np.ndarray) -> np.ndarray:
    """Mean (column, row) of every mask in pixels; the projected centre where next to nothing shows, float32 [n, 2]."""
    centres = np.arange(mask.shape[1]) + 0.5
    count = mask.sum(axis=(1, 2))
    column = (mask.sum(axis=1) * centres).sum(axis=1) / np.maximum(count, 1)
    row = (mask.sum(axis=2) * centres).sum(axis=1) / np.maximum(count, 1)
    seen = (count >= _SMALLEST)[:, None]
    return np.where(seen, np.stack([column, row], axis=1), projected).astype(np.float32)
