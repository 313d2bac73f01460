"""Run recipes at their own defaults and record whether the mechanism of their papers acts.

python -m tests.acts grpo ampo         # these
python -m tests.acts --draw 20         # twenty that the present commit draws
python -m tests.acts --missing         # those without a record of the present configuration and code
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from mmrl.config.compose import CONF
from mmrl.experiments.acts import describe_acts, read_records
from mmrl.experiments.content import hash_content
from tests.acts.run import draw, run_recipe, write_records

RECIPES = sorted(file.stem for file in (CONF / "recipe").rglob("*.yaml"))


def present_commit() -> str:
    """The hash of the commit that is checked out."""
    return subprocess.run(["git", "rev-parse", "HEAD"], cwd=CONF.parent, capture_output=True, text=True).stdout.strip()


def is_missing(recipe: str) -> bool:
    """Whether a recipe has no record, or one of another configuration or code."""
    record = read_records().get(recipe)
    return record is None or record["content"] != hash_content([f"recipe={recipe}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*", metavar="RECIPE")
    parser.add_argument("--draw", type=int, metavar="N", help="recipes that the present commit draws")
    parser.add_argument("--missing", action="store_true", help="recipes without a present record")
    parser.add_argument("--minutes", type=float, default=20.0, help="of training for each, then it is stopped (20)")
    args = parser.parse_args()
    recipes = draw(RECIPES, args.draw, present_commit()) if args.draw else args.recipes or RECIPES
    if unknown := sorted(set(recipes) - set(RECIPES)):
        parser.error(f"there are no recipes {', '.join(unknown)}; `mmrl list recipes` names all")
    failed = []
    for recipe in [name for name in recipes if not args.missing or is_missing(name)]:
        with tempfile.TemporaryDirectory() as folder:
            record = run_recipe(recipe, Path(folder), args.minutes)
        write_records({**read_records(), recipe: record})
        print(f"{recipe}: {describe_acts(recipe, record)} ({record['seconds']} s)", flush=True)
        failed += [recipe] if record["problems"] else []
    sys.exit(f"{len(failed)} do not act: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
