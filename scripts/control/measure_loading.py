"""Time and memory that a recording takes: scripts/control/measure_loading.py --rows 1000000 --place memory

Writes a recording of random numbers in D4RL's shape, fills the replay buffer with it in memory or on disk, and draws
batches of 256 from it. Prints one line of JSON: transitions, their size in MB, processor seconds of loading, growth of
the process's peak of resident memory over that before in MB, processor milliseconds of a batch, and the sum of the last
observations.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from mmrl.data.offline.streamed_replay import StreamedReplay  # noqa: E402
from mmrl.data.offline.transitions import fill_replay  # noqa: E402
from mmrl.data.replay_buffer import ReplayBuffer  # noqa: E402
from mmrl.datasets.formats import open_dataset  # noqa: E402
from mmrl.policies.control.tanh_mean import TanhMeanPolicy  # noqa: E402
from scripts.benchmark.fit_memory import read_status  # noqa: E402

_BLOCK = 5000  # rows that are drawn; the file repeats them, shifted


def write_log(path: Path, rows: int, dims: int, actions: int, steps: int) -> None:
    """Write a recording of episodes of `steps` control steps, each ended by a time limit."""
    rng = np.random.default_rng(0)
    block, played = rng.normal(size=(_BLOCK, dims)), rng.uniform(-1, 1, (_BLOCK, actions))
    with h5py.File(path, "w") as file:
        columns = {"observations": (block, dims), "actions": (played, actions)}
        for name, (drawn, width) in columns.items():
            column = file.create_dataset(name, (rows, width), np.float32)
            for start in range(0, rows, _BLOCK):
                part = drawn[: rows - start]
                column[start : start + len(part)] = part + (start if name == "observations" else 0)
        file["rewards"] = np.arange(rows, dtype=np.float32)
        file["terminals"], file["timeouts"] = np.zeros(rows, bool), np.arange(rows) % steps == steps - 1


def measure(path: Path, place: str, folder: Path, batches: int) -> dict[str, Any]:
    """Load a recording and draw batches from it.

    Args:
        path: of the recording.
        place: "memory" or "disk".
        folder: of the file with the rows on disk.
        batches: that are drawn, 64 at once.
    """
    dataset = open_dataset(path)
    dims, actions = (dataset.features[name].shape[0] for name in ("state", "action"))
    rows = sum(dataset.lengths())
    policy = TanhMeanPolicy(dims, actions, hidden=[4])
    replay = ReplayBuffer(rows + len(dataset))
    replay = StreamedReplay(replay, folder) if place == "disk" else replay
    policy.encode_batch({"state": np.zeros((1000, dims), np.float32)})
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins again
    before, start = read_status("VmRSS"), time.process_time()
    fill_replay(replay, dataset, policy)
    loaded, rng = time.process_time(), np.random.default_rng(0)
    for _ in range(batches // 64):
        batch = replay.sample(64, rng)
    return {
        "transitions": replay.num_transitions,
        "size_mb": rows * (4 * (dims + actions + 1) + 1) / 1e6,
        "load_s": loaded - start,
        "growth_mb": (read_status("VmHWM") - before) / 1e6,
        "batch_ms": (time.process_time() - loaded) / batches * 1e3,
        "sum": float(batch["obs.state"].double().sum()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dims", type=int, default=17, help="observed numbers")
    parser.add_argument("--actions", type=int, default=6)
    parser.add_argument("--steps", type=int, default=1000, help="of an episode")
    parser.add_argument("--place", choices=["memory", "disk"], default="memory")
    parser.add_argument("--batches", type=int, default=640)
    parser.add_argument("--file", type=Path, default=None, help="a recording, in place of random numbers")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.file or Path(folder) / "log.hdf5"
        if options.file is None:
            write_log(path, options.rows, options.dims, options.actions, options.steps)
        print(json.dumps(measure(path, options.place, Path(folder), options.batches)))


if __name__ == "__main__":
    main()
