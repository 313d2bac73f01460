"""Who writes reward programs: answers from files, or a language model behind OpenAI's interface."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from mmrl.core.errors import ConfigError, check_at_least
from mmrl.rewards.judges.client import NoAnswer, PassingError, ServerConnection

Messages = Sequence[Mapping[str, str]]
_FENCE = re.compile(r"```(?:python|py)?[ \t]*\r?\n(.*?)```", re.DOTALL)


class Writer(Protocol):
    """Writes an answer to a conversation."""

    def write(self, messages: Messages, number: int) -> str:
        """The answer.

        Args:
            messages: the conversation.
            number: of answers that were written before in these rounds.
        """


class ScriptedWriter:
    """Gives the texts of files, one after the other, whatever it is asked: rewards that a person wrote, or a test.

    Args:
        files: each an answer, or a program alone.
    """

    def __init__(self, files: Sequence[str]):
        self.files = [Path(file) for file in files]
        if missing := [file for file in self.files if not file.is_file()]:
            raise ConfigError(f"writer.files: {missing[0]}: no such file")
        if not self.files:
            raise ConfigError("writer.files names no file; give the programs in the order in which they are tried")

    def write(self, messages: Messages, number: int) -> str:
        if number >= len(self.files):
            raise ConfigError(f"writer.files: answer {number + 1} is asked for, and there are {len(self.files)} files")
        text = self.files[number].read_text()
        return text if _FENCE.search(text) else f"```python\n{text.rstrip()}\n```"


class ChatWriter(ServerConnection):
    """Language model behind POST URL/chat/completions; `mmrl serve` puts any text policy behind that interface.

    Args:
        url: of the interface, as http://127.0.0.1:8000/v1.
        model: name of the model at the server.
        temperature: of the model's sampling.
        max_tokens: of an answer.
        connection: further options of `ServerConnection`: timeout_s, retries, backoff_s, key_variable.
    """

    place = "writer"

    def __init__(
        self, url: str, model: str, temperature: float = 0.7, max_tokens: int = 1024, timeout_s: float = 300.0,
        **connection: Any,
    ):  # fmt: skip
        if not model or not url.startswith(("http://", "https://")):
            raise ConfigError(f"writer: give url: http://HOST:PORT/v1 and model: NAME, got {url!r} and {model!r}")
        check_at_least(0, self.place, temperature=temperature)
        check_at_least(1, self.place, max_tokens=max_tokens)
        super().__init__(url, timeout_s=timeout_s, **connection)
        self.options = {"model": model, "temperature": temperature, "max_tokens": max_tokens}

    def write(self, messages: Messages, number: int) -> str:
        body = {**self.options, "messages": [dict(message) for message in messages], "seed": number}
        (text,) = self.client.ask_all("/chat/completions", [body], _read_content, Counter())
        if isinstance(text, NoAnswer):
            raise OSError(f"the model gave no answer: {text.reason}")
        return text


def _read_content(number: int, answer: Any) -> str:
    try:
        content = answer["choices"][0]["message"]["content"]
    except (LookupError, TypeError):
        content = None
    if not isinstance(content, str):
        raise PassingError(f"answered without a text: {str(answer)[:200]}")
    return content


def build_writer(options: Mapping[str, Any]) -> Writer:
    """The writer of a stage's options: files, or url and model.

    Raises:
        ConfigError: they are those of neither.
    """
    kind: Any = ScriptedWriter if "files" in options else ChatWriter
    try:
        return kind(**options)
    except TypeError as error:
        raise ConfigError(f"writer: give files: [...], or url and model; {error.args[0].split('() ')[-1]}") from error


def find_program(answer: str) -> str | None:
    """The program in an answer: what its last fence of Python holds; None without one."""
    fences = _FENCE.findall(answer)
    return fences[-1] if fences else None
