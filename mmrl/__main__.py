"""`mmrl fit|evaluate|serve|new|data|list|doctor|completion`, also as `python -m mmrl`."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # spinning OpenMP threads slow small operations


BUILDS = ("fit", "rounds", "plan", "evaluate", "chat", "serve", "robot")
"""Commands that build models."""


def main(argv: list[str] | None = None) -> int:
    """Run one command; the exit status is 0, 1 for a failure, 2 for arguments that cannot be used.

    An error that mmrl's own code raises on purpose is a message to the user and is printed as one line. Every other
    error is a fault of the program and is printed with its traceback, and so is every error with MMRL_TRACEBACK=1.
    """
    from mmrl.commands import COMMANDS
    from mmrl.commands.limits import check_limits, explain_system_error
    from mmrl.commands.project import enter_project
    from mmrl.core.errors import ConfigError, is_user_error

    arguments = list(sys.argv[1:] if argv is None else argv)
    command, rest = (arguments or [""])[0], arguments[1:]
    try:
        if (status := _print_usage(arguments)) is not None:
            sys.stdout.flush()
            return status
        rest = _take_config_dir(rest)
        enter_project(Path.cwd())
        if command in BUILDS:
            check_limits()
        COMMANDS[command](rest)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output has gone, as in `mmrl list recipes | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for Python's own flush at its end
        return 128 + signal.SIGPIPE
    except Exception as error:
        if os.environ.get("MMRL_TRACEBACK"):
            raise
        name = f"mmrl {command}" if command in COMMANDS else "mmrl"
        if not is_user_error(error):
            if (message := explain_system_error(error)) is None:
                raise
            print(f"{name}: {message}", file=sys.stderr)
            return 1
        text = error.args[0] if isinstance(error, KeyError) else error  # a KeyError's str has quotes around it
        print(f"{name}: {' '.join(str(text).split()).removeprefix(f'{name}: ')}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    return 0


def _print_usage(arguments: list[str]) -> int | None:
    """Print the usage or the versions where the arguments ask for them; the exit status, or None for a command."""
    from mmrl.commands import COMMANDS
    from mmrl.commands.help.jobs import format_overview
    from mmrl.commands.help.usage import USAGES, format_versions

    if not arguments:
        print(format_overview(), end="")
        return 2
    if arguments[0] in ("-h", "--help", "help"):
        return _print_help(arguments[1:])
    if arguments[0] in ("-V", "--version"):
        print(format_versions())
        return 0
    command, rest = arguments[0], arguments[1:]
    if command not in COMMANDS:
        print(f"mmrl: unknown command {command!r}; commands are {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    if (rest[:1] == ["help"] or {"-h", "--help"} & set(rest)) and "all" not in rest:
        print(USAGES[command], end="")
        return 0
    return None


def _print_help(names: list[str]) -> int:
    """Print the screen of a job or the usage of a command, or without a name the overview; the exit status."""
    from mmrl.commands.help.jobs import JOBS, format_job, format_overview
    from mmrl.commands.help.usage import USAGES

    if names and names[0] not in (*JOBS, *USAGES):
        print(f"mmrl help: no job or command {names[0]!r}; jobs are {', '.join(JOBS)}", file=sys.stderr)
        return 2
    if not names:
        print(format_overview(), end="")
    else:
        print(format_job(names[0]) if names[0] in JOBS else USAGES[names[0]], end="")
    return 0


def _take_config_dir(arguments: list[str]) -> list[str]:
    """Remove --config-dir DIR, a further folder of options, and set it for this process and its children."""
    rest, words = [], iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if name == "--config-dir":
            os.environ["MMRL_CONFIG_DIR"] = str(Path(value if equals else next(words, "")).absolute())
        else:
            rest.append(word)
    return rest


if __name__ == "__main__":
    if sys.path[0] == os.getcwd():
        del sys.path[0]  # `python -m` puts the working directory first, where it hides installed modules
    raise SystemExit(main())
