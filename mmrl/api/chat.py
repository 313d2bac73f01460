"""`mmrl chat`: talk to a run's text or vision-language policy, with the chat template of the run."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mmrl.api.loaded_policy import load_policy
from mmrl.core.errors import ConfigError
from mmrl.core.sampling import Sampling
from mmrl.samples.view import escape_controls

HELP = "/image PATH and /video PATH add to the next message, /new forgets the conversation, /quit ends"


def chat(arguments: Sequence[str]) -> None:
    """Read messages line by line from the terminal or a pipe, and print the policy's answers."""
    places = [argument for argument in arguments if "=" not in argument]
    options = dict(argument.split("=", 1) for argument in arguments if "=" in argument)
    known = {"checkpoint", "decode", "seed", "system", "regex", "json_schema"}
    if len(places) != 1 or set(options) - known or not options.get("seed", "0").isdigit():
        raise ConfigError(
            f"give one run folder, got {list(arguments)}; options are checkpoint=, decode=, seed=, system=, regex=, "
            "json_schema="
        )
    guide = {name: options[name] for name in ("regex", "json_schema") if name in options}
    try:
        Sampling(**guide)  # type: ignore[arg-type]  # refused before the policy is loaded
    except ValueError as error:
        raise ConfigError(str(error)) from error
    policy = load_policy(
        places[0], options.get("checkpoint", "last"), options.get("decode"), seed=int(options.get("seed", "0"))
    )
    typed = sys.stdin.isatty()
    if typed:
        print(HELP)
    talk = Conversation(policy, guide, options.get("system"))
    while True:
        try:
            line = input("> ") if typed else next(sys.stdin).rstrip("\n")
        except (EOFError, StopIteration, KeyboardInterrupt):
            return
        if line.strip() == "/quit":
            return
        answer = talk.reply(line)
        if answer is not None:
            print(escape_controls(answer), flush=True)
            if not answer:  # on another stream than the answers, which a pipe reads line by line
                print("the answer above is empty: the policy ended it at once", file=sys.stderr, flush=True)


class Conversation:
    """Messages, images and videos so far.

    Args:
        policy: that answers, as `mmrl.load_policy` gives it.
        guide: `regex` or `json_schema` that every answer matches; empty for none.
        system: message that begins every conversation.
    """

    def __init__(self, policy: Any, guide: Mapping[str, str] | None = None, system: str | None = None):
        self.policy, self.guide = policy, dict(guide or {})
        self.opening: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
        self.messages = self.opening
        self.images: list[Path] = []
        self.videos: list[Path] = []
        self.waiting: list[Path] = []  # images of the next message
        self.waiting_videos: list[Path] = []

    def reply(self, line: str) -> str | None:
        """Answer a line; None for a command without an answer and for an empty line."""
        word, _, rest = line.strip().partition(" ")
        if word == "/new":
            self.messages, self.images, self.waiting, self.videos, self.waiting_videos = self.opening, [], [], [], []
            return None
        if word in ("/image", "/video"):
            path = Path(rest.strip())
            if not path.is_file():
                return f"{path}: no such file"
            (self.waiting if word == "/image" else self.waiting_videos).append(path)
            return None
        if not line.strip():
            return None
        # images and videos that wait stand before the text of the message
        content: Any = line
        kinds = ["image"] * len(self.waiting) + ["video"] * len(self.waiting_videos)
        if kinds:
            content = [*({"type": kind} for kind in kinds), {"type": "text", "text": line}]
        messages = [*self.messages, {"role": "user", "content": content}]
        images, videos = [*self.images, *self.waiting], [*self.videos, *self.waiting_videos]
        # a question without an answer is not a part of the conversation
        try:
            answer = self.policy.generate(messages, images=images, videos=videos, **self.guide)
        except (ConfigError, ValueError, OSError) as error:
            self.waiting, self.waiting_videos = [], []
            return f"not answered: {' '.join(str(error).split())}"
        self.messages = [*messages, {"role": "assistant", "content": answer}]
        self.images, self.waiting, self.videos, self.waiting_videos = images, [], videos, []
        return answer
