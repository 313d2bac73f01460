"""The processes of the sandbox, which need the standard library alone.

One bare interpreter (`main`) waits for programs. For each of them it forks a supervisor (`supervisor`), which forks the
program's process; that one confines itself (`confinement`) before the program is read. The interpreter that waits never
sees a program or what it printed, so that no program finds another one's in its memory.
"""
