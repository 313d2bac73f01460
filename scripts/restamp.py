"""Keep stored results valid after a change of names: scripts/restamp.py COMMIT [NAME ...].

A name is that of a recipe, or of a cell of a comparison, as in credit/sums/GRPO.

A stored result is stale when the configuration or the code of a part that it names has changed. This script takes every
stale result, or those named, and compares this checkout with COMMIT, at which the result was current. For every side
(method, baseline):

1. the stored hash, or that with which the result was measured, is the hash of COMMIT,
2. the composed configurations, warm-start stages included, have the same shape and values with names left out
   (mmrl/experiments/renames.py); scripts/restamp.yaml lists other differences in form that change no number,
3. tiny runs of the side and of its warm-start stages from the same seed give the same weights and metrics bit for bit.

Then today's hash is stored, and the hash of the measured runs is kept as `measured_content`. Otherwise the result is
left as it is, and the first difference is printed.

Each commit is recorded by its own script: `scripts/restamp.py --record FILE NAME ...` writes, by name and side, the
`content` hash, the `config` and the `runs`, each with `weights` and `metrics`. Records of COMMIT are kept in
~/.cache/mmrl and hold for one machine and one version of torch.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
Record = dict[str, dict[str, dict[str, Any]]]


def record(recipes: Sequence[str], file: Path) -> None:
    """Write content hash, configuration and tiny runs by recipe and side, in the imported checkout."""
    from omegaconf import OmegaConf
    from tiny_runs import train

    from mmrl.config.compose import compose
    from mmrl.experiments.content import hash_content, stage_overrides, training_config

    trained: dict[tuple[str, ...], dict[str, Any]] = {}

    def train_with_stages(words: Sequence[str], folder: str) -> list[dict[str, Any]]:
        key = tuple(words)
        if key not in trained:
            trained[key] = train(words, Path(folder) / str(len(trained)))
        stages = stage_overrides({"trainer": OmegaConf.to_container(compose(words).trainer, resolve=True)})
        return [trained[key], *(run for stage in stages.values() for run in train_with_stages(stage, folder))]

    result: Record = {}
    with tempfile.TemporaryDirectory() as folder:
        for recipe in recipes:
            sides = {}
            try:
                for side, words in list_sides(recipe).items():
                    runs = train_with_stages(words, folder)
                    sides[side] = {"content": hash_content(words), "config": training_config(words), "runs": runs}
            except Exception:  # one recipe must not cost the record of the others
                traceback.print_exc()
                continue
            result[recipe] = sides
            file.write_text(json.dumps(result))  # what has been recorded survives an interruption
            print(f"{ROOT.name}: {recipe}", file=sys.stderr, flush=True)


def list_sides(name: str) -> Mapping[str, Sequence[str]]:
    """Return the overrides by side of a recipe's experiment, or of a cell "comparison/task/method"."""
    from mmrl.experiments.comparison import read_comparison
    from mmrl.experiments.experiment import read_experiment

    if "/" in name:
        comparison, task, method = name.split("/")
        return {"method": read_comparison(comparison).words(task, method)}
    experiment = read_experiment(name)
    return experiment.sides() if experiment else {}


def record_checkout(tree: Path, script: Path, recipes: Sequence[str], jobs: int) -> Record:
    """The record of a checkout by a script, several processes at a time; without the recipes that failed."""

    def run(part: Sequence[str]) -> Record:
        with tempfile.NamedTemporaryFile(suffix=".json") as out, tempfile.TemporaryDirectory() as composed:
            environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
            environment["MMRL_TESTS_COMPOSED"] = composed  # where tests/composed_words.py keeps what it has composed
            command = [sys.executable, str(script), "--record", out.name, *part]
            subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.DEVNULL)
            return json.loads(Path(out.name).read_text() or "{}")

    parts = [part for i in range(jobs) if (part := recipes[i::jobs])]
    with ThreadPoolExecutor(jobs) as pool:
        return {recipe: sides for record in pool.map(run, parts) for recipe, sides in record.items()}


def record_commit(commit: str, recipes: Sequence[str], jobs: int) -> Record:
    """The record of a commit by its own script; what has been recorded before comes from the cache."""
    sha = subprocess.check_output(["git", "rev-parse", f"{commit}^{{commit}}"], cwd=ROOT, text=True).strip()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mmrl"
    file = cache / f"{sha[:12]}-torch{version('torch')}-{platform.node()}.json"
    records: Record = json.loads(file.read_text()) if file.exists() else {}
    if missing := [recipe for recipe in recipes if recipe not in records]:
        with tempfile.TemporaryDirectory() as folder:
            tree = Path(folder) / "tree"
            subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(tree), sha], cwd=ROOT, check=True)
            try:
                records |= record_checkout(tree, find_recorder(tree, sha), missing, jobs)
            finally:
                subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)
        cache.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(records))
    return records


def find_recorder(tree: Path, sha: str) -> Path:
    """The script that records a commit: its own, or one of this checkout for a commit whose script records less."""
    special = ROOT / "scripts" / f"record_{sha[:7]}.py"
    return special if special.exists() else tree / "scripts" / "restamp.py"


