"""Recorded episodes: make them, look at them."""

from __future__ import annotations

from collections.abc import Sequence

from mmrl.config import ConfigError

USAGE = """mmrl data: episodes of robots, recorded control step by control step

  mmrl data record sim=reach episodes=50 out=FOLDER          the simulator's scripted expert
  mmrl data record run=RUN_FOLDER episodes=50 out=FOLDER     a trained policy, in the simulator of its run
      checkpoint=last|start|FILE  decode=sample|argmax|mean  of a policy
      noise=0.3        deviation of what the expert plays from what is recorded, in actions
      video=false      PNG inside the tables, exact, instead of H.264
      first=0          number of the first initial state of split=train|held_out
      sim.KEY=VALUE task.KEY=VALUE policy.KEY=VALUE ...      as for mmrl fit
  mmrl data inspect FOLDER|FILE.hdf5                         schema, counts, statistics, contact sheet
      out=FOLDER       where contact_sheet.png goes
      write=true       compute meta/stats.json again from the data

Written: LeRobotDataset v3.0. Read: LeRobotDataset v3.0, Minari HDF5, robomimic HDF5.
To learn from one: mmrl fit recipe=bc sim=reach rollout=recorded rollout.path=FOLDER curriculum=shuffled
"""


def data(words: Sequence[str]) -> None:
    """record or inspect, or how to use them."""
    if not words or words[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
        return
    verb, rest = words[0], list(words[1:])
    if verb == "record":
        from mmrl.commands.data_record import record

        record(rest)
    elif verb == "inspect":
        from mmrl.commands.data_inspect import inspect

        inspect(rest)
    else:
        raise ConfigError(f"mmrl data {verb}: no such thing; there are record and inspect")


def options(words: Sequence[str], known: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The options among key=value words, and the words that are none of them."""
    given, more = {}, []
    for word in words:
        key, equals, value = word.partition("=")
        if equals and key in known:
            given[key] = value
        else:
            more.append(word)
    return given, more


def switch(given: dict[str, str], name: str, default: bool) -> bool:
    """A word that must be true or false."""
    word = given.get(name, str(default)).lower()
    if word not in ("true", "false"):
        raise ConfigError(f"{name}={given[name]}: must be true or false")
    return word == "true"


def number(given: dict[str, str], name: str, default: float, least: float) -> float:
    """A word that must be a number of at least `least`."""
    try:
        value = float(given.get(name, default))
    except ValueError as error:
        raise ConfigError(f"{name}={given[name]}: must be a number") from error
    if not value >= least:
        raise ConfigError(f"{name}={given[name]}: must be at least {least:g}")
    return value
