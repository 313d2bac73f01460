"""Write docs/robots.md: success of robot policies before and after RL, from docs/results.

python scripts/robots/robots_page.py writes the page. With --add RECIPE RUN it first stores the protocol hash that `mmrl
evaluate RUN` wrote, and frames of the first held-out states before and after RL. With --add-perturbation RECIPE RUN it
first stores what `mmrl evaluate RUN compare=start sim.perturbation=... accept=perturbation,states` measured.
"""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from robot_perturbations import read_perturbations, store_perturbation  # beside this file

from mmrl.config.layers.files import Layer, merge_choices, read_layers, read_run
from mmrl.experiments.experiment import read_experiment
from mmrl.experiments.papers import find_page
from mmrl.experiments.results import FOLDER, read_result

PAGE = FOLDER.parent / "robots.md"
RECIPES = (
    *("ppo_metaworld", "flow_ppo_metaworld", "flow_ppo_mt10", "flow_rft_libero"),
    *("demo_vla", "ppo_vla", "push_vla", "push_ppo_vla", "suite_vla"),
    *("flow_sde_grpo", "flow_noise_grpo", "flow_push", "flow_sde_ppo"),
)
SUITES = {"metaworld": "Meta-World: {}", "libero": "LIBERO-object: ten tasks"}
"""Of sims other than the tabletop's."""
SIDES = ("before", "after")
HEAD = """# Robots

Success of robot policies on held-out initial states, after cloning scripted experts and after RL from there.
`python scripts/robots/robots_page.py` writes this page from [results/](results), a test checks that it is current, and
`python scripts/reproduce.py RECIPE` measures a row again. Start and end are means over the seeds. The gain has a
Student 95 % interval over the seeds. Minutes are those of a whole seed, cloning and both evaluations included,
on two CPU cores that had other work.

"""
COLUMNS = ("recipe", "suite", "policy", "observes", "start", "after RL", "gain", "seeds", "minutes a seed")
ABOUT = """
Policies have up to about a million random parameters. A policy that observes *state* reads the simulator's exact
positions of hand, objects and goal, and the instruction, and no image; its numbers say nothing about vision. Suites are
[Meta-World](../sims/metaworld/README.md), 80 Hz, ten control steps per decision,
[LIBERO](../sims/libero/README.md) and the [tabletop](../sims/tabletop/README.md), both 20 Hz, five control steps per
decision. RFT is rejection-sampling fine-tuning: the policy imitates its own successful episodes.
"""
TASKS = """
## Tasks of Meta-World

Start and end of each seed in percent, with Wilson 95 % intervals over the held-out states of the task.

| recipe | task | seed | start | after RL | states |
|---|---|---:|---:|---:|---:|
"""
PROTOCOL = """
## Protocol

Held-out states come from seeds that no training state, demonstration or choice of a setting used. An episode succeeds
at the first control step in which the simulator reports success, before its step limit. Every checkpoint plays the same
states with the same draws. `protocol.json` of `mmrl evaluate` holds all conditions; results may be compared when their
hashes are equal ([evaluation](evaluation.md)).

| recipe | states | decode | step limit | protocol hash |
|---|---:|---|---:|---|
"""
PERTURBATIONS = """
## Perturbations

Held-out states in LIBERO-PRO's variants, which no training had: the same checkpoints in the same number of states, in
percent with Wilson 95 % intervals. `mmrl evaluate RUN compare=start sim.perturbation=position
accept=perturbation,states`.

| recipe | perturbation | seed | start | after RL | states | protocol hash |
|---|---|---:|---:|---:|---:|---|
"""
FRAMES = """
## First held-out states

Frames of the first held-out states of the first seed, equally spaced in time, each with the start above and the end of
training below. They were not selected by their outcome.
"""


def read_protocols(folder: Path = FOLDER) -> dict[str, dict[str, Any]]:
    """Read the stored protocols by recipe."""
    path = folder / "robots" / "protocols.json"
    return json.loads(path.read_text()) if path.exists() else {}


def render_page(folder: Path = FOLDER) -> str:
    """Render the text of docs/robots.md from stored results."""
    results = {recipe: result for recipe in RECIPES if (result := read_result(recipe, folder)) is not None}
    table = [_join(COLUMNS), _join(["---"] * 4 + ["---:"] * 5)]
    table += [_join(_format_row(recipe, result)) for recipe, result in results.items()]
    text = HEAD + "\n".join(table) + "\n" + ABOUT
    ours = {recipe: result for recipe, result in results.items() if _read_sim(recipe) == "metaworld"}
    if missing := [f"`{recipe}`" for recipe in RECIPES if recipe not in results]:
        text += f"\nNot measured yet: {', '.join(missing)}.\n"
    if ours:
        text += TASKS + "".join(f"{_join(row)}\n" for recipe in ours for row in _list_tasks(recipe, ours[recipe]))
    if perturbed := read_perturbations(folder / "robots"):
        text += PERTURBATIONS + "".join(f"{_join(format_perturbation(row))}\n" for row in perturbed)
    if protocols := read_protocols(folder):
        rows = ([f"`{recipe}`", *_list_conditions(stored)] for recipe, stored in protocols.items())
        text += PROTOCOL + "".join(f"{_join(row)}\n" for row in rows) + FRAMES
        text += "".join(f"\n![{recipe}, before and after RL](results/robots/{recipe}.png)\n" for recipe in protocols)
    return text


