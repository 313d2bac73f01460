"""Processes of other Pythons: lines in both directions, one process for equal arguments, and their end."""

import sys

import pytest

from mmrl.tools.guest_process import GuestProcess

ECHO = "import sys\nfor line in sys.stdin: print('got', line.strip(), flush=True)"
STAYS = "import sys, time\nsys.stdin.read()\ntime.sleep(60)"


class Named(GuestProcess):
    """The process of a program by its path."""

    def __init__(self, path: str):
        super().__init__([path])


class Guest(GuestProcess):
    def __init__(self, program: str):
        super().__init__([sys.executable, "-S", "-c", program])


class Other(Guest):
    pass


def test_lines_are_written_and_read():
    guest = Guest(ECHO)
    guest.write_line("one")
    assert guest.read_line(20) == "got one" and not guest.is_over and guest.status is None
    guest.close()
    assert guest.is_over and guest.status == 0
    assert guest.read_line(20) == ""
    with pytest.raises((OSError, ValueError)):
        guest.write_line("two")
    guest.close()


def test_equal_arguments_are_one_process_until_it_ends():
    first = Guest.find(ECHO)
    assert Guest.find(ECHO) is first and Other.find(ECHO) is not first and Guest.find(STAYS) is not first
    first.close()
    again = Guest.find(ECHO)
    again.write_line("x")
    assert again is not first and list(Guest.running) == [(ECHO,), (STAYS,)]
    assert next(again.lines()) == "got x\n"
    Guest.running[(STAYS,)]._process.kill()
    for guest in (*Guest.running.values(), *Other.running.values()):
        guest.close()


def test_one_that_does_not_end_is_killed(monkeypatch):
    monkeypatch.setattr("mmrl.tools.guest_process.END_S", 0.2)
    guest = Guest(STAYS)
    guest.close()
    assert guest.status == -9


def test_a_program_by_a_relative_path_is_found_from_other_folders(tmp_path, monkeypatch):
    """The programs beside it are found by a child that has another working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "beside").write_text("#!/bin/sh\necho found\n")
    (tmp_path / "bin" / "program").write_text("#!/bin/sh\ncd /\nbeside\n")
    for name in ("beside", "program"):
        (tmp_path / "bin" / name).chmod(0o755)
    process = Named("bin/program")
    try:
        assert process.read_line(5.0) == "found"
    finally:
        process.close()


def test_the_current_folder_and_the_programs_beside_its_own_come_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    names = "import os; print(os.environ['PYTHONPATH'], os.environ['PATH'].split(os.pathsep)[0])"
    guest = Guest(names)
    assert guest.read_line(20) == f"{tmp_path}:elsewhere {sys.executable.rpartition('/')[0]}"
    guest.close()
