"""System calls that a confined program may make: those that CPython and the C library need for computing, threads,
files in the scratch folder, pipes and clocks. Every other call is refused with EPERM.
"""

from __future__ import annotations

ALWAYS: tuple[str, ...] = (
    # memory
    *("brk", "mmap", "munmap", "mprotect", "mremap", "madvise"),
    # open files
    *("read", "write", "readv", "writev", "pread64", "pwrite64", "preadv", "pwritev", "preadv2", "pwritev2", "lseek"),
    *("close", "close_range", "dup", "dup2", "dup3", "fsync", "fdatasync", "ftruncate"),
    *("copy_file_range", "sendfile", "fadvise64"),
    # names of files, which Landlock looks at
    *("stat", "lstat", "fstat", "newfstatat", "statx", "statfs", "fstatfs", "access", "faccessat", "faccessat2"),
    *("readlink", "readlinkat", "getdents", "getdents64", "getcwd", "chdir", "fchdir"),
    *("rename", "renameat", "renameat2", "rmdir", "unlink", "unlinkat", "link", "linkat", "symlink", "symlinkat"),
    # waiting
    *("pipe", "pipe2", "select", "pselect6", "poll", "ppoll", "eventfd2"),
    *("epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait", "epoll_pwait2"),
    *("nanosleep", "clock_nanosleep", "pause", "sched_yield", "restart_syscall"),
    # threads
    *("futex", "futex_waitv", "set_robust_list", "set_tid_address", "rseq", "gettid", "exit", "exit_group"),
    # clocks and timers of the program itself
    *("clock_gettime", "clock_getres", "gettimeofday", "time", "times", "getrusage", "getrandom"),
    *("getitimer", "setitimer", "alarm"),
    # signals that the program handles
    *("rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "rt_sigsuspend", "rt_sigpending", "rt_sigtimedwait"),
    *("sigaltstack",),
    # who and where the program is
    *("getpid", "getppid", "getpgrp", "getuid", "geteuid", "getgid", "getegid", "getgroups", "getresuid", "getresgid"),
    *("uname", "getrlimit", "sched_getaffinity", "getcpu"),
)

IOCTL = (
    0x5401,  # TCGETS: whether an open file is a terminal
    0x5413,  # TIOCGWINSZ: the size of one
    0x541B,  # FIONREAD
    0x5421,  # FIONBIO
    0x5450,  # FIONCLEX
    0x5451,  # FIOCLEX
)
FCNTL = (0, 1, 2, 3, 4, 1030)  # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC
PRCTL = (15, 16)  # PR_SET_NAME, PR_GET_NAME: of a thread
# the flags that the C library makes a thread with: glibc, musl
THREAD = (0x003D0F00, 0x007D0F00)

VALUES: dict[str, tuple[int, tuple[int, ...]]] = {
    "ioctl": (1, IOCTL),
    "fcntl": (1, FCNTL),
    "prctl": (0, PRCTL),
    "clone": (0, THREAD),
}
"""Calls that are allowed where the lower 32 bits of an argument (its index) are one of some values."""

OWN_PROCESS: tuple[str, ...] = ("kill", "tgkill")
"""Calls that are allowed where the first argument is the program's own process."""

MODES: dict[str, int] = {"mkdir": 1, "mkdirat": 2}
"""Calls that are allowed where an argument (its index) has the owner's three bits of a mode, so that a folder can be
emptied again."""

OPEN: dict[str, int] = {"open": 1, "openat": 2}
"""Calls whose argument (its index) may not ask to empty a file that is opened for reading: Landlock knows that right
only since Linux 6.2."""

LIMITS = "prlimit64"
"""Allowed where no new limit is given."""

MISSING: tuple[str, ...] = ("clone3", "openat2")
"""Calls that are answered with ENOSYS, so that the C library makes an older one whose arguments can be read."""

USED: tuple[str, ...] = (
    *("landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self", "capset", "pivot_root", "seccomp"),
)
"""Calls of the worker itself."""
