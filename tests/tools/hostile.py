"""What a hostile program is, and what it reaches for."""

from __future__ import annotations

from dataclasses import dataclass, fields

PRELUDE = """
import ctypes, errno, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def call(x86_64, aarch64, *arguments):
    number = {"x86_64": x86_64, "aarch64": aarch64}[os.uname().machine]
    done = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    if done < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return done
"""


@dataclass(frozen=True)
class Targets:
    """What is within reach of an unconfined program: planted for it, and nobody else's.

    Args:
        secret: a file with the word "planted".
        file: a file that everybody may write.
        folder: a folder that everybody may write in.
        decoy: the number of a process that waits.
        trainer: the number of the process that runs the sandbox.
        port: of a listening TCP socket of this machine.
        socket: the path of a listening Unix socket.
        terminal: the path of a terminal.
        source: a file of this project.
        package: a file of an installed package.
    """

    secret: str
    file: str
    folder: str
    decoy: int
    trainer: int
    port: int
    socket: str
    terminal: str
    source: str
    package: str


@dataclass(frozen=True)
class Hostile:
    """A program that tries to do what it must not, and prints ESCAPED when it could.

    Args:
        name: of the attempt.
        source: the program; @secret@ and so on stand for the targets.
        ends: outcomes of which it may have one.
        control: whether it prints ESCAPED when nothing confines it, on every machine that runs the tests as root.
    """

    name: str
    source: str
    ends: tuple[str, ...] = ("raised",)
    control: bool = False

    def aim(self, targets: Targets) -> str:
        """The program with the names of its targets."""
        source = PRELUDE + self.source
        for field in fields(targets):
            source = source.replace(f"@{field.name}@", str(getattr(targets, field.name)))
        return source
