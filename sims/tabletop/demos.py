"""Data from the simulator without human labels: expert demonstrations and labelled images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mmrl.core.rng import derive_rng
from sims.tabletop.experts import expert
from sims.tabletop.scene import CAMERAS
from sims.tabletop.vector import TabletopVectorEnv

if TYPE_CHECKING:
    from sims.tabletop.sim import Tabletop

Demo = list[tuple[dict[str, Any], np.ndarray]]
"""One episode: (raw observation, the expert's chunk float32 [chunk, A]) per decision."""

AT_ONCE = 256  # environments
_SMALLEST = 4  # pixels; of a thing that is hidden more than this, the projected centre is the label
_TRIES = 5  # per seed; the last one without noise


def play(sim: Tabletop, seeds: Sequence[int], noise: float) -> list[Demo]:
    """Demonstrate from the initial states of `seeds`: noise on executed actions, none on recorded ones.

    The expert plays by stricter rules (it arrives rather than brushes the goal) and may take three times as long. An
    initial state from which it fails under noise is played again with other noise, at last with none.
    """
    if not len(seeds):
        raise ValueError("no seeds: ask for at least one initial state")
    demos: dict[int, Demo] = {}
    for attempt in range(_TRIES):
        rest = [seed for seed in dict.fromkeys(seeds) if seed not in demos]
        for i in range(0, len(rest), AT_ONCE):
            some = rest[i : i + AT_ONCE]
            env = sim.make(len(some))
            for table in env.tables:
                table.task, table.max_decisions = table.task.strict(), 3 * table.max_decisions
            demos |= _play_episodes(env, some, noise if attempt < _TRIES - 1 else 0.0, attempt)
            env.close()
    failed = [seed for seed in seeds if seed not in demos]
    if failed:
        raise RuntimeError(f"the expert failed from {len(failed)} of {len(seeds)} seeds, first {failed[0]}")
    return [demos[seed] for seed in seeds]


def _play_episodes(env: TabletopVectorEnv, seeds: Sequence[int], noise: float, attempt: int) -> dict[int, Demo]:
    """The successful episodes, by seed."""
    observation, _ = env.reset(seed=list(seeds))
    key = (attempt,) if attempt else ()
    rngs = [derive_rng("demonstration", seed, *key) for seed in seeds]
    demos: list[Demo] = [[] for _ in seeds]
    while env.live.any():
        labels = expert(env)
        executed = labels.copy()
        for i in np.flatnonzero(env.live):
            demos[i].append(({name: rows[i] for name, rows in observation.items()}, labels[i]))
            executed[i] += (noise * rngs[i].standard_normal(labels[i].shape)).astype(np.float32)
        observation, *_ = env.step(executed)
    return {seed: demo for seed, demo, success in zip(seeds, demos, env.scores["success"]) if success}


def label(env: TabletopVectorEnv, seeds: Sequence[int], joint_noise: float) -> dict[str, Any]:
    """Label the named objects in images of initial states, with up to `joint_noise` rad added per joint.

    Returns "image" uint8 [n, H, W, 3], "proprio" float32 [n, P], "instruction" list[str], "mask" bool [n, H, W] of
    the pixels of the named object (of several, the first to act on) and "centroid" float32 [n, 2], their mean
    (column, row) in pixels; "masks" bool [n, M, H, W] and "centroids" [n, M, 2] of all named objects in order; M is the
    most that a task names, and where one names fewer its objects come round again.
    """
    ids = np.arange(env.num_envs)
    pairs = [env.starts(seed) for seed in seeds]
    starts = []
    for seed, (_, start) in zip(seeds, pairs):
        shift = derive_rng("scene", seed).uniform(-joint_noise, joint_noise, start.joints.shape)
        starts.append(replace(start, joints=start.joints + shift))
    env.begin(ids, starts, [t for t, _ in pairs])
    size, most = env.image_size, max(table.named.shape[1] for table in env.tables)
    image = np.zeros((len(ids), size, size, 3), np.uint8)
    masks, projected = np.zeros((len(ids), most, size, size), bool), np.zeros((len(ids), most, 2))
    for t in range(len(env.tables)):
        part = env.at(t, ids)
        if part.size:
            image[part], masks[part], projected[part] = _label_table(env, t, part, most)
    centroids = np.stack([_centroids(masks[:, m], projected[:, m]) for m in range(most)], axis=1)
    return {
        "image": image,
        "proprio": env.proprio,
        "instruction": list(env.instructions),
        "mask": masks[:, 0],
        "centroid": centroids[:, 0],
        "masks": masks,
        "centroids": centroids,
    }


def _label_table(
    env: TabletopVectorEnv, t: int, ids: np.ndarray, most: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images of environments at one table, with masks and projected centres of `most` named things."""
    table, size = env.tables[t], env.image_size
    batch, model = table.physics.kinematics.batch, table.physics.model
    looks = [env.looks[i] for i in ids]
    views = table.renderer.views(batch, ids, "front", size, ("rgb", "segmentation"), looks)
    image, segmentation = views["rgb"], views["segmentation"]
    names = [thing.name for thing in table.task.things]
    owner = np.full(model.ngeom + 1, -1)  # the thing that a geom is part of; the last entry stands for the sky
    for geom in range(model.ngeom):
        body = model.body(int(model.geom_bodyid[geom])).name
        if body in names and model.geom(geom).name:
            owner[geom] = names.index(body)
    targets = table.named[ids][:, np.arange(most) % table.named.shape[1]]
    masks = owner[segmentation][:, None] == targets[:, :, None, None]
    centres = table.physics.objects[ids[:, None], targets]
    return image, masks, CAMERAS["front"].project(centres, size)


def _centroids(mask: np.ndarray, projected: np.ndarray) -> np.ndarray:
    """Mean (column, row) of every mask; the projected centre where the mask is almost empty, float32 [n, 2]."""
    centres = np.arange(mask.shape[1]) + 0.5
    count = mask.sum(axis=(1, 2))
    column = (mask.sum(axis=1) * centres).sum(axis=1) / np.maximum(count, 1)
    row = (mask.sum(axis=2) * centres).sum(axis=1) / np.maximum(count, 1)
    visible = (count >= _SMALLEST)[:, None]
    return np.where(visible, np.stack([column, row], axis=1), projected).astype(np.float32)
