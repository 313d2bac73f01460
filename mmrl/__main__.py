"""`mmrl fit|evaluate|data|list|doctor`, also as `python -m mmrl`."""

from __future__ import annotations

import os
import sys

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # small operations on few cores otherwise wait in a busy loop

USAGE = """mmrl: reinforcement learning for text, vision-language and vision-language-action policies

  mmrl fit recipe=grpo task=arithmetic policy=tiny_text [key=value ...] [--print_config]
  mmrl fit --config runs/.../config.yaml [--trainer.max_epochs 5 ...]
  mmrl evaluate RUN_FOLDER [checkpoint=last|start|FILE] [count=512] [video=true] [key=value ...]
  mmrl data record sim=reach num_episodes=50 out=FOLDER | mmrl data record run=RUN_FOLDER out=FOLDER
  mmrl data inspect FOLDER
  mmrl list [recipes|policies|tasks|sims|engines|rollouts|objectives|annotators|...]
  mmrl doctor

mmrl COMMAND --help says more.
Keys: recipe task sim policy engine seed run_dir ckpt_path, and everything below trainer. data. model.
overwrite=true begins a run in a folder that holds one; trust=true loads pickled objects from a checkpoint.
"""


def main(argv: list[str] | None = None) -> int:
    """Run one command; the exit status is 0, 1 for a failure, 2 for words that cannot be used.

    An error that a part of ours raises on purpose is a message to the user and is shown as one line. Every other error
    is a fault of the program and is shown with its traceback, and so is every error with MMRL_TRACEBACK=1.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
        return 0 if words else 2
    command, rest = words[0], words[1:]
    from mmrl.commands import COMMANDS
    from mmrl.commands.usage import USAGES
    from mmrl.errors import ConfigError, raised_on_purpose

    if command not in COMMANDS:
        print(f"mmrl: unknown command {command!r}; commands are {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    if command in USAGES and (rest[:1] == ["help"] or {"-h", "--help"} & set(rest)):
        print(USAGES[command], end="")
        return 0
    try:
        COMMANDS[command](rest)
    except Exception as error:
        if os.environ.get("MMRL_TRACEBACK") or not raised_on_purpose(error):
            raise
        text = error.args[0] if isinstance(error, KeyError) else error  # a KeyError's str has quotes around it
        print(f"mmrl {command}: {' '.join(str(text).split())}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
