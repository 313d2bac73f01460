"""Processes of the sandbox; they need only the standard library.

One interpreter (`main`) waits for programs. For each program it forks a supervisor (`supervisor`), which forks the
program's process, which confines itself (`confinement`) before the program is read. The waiting interpreter never reads
a program or its output, so that no program finds those of another one in its memory.
"""
