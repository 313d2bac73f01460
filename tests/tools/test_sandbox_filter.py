"""The filter of system calls on both machines, by running its instructions, and the table that it is made of."""

import platform
import shutil
import struct

import pytest

from mmrl.tools.sandbox.worker import allowed, seccomp
from mmrl.tools.sandbox.worker.syscalls import NUMBERS
from scripts import syscall_table

ALLOW, REFUSE, MISSING, KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000
OWN = 4321


@pytest.fixture(params=["x86_64", "aarch64"])
def answer(request, monkeypatch):
    """What the filter of a machine says to a system call: a function of its number and arguments."""
    monkeypatch.setattr(platform, "machine", lambda: request.param)
    code = seccomp.build_filter().replace(struct.pack("I", seccomp._PROCESS), struct.pack("I", OWN))
    steps = list(struct.iter_unpack("HBBI", code))
    index = list(seccomp.ARCHITECTURES).index(request.param)
    machine = seccomp.ARCHITECTURES[request.param]

    def run(name, *arguments, architecture=machine):
        number = name if isinstance(name, int) else NUMBERS[name][index]
        data = struct.pack("=IIQ6Q", number, architecture, 0, *arguments, *[0] * (6 - len(arguments)))
        at, value = 0, 0
        while True:
            operation, true, false, given = steps[at]
            at += 1
            if operation == 0x20:
                (value,) = struct.unpack_from("I", data, given)
            elif operation == 0x54:
                value &= given
            elif operation == 0x06:
                return given
            else:
                met = {0x15: value == given, 0x35: value >= given, 0x45: bool(value & given)}[operation]
                at += true if met else false

    run.index = index
    return run


def test_every_number_is_answered_as_the_names_say(answer):
    always = {NUMBERS[name][answer.index] for name in allowed.ALWAYS} - {None}
    missing = {NUMBERS[name][answer.index] for name in allowed.MISSING}
    looked_at = {
        NUMBERS[name][answer.index]
        for name in (*allowed.VALUES, *allowed.OWN_PROCESS, *allowed.MODES, *allowed.OPEN, allowed.LIMITS)
    }
    for number in range(1000):
        if number not in looked_at:
            wanted = ALLOW if number in always else MISSING if number in missing else REFUSE
            assert answer(number) == wanted, number
    assert answer(0x40000000 + 57) == answer(0xFFFFFFFF) == REFUSE
    assert answer("read", architecture=0x40000003) == KILL  # the calls of 32 bits


def test_arguments_are_looked_at(answer):
    high = 0xFFFFFFFF00000000  # the kernel looks at the lower half of these
    for name in ("kill", "tgkill"):
        assert answer(name, OWN, 1, 9) == ALLOW
        assert {answer(name, other, 1, 9) for other in (0, 1, OWN + 1, 0xFFFFFFFF, high)} == {REFUSE}
    assert answer("ioctl", 1, 0x5401) == answer("ioctl", 1, high | 0x5401) == ALLOW
    typed, flags, owner = 0x5412, 0x40086602, 0x8901
    assert {answer("ioctl", 1, command) for command in (typed, high | typed, flags, owner, 0x541C)} == {REFUSE}
    assert answer("fcntl", 1, 3) == ALLOW
    assert {answer("fcntl", 1, command) for command in (5, 6, 7, 8, 10, 15, 1024, 1026, 1031)} == {REFUSE}
    assert answer("clone", 0x3D0F00) == ALLOW
    assert {answer("clone", flags) for flags in (17, 0x1200011, 0x100, 0x13D0F00, 0x3D0F11, 0)} == {REFUSE}
    assert answer("prctl", 15) == ALLOW and {answer("prctl", option) for option in (1, 4, 8, 22, 38)} == {REFUSE}
    assert answer("prlimit64", 0, 7, 0, 1) == answer("prlimit64", OWN, 7, 0, 1) == ALLOW
    assert {answer("prlimit64", 0, 7, new, 1) for new in (1, 1 << 32, 1 << 63)} == {REFUSE}
    assert answer("prlimit64", OWN + 1, 7, 0, 1) == REFUSE


def test_files_are_opened_and_folders_made_with_modes_that_can_be_watched(answer):
    opens = {"open": (0,), "openat": (0, 0)} if answer.index == 0 else {"openat": (0, 0)}
    for name, before in opens.items():
        for flags in (0, 1, 2, 0o101, 0o1001, 0o1102, 0o2000001):
            assert answer(name, *before, flags) == ALLOW, (name, oct(flags))
        for flags in (0o1000, 0o1100, 3, 0o1003, 0o2000003):
            assert answer(name, *before, flags) == REFUSE, (name, oct(flags))
    makes = {"mkdir": (0,), "mkdirat": (0, 0)} if answer.index == 0 else {"mkdirat": (0, 0)}
    for name, before in makes.items():
        assert answer(name, *before, 0o777) == answer(name, *before, 0o700) == ALLOW
        assert {answer(name, *before, mode) for mode in (0, 0o077, 0o500, 0o300)} == {REFUSE}


def test_other_machines_are_refused_by_name(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(OSError, match="x86_64 and aarch64, and this machine is riscv64"):
        seccomp.build_filter()


def test_numbers_are_the_kernels():
    pinned = {"read": (0, 63), "openat": (257, 56), "tgkill": (234, 131), "clone": (56, 220), "ioctl": (16, 29)}
    pinned |= {"prlimit64": (302, 261), "open": (2, None), "mkdirat": (258, 34), "fcntl": (72, 25), "prctl": (157, 167)}
    assert {name: NUMBERS[name] for name in pinned} == pinned
    for numbers in zip(*NUMBERS.values()):
        known = [number for number in numbers if number is not None]
        assert len(known) == len(set(known))


def test_the_table_is_what_its_script_writes():
    if shutil.which("cc") is None or platform.machine() != "x86_64":
        pytest.skip("it is generated on x86-64 with a C compiler")
    try:
        table = syscall_table.format_table()
    except Exception as error:
        pytest.skip(f"no kernel headers: {error}")
    namespace: dict = {}
    exec(table, namespace)
    assert namespace["NUMBERS"] == NUMBERS
