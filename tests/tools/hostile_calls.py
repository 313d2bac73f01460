"""System calls that a program has no business with, by their numbers on x86-64 and aarch64."""

from tests.tools.hostile import Hostile

# name: numbers, arguments, whether it succeeds where nothing confines root
CALLS: dict[str, tuple[int, int, str, bool]] = {
    # sockets
    "socket of Unix": (41, 198, "1, 1, 0", True),
    "socket of the internet": (41, 198, "2, 1, 0", True),
    "socket of netlink": (41, 198, "16, 3, 0", True),
    "socket of vsock": (41, 198, "40, 1, 0", False),
    "socket of the kernel's ciphers": (41, 198, "38, 5, 0", False),
    "socketpair": (53, 199, "1, 1, 0, ctypes.create_string_buffer(8)", True),
    "io_uring": (425, 425, "4, ctypes.create_string_buffer(120)", False),
    # processes and programs
    "unshare users": (272, 97, "0x10000000", True),
    "unshare mounts": (272, 97, "0x20000", True),
    "clone as fork": (56, 220, "17, 0, 0, 0, 0", False),
    "clone with new namespaces": (56, 220, "0x30000011, 0, 0, 0, 0", False),
    "clone into a thread without its group": (56, 220, "0x100, 0, 0, 0, 0", False),
    "execveat": (322, 281, "-100, b'/bin/true', 0, 0, 0", False),
    "setns": (308, 268, "0, 0", False),
    "ptrace": (101, 117, "16, @decoy@, 0, 0", True),
    "process_madvise": (440, 440, "3, 0, 0, 20, 0", False),
    "process_mrelease": (448, 448, "3, 0", False),
    "pidfd_open": (434, 434, "@decoy@, 0", True),
    "pidfd_getfd": (438, 438, "3, 0, 0", False),
    "kcmp": (312, 272, "@decoy@, @decoy@, 0, 0, 0", False),
    "prlimit of another": (302, 261, "@decoy@, 7, 0, ctypes.create_string_buffer(16)", True),
    "prlimit with more": (
        302,
        261,
        "0, 7, ctypes.create_string_buffer(b'\\x40' + bytes(7) + b'\\x40' + bytes(7)), 0",
        True,
    ),
    "setpriority of another": (141, 140, "0, @decoy@, 5", True),
    "sched_setaffinity of another": (203, 122, "@decoy@, 8, ctypes.create_string_buffer(b'\\x01' + bytes(7))", True),
    "sched_setscheduler": (144, 119, "0, 0, ctypes.create_string_buffer(4)", True),
    "ioprio_set of another": (251, 30, "1, @decoy@, 0x4000", True),
    "migrate_pages": (256, 238, "@decoy@, 8, 0, 0", False),
    "move_pages": (279, 239, "@decoy@, 0, 0, 0, 0, 0", False),
    # signals
    "tkill": (200, 130, "@decoy@, 0", True),
    "tgkill": (234, 131, "@decoy@, @decoy@, 0", True),
    "kill": (62, 129, "@decoy@, 0", True),
    "kill the trainer": (62, 129, "@trainer@, 0", True),
    "tgkill the trainer": (234, 131, "@trainer@, @trainer@, 9", False),
    "tgkill the supervisor": (234, 131, "os.getppid(), os.getppid(), 9", False),
    "kill the supervisor": (62, 129, "os.getppid(), 9", False),
    "kill the group": (62, 129, "0, 9", False),
    "kill all": (62, 129, "-1, 9", False),
    "rt_sigqueueinfo": (129, 138, "@decoy@, 9, ctypes.create_string_buffer(b'\\x00' * 8 + b'\\xff' * 4, 128)", False),
    "rt_tgsigqueueinfo": (
        297,
        240,
        "@decoy@, @decoy@, 9, ctypes.create_string_buffer(b'\\x00' * 8 + b'\\xff' * 4, 128)",
        False,
    ),
    "pidfd_send_signal": (424, 424, "3, 9, 0, 0", False),
    "timer_create": (222, 107, "0, 0, ctypes.create_string_buffer(8)", True),
    # the terminal and the session
    "setsid": (112, 157, "", False),
    "setpgid": (109, 154, "0, 0", True),
    "vhangup": (153, 58, "", False),
    # memory that outlives a program, and keys
    "shmget": (29, 194, "0, 4096, 0o1600", False),
    "shmat": (30, 196, "0, 0, 0", False),
    "semget": (64, 190, "0, 1, 0o1600", False),
    "msgget": (68, 186, "0, 0o1600", False),
    "mq_open": (240, 180, "b'mmrl', 0o102, 0o600, 0", False),
    "add_key": (248, 217, "b'user', b'mmrl', b'x', 1, -3", False),
    "request_key": (249, 218, "b'user', b'mmrl', 0, -3", False),
    "keyctl": (250, 219, "0, -3, 1", False),
    "memfd_create": (319, 279, "b'x', 0", True),
    "memfd_secret": (447, 447, "0", False),
    "mlockall": (151, 230, "1", False),
    "userfaultfd": (323, 282, "1", False),
    "remap_file_pages": (216, 234, "0, 0, 0, 0, 0", False),
    # mounts and roots
    "mount": (165, 40, "b'none', b'@folder@', b'tmpfs', 0, 0", False),
    "umount": (166, 39, "b'/', 2", False),
    "pivot_root": (155, 41, "b'.', b'.'", False),
    "chroot": (161, 51, "b'@folder@'", False),
    "open_tree": (428, 428, "-100, b'/', 1", False),
    "move_mount": (429, 429, "-100, b'/', -100, b'@folder@', 0", False),
    "fsopen": (430, 430, "b'tmpfs', 0", True),
    "mount_setattr": (442, 442, "-100, b'/', 0, ctypes.create_string_buffer(32), 32", False),
    "open_by_handle_at": (304, 265, "-100, ctypes.create_string_buffer(136), 0", False),
    "name_to_handle_at": (
        303,
        264,
        "-100, b'@file@', ctypes.create_string_buffer(b'\\x80' + bytes(7), 136), ctypes.create_string_buffer(4), 0",
        False,
    ),
    # files outside
    "setxattr": (188, 5, "b'@file@', b'user.x', b'1', 1, 0", False),
    "setxattrat": (463, 463, "-100, b'@file@', 0, b'user.x', ctypes.create_string_buffer(16), 16", False),
    "removexattr": (197, 14, "b'@file@', b'user.x'", False),
    "truncate": (76, 45, "b'@file@', 0", True),
    "fchmodat2": (452, 452, "-100, b'@file@', 0o600, 0", False),
    "file_setattr": (469, 469, "-100, b'@file@', ctypes.create_string_buffer(24), 24, 0", False),
    "flock": (73, 32, "1, 2", False),
    "fallocate": (285, 47, "1, 0, 0, 1", False),
    "mknodat": (259, 33, "-100, b'@folder@/node', 0o10600, 0", True),
    "inotify": (294, 26, "0", True),
    "fanotify": (300, 262, "0, 0", False),
    "quotactl": (179, 60, "0, 0, 0, 0", False),
    "acct": (163, 89, "b'@file@'", False),
    "swapon": (167, 224, "b'@file@', 0", False),
    "sync": (162, 81, "", True),
    # privileges and the machine
    "setuid": (105, 146, "0", True),
    "setresuid": (117, 147, "-1, -1, -1", True),
    "setgroups": (116, 159, "0, 0", True),
    "capset": (126, 91, "ctypes.create_string_buffer(b'\\x22\\x05\\x08\\x20' + bytes(4)), b'\\xff' * 24", False),
    "PR_SET_DUMPABLE": (157, 167, "4, 1, 0, 0, 0", True),
    "PR_SET_PDEATHSIG": (157, 167, "1, 0, 0, 0, 0", True),
    "PR_SET_PTRACER": (157, 167, "0x59616d61, -1, 0, 0, 0", False),
    "PR_SET_KEEPCAPS": (157, 167, "8, 1, 0, 0, 0", True),
    "PR_SET_SECCOMP": (157, 167, "22, 1, 0, 0, 0", False),
    "seccomp": (317, 277, "2, 0, ctypes.create_string_buffer(4)", False),
    "landlock_create_ruleset": (444, 444, "0, 0, 1", False),
    "bpf": (321, 280, "0, 0, 0", False),
    "perf_event_open": (298, 241, "0, 0, -1, -1, 0", False),
    "personality": (135, 92, "0x0040000", True),
    "reboot": (169, 142, "0, 0, 0, 0", False),
    "sethostname": (170, 161, "b'x', 1", False),
    "clock_settime": (227, 112, "0, 0", False),
    "adjtimex": (159, 171, "0", False),
    "init_module": (175, 105, "0, 0, 0", False),
    "kexec_load": (246, 104, "0, 0, 0, 0", False),
    "syslog": (103, 116, "10, 0, 0", False),
    "iopl": (172, 5000, "3", False),
    "ioperm": (173, 5000, "0, 1, 1", False),
    "modify_ldt": (154, 5000, "0, 0, 0", False),
    "arch_prctl": (158, 5000, "0x1003, ctypes.create_string_buffer(8)", False),
    "lookup_dcookie": (212, 18, "0, 0, 0", False),
    "vmsplice": (278, 75, "1, 0, 0, 0", False),
    "splice": (275, 76, "0, 0, 1, 0, 1, 0", False),
    "tee": (276, 77, "0, 1, 1, 0", False),
    "the other numbering of x86 (fork)": (0x40000039, 5000, "", False),
    "a number that no kernel has": (100_000, 100_000, "", False),
}

PROGRAMS = [
    Hostile(f"call: {name}", f"call({x86_64}, {aarch64}, {arguments})\nprint('ESCAPED')", control=control)
    for name, (x86_64, aarch64, arguments, control) in CALLS.items()
]

# every call in one program, which is one process in place of a hundred
ALL = Hostile(
    "call: each of them",
    "".join(
        f"try:\n    call({x}, {a}, {given})\n    print('ESCAPED', {name!r})\nexcept OSError: pass\n"
        for name, (x, a, given, _) in CALLS.items()
    )
    + "print('done')\nraise OSError('refused')",
)