def find_reason(
    result: Mapping[str, Any], before: Mapping[str, Any], now: Mapping[str, Any], comparison: Any
) -> str | None:
    """Why a stored result has to be measured again; None if only names changed."""
    hashes = {side: one["content"] for side, one in before.items()}
    if hashes not in (result["content"], result.get("measured_content")):
        return "it was not current at that commit"
    if set(before) != set(now):
        return f"its sides were {sorted(before)} and are {sorted(now)}"
    for side, one in now.items():
        if difference := comparison.find_difference(before[side]["config"], one["config"]):
            return f"the configuration of the {side} has changed: {difference}"
    for side, one in now.items():
        for part in ("weights", "metrics"):
            if [run[part] for run in one["runs"]] != [run[part] for run in before[side]["runs"]]:
                return f"a tiny run of the {side} gives other {part}"
    return None


def restamp(commit: str, recipes: Sequence[str], jobs: int) -> dict[str, str | None]:
    """Store today's hashes where only names changed; the reason for each other recipe."""
    import yaml

    from mmrl.experiments.renames import ConfigComparison, Form

    stale = [name for name in recipes or list_stored() if is_stale(name)]
    if not stale:
        return {}
    before = record_commit(commit, stale, jobs)
    now = record_checkout(ROOT, Path(__file__).resolve(), stale, jobs)
    table = yaml.safe_load((ROOT / "scripts" / "restamp.yaml").read_text())
    comparison = ConfigComparison([Form(**form) for form in table["forms"]], table["words"])
    reasons: dict[str, str | None] = {}
    for name in stale:
        missing = [where for where, entries in ((commit, before), ("this checkout", now)) if name not in entries]
        if missing:
            reasons[name] = f"the record of {missing[0]} has failed, see above"
            continue
        reasons[name] = find_reason(read_hashes(name), before[name], now[name], comparison)
        if reasons[name] is None:
            write_hashes(name, {side: one["content"] for side, one in now[name].items()})
    return reasons


def list_stored() -> list[str]:
    """Return the names of all stored results and cells of comparisons."""
    from mmrl.experiments.results import FOLDER

    cells = [
        f"{path.stem}/{task}/{method}"
        for path in sorted((FOLDER / "comparisons").glob("*.json"))
        for task, row in json.loads(path.read_text())["cells"].items()
        for method in row
    ]
    return sorted(path.stem for path in (FOLDER / "recipes").rglob("*.json")) + cells


def is_stale(name: str) -> bool:
    """Return whether a stored result or cell has another hash than today's."""
    from mmrl.experiments.content import hash_content
    from mmrl.experiments.experiment import read_experiment
    from mmrl.experiments.results import result_state

    if "/" in name:
        return read_hashes(name)["content"] != {side: hash_content(words) for side, words in list_sides(name).items()}
    experiment = read_experiment(name)
    return experiment is not None and result_state(experiment) == "stale"


def read_hashes(name: str) -> Mapping[str, Any]:
    """Return what is stored: `content`, and `measured_content` where it differs, each by side."""
    from mmrl.experiments.comparison import result_path
    from mmrl.experiments.results import FOLDER, read_result

    if "/" not in name:
        return read_result(name, FOLDER) or {}
    comparison, task, method = name.split("/")
    cell = json.loads(result_path(comparison, FOLDER).read_text())["cells"][task][method]
    return {key: {"method": cell[key]} for key in ("content", "measured_content") if key in cell}


def write_hashes(name: str, hashes: Mapping[str, str]) -> None:
    """Store today's hashes, and keep those with which the runs were measured."""
    from mmrl.experiments.comparison import read_comparison, result_path, write_cells
    from mmrl.experiments.results import FOLDER, read_result, with_hashes, write_json

    if "/" not in name:
        write_json(with_hashes(read_result(name, FOLDER) or {}, hashes), FOLDER)
        return
    comparison, task, method = name.split("/")
    stored = json.loads(result_path(comparison, FOLDER).read_text())
    cell = stored["cells"][task][method]
    measured = cell.pop("measured_content", cell["content"])
    rest = {key: value for key, value in cell.items() if key != "content"}
    stored["cells"][task][method] = {"content": hashes["method"], "measured_content": measured, **rest}
    write_cells(read_comparison(comparison), stored["cells"], stored["machine"], FOLDER)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", metavar="FILE", help="write the record of this checkout")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("words", nargs="*", metavar="COMMIT [NAME ...]")
    options = parser.parse_args()
    if options.record:
        record(options.words, Path(options.record))
        return 0
    if not options.words:
        parser.error("name the commit at which the stored results were current")
    reasons = restamp(options.words[0], options.words[1:], options.jobs)
    for recipe, reason in reasons.items():
        print(f"{recipe}: {'kept' if reason is None else 'run it again, ' + reason}")
    count = sum(reason is None for reason in reasons.values())
    print(f"{count} of {len(reasons)} stale results kept")
    return int(count < len(reasons))


if __name__ == "__main__":
    sys.exit(main())
