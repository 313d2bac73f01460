"""`mmrl fit|evaluate|list|doctor`, also as `python -m mmrl`."""

from __future__ import annotations

import os
import sys

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # small operations on few cores otherwise wait in a busy loop

USAGE = """mmrl: reinforcement learning for text, vision-language and vision-language-action policies

  mmrl fit recipe=grpo task=arithmetic policy=tiny_text [key=value ...] [--print_config]
  mmrl fit --config runs/.../config.yaml [--trainer.max_epochs 5 ...]
  mmrl evaluate RUN_FOLDER [checkpoint=last|start|FILE] [count=512] [video=true] [key=value ...]
  mmrl list [recipes|policies|tasks|sims|engines|rollouts|objectives|stages|...]
  mmrl doctor

Keys: recipe task sim policy engine seed run_dir ckpt_path, and everything below trainer. data. model.
"""


def main(argv: list[str] | None = None) -> int:
    """Run one command; the exit status is 0, 1 for a failure, 2 for words that cannot be used."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
        return 0 if words else 2
    command, rest = words[0], words[1:]
    from mmrl.commands import COMMANDS
    from mmrl.config import ConfigError

    if command not in COMMANDS:
        print(f"mmrl: unknown command {command!r}; commands are {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    try:
        COMMANDS[command](rest)
    except ConfigError as error:
        print(f"mmrl {command}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
