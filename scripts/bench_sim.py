"""Speed of a tabletop simulator and of its parts: python scripts/bench_sim.py --sim push.

One JSON line on stdout. A step is a control step of one environment (10 physics steps). All sides are measured in turn
in one process, in slices of at most a quarter of a second; every rate is the median of its slices.

  steps_per_second            the whole environment with random actions, without images: inverse kinematics, rules,
                              rewards, observations, instructions, and the reset of environments that ended
  raw_steps_per_second        mujoco.batch alone, over the states and controls that the environment went through
  steps_ratio                 the first over the second
  steps_cpu_ratio             the same per second of the CPU, of all threads: on a busy machine the steadier one
with --camera SIZE:
  frames_per_second           frames of the whole environment, which draws after every decision and reset
  raw_frames_per_second       mujoco.batch and the renderer alone: the control steps of a decision, then a frame
  frames_ratio                the first over the second; frames_cpu_ratio per second of the CPU
  renderer_frames_per_second  the renderer alone, between which nothing moves: no environment can reach it
  control_steps_per_frame     of the whole environment
of a guest (libero, metaworld), with its options in --set:
  steps_per_second            control steps of all environments in one process, random actions, resets included
  raw_steps_per_second        of one environment of the package in its own Python, without mmrl
with --camera SIZE the same with an image after every step: frames_per_second, raw_frames_per_second
with --workers N ...: nothing of the above, but of any simulator with a box of actions, --set KEY=VALUE its options
  in_process_decisions_per_second   decisions of all environments, in this process
  workers_N_decisions_per_second    with sim.workers=N; workers_N_ratio is that over the first
  alone_decisions_per_second        in place of the first for a guest: in its own Python, without mmrl
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import yaml
from benchmark.process import versions
from benchmark.sim import Bare, Whole, rates
from hydra.utils import instantiate
from omegaconf import OmegaConf

GUESTS = ("libero", "metaworld")
CONF = Path(__file__).resolve().parents[1] / "conf" / "sim"


def bench(chosen: argparse.Namespace) -> dict[str, Any]:
    words = OmegaConf.load(CONF / f"{chosen.sim}.yaml")
    if chosen.sim in GUESTS:
        return bench_guest(chosen)
    if not words["_target_"].startswith("sims.tabletop."):
        raise SystemExit(f"--sim {chosen.sim}: only tabletop simulators and {GUESTS} have a bare side to compare with")

    def build(**options: Any) -> Whole:
        shared = {"renderer": chosen.renderer, "threads": chosen.threads, "level": chosen.level}
        return Whole(instantiate(words, **shared, **options).make(chosen.num_envs))

    state = build(observe=[])
    bare = Bare(state, chosen.camera or 8, chosen.threads)
    sides = {"steps": (state.decide, lambda: state.steps), "raw_steps": (bare.step, lambda: bare.steps)}
    if chosen.camera:
        seeing = build(observe=["rgb"], image_size=chosen.camera)
        sides |= {
            "frames": (seeing.decide, lambda: seeing.frames),
            "raw_frames": (bare.step_and_draw, lambda: bare.frames),
            "renderer_frames": (bare.draw, lambda: bare.frames),
        }
    rates_by_side, busy = rates(sides, chosen.seconds)
    out = {f"{name}_per_second": round(rate, 1) for name, rate in rates_by_side.items()}
    for name in ("steps", "frames")[: 1 + bool(chosen.camera)]:
        out[f"{name}_ratio"] = round(rates_by_side[name] / rates_by_side[f"raw_{name}"], 3)
        out[f"{name}_cpu_ratio"] = round(busy[name] / busy[f"raw_{name}"], 3)
    if chosen.camera:
        out["control_steps_per_frame"] = round(seeing.steps / seeing.frames, 2)
    arguments = {name: getattr(chosen, name) for name in ("sim", "level", "num_envs", "camera", "seconds")}
    threads = bare.batch.nthread
    return (
        out | arguments | {"threads": threads, "renderer": bare.renderer.name, "versions": versions("mujoco", "numpy")}
    )


def bench_guest(chosen: argparse.Namespace) -> dict[str, Any]:
    from benchmark.guests.guest import compare_bare

    sim = instantiate(OmegaConf.load(CONF / f"{chosen.sim}.yaml"), **read_options(chosen))
    measured = compare_bare(sim, chosen.sim, chosen.num_envs, chosen.camera, chosen.seconds)
    arguments = {name: getattr(chosen, name) for name in ("sim", "num_envs", "camera", "seconds")}
    return measured | arguments | {"contract": sim.contract()}


def read_options(chosen: argparse.Namespace) -> dict[str, Any]:
    return {name: yaml.safe_load(value) for name, value in (word.split("=", 1) for word in chosen.set)}


def bench_workers(chosen: argparse.Namespace) -> dict[str, Any]:
    from benchmark.spread import compare_guest, compare_processes

    from sims.workers.guest import GuestSim

    options = read_options(chosen)
    sim = instantiate(OmegaConf.load(CONF / f"{chosen.sim}.yaml"), **options)
    compare = compare_guest if isinstance(sim, GuestSim) else compare_processes
    measured = compare(sim, chosen.num_envs, chosen.workers, chosen.seconds)
    return measured | {"sim": chosen.sim, "set": options, "num_envs": chosen.num_envs, "seconds": chosen.seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sim", default="push", help="a file of conf/sim")
    parser.add_argument("--level", default="default", help="easy, default or hard")
    parser.add_argument("--num-envs", type=int, default=32)
    parser.add_argument("--camera", type=int, default=0, help="pixels a side; 0 measures no images")
    parser.add_argument("--seconds", type=float, default=10.0, help="of measuring, all sides together")
    parser.add_argument("--threads", type=int, default=0, help="0 takes all CPUs")
    parser.add_argument("--renderer", default="ray", help="ray, egl, osmesa or auto")
    parser.add_argument("--workers", type=int, nargs="+", help="numbers of processes to compare with this one")
    parser.add_argument("--set", nargs="*", default=[], help="KEY=VALUE options of a guest, or with --workers")
    options = parser.parse_args()
    print(json.dumps(bench_workers(options) if options.workers else bench(options)), flush=True)


if __name__ == "__main__":
    main()