def _join(cells: Any) -> str:
    return "| " + " | ".join(map(str, cells)) + " |" if "---" not in cells else "|" + "|".join(cells) + "|"


def read_recipe(name: str) -> dict[str, Any]:
    """The merged keys of a recipe's files, and under `choices` the option of each group.

    To compose twelve recipes takes 5 s of a processor; a page needs few of their words.
    """
    layers = read_run({"recipe": name})
    return {**_merge_keys(layers), "choices": merge_choices(layers)}


def _read_policy(option: str) -> dict[str, Any]:
    return _merge_keys(read_layers("policy", option))


def _merge_keys(layers: Sequence[Layer]) -> dict[str, Any]:
    return functools.reduce(lambda merged, layer: _merge(merged, layer.keys), layers, {})


def _read_sim(recipe: str) -> str:
    return str(read_recipe(recipe)["choices"]["sim"])


def _merge(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    both = {name: _merge(first[name], value) for name, value in second.items() if _nests(first.get(name), value)}
    return {**first, **second, **both}


def _nests(one: Any, other: Any) -> bool:
    return isinstance(one, dict) and isinstance(other, dict)


def _format_row(recipe: str, result: Mapping[str, Any]) -> list[str]:
    config = read_recipe(recipe)
    sim, seeds = config["choices"]["sim"], result["seeds"]
    policy = _read_policy(config["choices"]["policy"])
    heads = {"ActionTokenPolicy": "tokens", "ActionFlowPolicy": "flow"}
    imitates = config["choices"].get("objective") == "denoising"
    method = "RFT" if imitates else "PPO" if "gae" in config["data"].get("pipeline", []) else "GRPO"
    names = config["data"].get("task", {}).get("sim", {}).get("task", sim).replace("-v3", "").replace("+", ", ")
    suite = SUITES.get(sim, f"tabletop: {names}").format(names)
    low, high = (100 * bound for bound in result["interval"])
    return [
        f"[`{recipe}`](papers/{find_page(recipe)})",
        suite.replace("tabletop: tabletop", "tabletop: reach, push, drawer, buttons"),
        f"{heads[policy['_target_'].rpartition('.')[2]]}, {method}",
        "state" if policy.get("visual_tokens") == 0 else "image, proprioception",
        *(f"{100 * mean(row[key] for row in seeds):.1f} %" for key in SIDES),
        f"{100 * result['effect']:+.1f} [{low:+.1f}, {high:+.1f}]",
        str(len(seeds)),
        f"{mean(row['seconds'] for row in seeds) / 60:.1f}",
    ]


def _list_tasks(recipe: str, result: Mapping[str, Any]) -> Iterator[list[str]]:
    tasks = sorted({task for row in result["seeds"] for task in row.get("per_task", {})})
    for task in tasks:
        for row in result["seeds"]:
            rates = row["per_task"][task]
            yield [f"`{recipe}`", task, str(row["seed"]), *_format_rates(rates), str(rates["episodes"])]


def format_perturbation(stored: Mapping[str, Any]) -> list[str]:
    """Return the cells of a stored perturbation, with the actions of the recipe's metric."""
    experiment = read_experiment(stored["recipe"])
    assert experiment is not None, stored["recipe"]
    values = stored["decodes"][experiment.metric.split("/")[1]]
    cells = (f"`{stored['recipe']}`", stored["perturbation"], str(stored["seed"]))
    return [*cells, *(_format_rate(*values[side]) for side in SIDES), str(values["episodes"]), f"`{stored['hash']}`"]


def _format_rates(row: Mapping[str, Any]) -> list[str]:
    return [_format_rate(row[side], *row[f"wilson_{side}"]) for side in SIDES]


def _format_rate(rate: float, low: float, high: float) -> str:
    return f"{100 * rate:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def _list_conditions(stored: Mapping[str, Any]) -> list[str]:
    return [str(stored["states"]), ", ".join(stored["decodes"]), str(stored["max_steps"]), f"`{stored['hash']}`"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--add", nargs=2, metavar=("RECIPE", "RUN"))
    parser.add_argument("--add-perturbation", nargs=2, metavar=("RECIPE", "RUN"))
    options = parser.parse_args()
    if options.add:
        from robot_frames import store_run  # beside this file

        store_run(options.add[0], Path(options.add[1]), FOLDER / "robots")
    if options.add_perturbation:
        recipe, run = options.add_perturbation
        store_perturbation(recipe, Path(run), FOLDER / "robots")
    PAGE.write_text(render_page())
    print(f"written to {PAGE}")


if __name__ == "__main__":
    main()
