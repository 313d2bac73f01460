"""Let a language model write the subgoals of a grid world: scripts/control/write_subgoals.py

Asks a server with OpenAI's interface once for each training level and adds a line to the file of --out, with which
`mmrl fit recipe=words_as_beacons sim.id=ID sim.plans=FILE task.count=COUNT` trains. Levels that have a line are not
asked for again, so that a call which was interrupted can be repeated. An answer without a list of fields, or with a
field outside of the grid, is counted and gives a level without subgoals. At the end it prints how many of the lists are
the scripted ones.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from mmrl.core.errors import ConfigError  # noqa: E402
from mmrl.tools.programs.writers import ChatWriter  # noqa: E402
from sims.subgoals import SubgoalSim  # noqa: E402
from sims.subgoals.plans import Field, FilePlans, find_plan  # noqa: E402
from sims.subgoals.writing import describe_grid, read_subgoals  # noqa: E402
from sims.task import SimTask  # noqa: E402


def write_subgoals(writer: ChatWriter, sim: SubgoalSim, count: int, out: Path) -> dict[str, int]:
    """Write a line for each of the first `count` training levels; returns how many answers of which kind there are.

    Args:
        writer: the language model.
        sim: the grid world, whose own plans are not read: hidden=1.
        count: of levels, as task.count of the training.
        out: the file; lines are added to it.
    """
    known = FilePlans(str(out)).rows if out.exists() and out.read_text().strip() else {}
    counts = dict.fromkeys(("levels", "as scripted", "unreadable"), 0)
    grid, task = sim.make_env().unwrapped, SimTask(sim, count)
    with out.open("a", encoding="utf-8") as file:
        for index in range(count):
            seed = task[index].info["seed"]
            grid.reset(seed=seed)
            plan = list(known[seed]) if seed in known else None
            if plan is None:
                answer = writer.write([{"role": "user", "content": describe_grid(grid)}], index)
                plan = read_subgoals(answer, grid)
                counts["unreadable"] += plan is None
                file.write(json.dumps({"seed": seed, "subgoals": plan or []}) + "\n")
                file.flush()
            counts["levels"] += 1
            counts["as scripted"] += plan == _find_scripted(grid)
    return counts


def _find_scripted(grid: Any) -> list[Field] | None:
    try:
        return find_plan(grid)
    except ValueError:  # the grid has several doors or keys
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--id", default="MiniGrid-DoorKey-6x6-v0", help="of the world, as sim.id")
    parser.add_argument("--url", required=True, help="of the server, as http://127.0.0.1:8000/v1")
    parser.add_argument("--model", required=True, help="its name at the server")
    parser.add_argument("--count", type=int, default=256, help="levels, as task.count of the training")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--out", type=Path, default=Path("subgoals.jsonl"))
    options = parser.parse_args()
    try:
        writer = ChatWriter(options.url, options.model, options.temperature)
        counts = write_subgoals(writer, SubgoalSim(options.id, hidden=1.0), options.count, options.out)
    except (ConfigError, OSError, ValueError) as error:
        sys.exit(f"write_subgoals: {error}")
    print(f"{options.out}: " + ", ".join(f"{count} {kind}" for kind, count in counts.items()))


if __name__ == "__main__":
    main()
