"""Programs that read, change, create or hold files outside of their scratch folder, or try to keep some in it."""

from tests.tools.hostile import Hostile

READ = "print('ESCAPED' if {} else '')"
DONE = "\nprint('ESCAPED')"


def _reads(name: str, expression: str, control: bool = True, ends: tuple[str, ...] = ("raised",)) -> Hostile:
    source = f"{READ_BACK}\ntext = {expression}\n" + READ.format("text")
    return Hostile(f"read: {name}", source, ends=ends, control=control)


def _writes(name: str, source: str, control: bool = True) -> Hostile:
    return Hostile(f"write: {name}", source + DONE, control=control)


READ_BACK = """
def read_back(name):
    os.write(1, b'printed')
    end = os.open(name, os.O_RDONLY | os.O_NONBLOCK)
    return os.read(end, 100)
"""

READS = [
    _reads("a secret", "open('@secret@').read()"),
    _reads("a secret through mmap", "__import__('mmap').mmap(os.open('@secret@', os.O_RDONLY), 0, prot=1)[:]"),
    _reads("a secret through a symbolic link", "(os.symlink('@secret@', 'link'), open('link').read())[1]", False),
    _reads("a secret through a hard link", "(os.link('@secret@', 'link'), open('link').read())[1]", False),
    _reads("a secret through a rename", "(os.rename('@secret@', 'mine'), open('mine').read())[1]", False),
    _reads("a secret beside the scratch folder", "open(os.getcwd() + '/..' * 9 + '@secret@').read()"),
    _reads("a secret through O_PATH", "open(f\"/proc/self/fd/{os.open('@secret@', os.O_PATH)}\").read()"),
    _reads("a secret through openat2", "call(437, 437, -100, b'@secret@', ctypes.create_string_buffer(24), 24) + 1"),
    _reads(
        "a secret through a folder's descriptor",
        "os.open('secret', os.O_RDONLY, dir_fd=os.open('@folder@/..', os.O_PATH))",
    ),
    _reads("the standard library's parent", "os.listdir(os.path.dirname(os.path.dirname(os.__file__)))"),
    _reads("the project", "open('@source@').read()"),
    _reads("an installed package", "open('@package@').read()"),
    _reads("an import from elsewhere", "(sys.path.insert(0, '@folder@'), __import__('planted'))", True),
    _reads("a shared library from elsewhere", "ctypes.CDLL('@folder@/planted.so')", False),
    _reads("/etc/passwd", "open('/etc/passwd').read()"),
    _reads("/etc/shadow", "open('/etc/shadow').read()", False),
    _reads("/etc/hosts", "open('/etc/hosts').read()", False),
    _reads("the root folder", "[n for n in os.listdir('/') if n in ('etc', 'home', 'tmp')]"),
    _reads("the folder of temporary files", "os.listdir('/tmp')"),
    _reads("home folders", "[open(os.path.expanduser('~root/.profile')).read()]", False),
    _reads("environment of the trainer", "open('/proc/@trainer@/environ', 'rb').read() + b'x'", False),
    _reads("environment of the supervisor", "open(f'/proc/{os.getppid()}/environ', 'rb').read() + b'x'", False),
    _reads("memory of the trainer", "os.open('/proc/@trainer@/mem', os.O_RDWR)", False),
    _reads("memory of the supervisor", "os.open(f'/proc/{os.getppid()}/mem', os.O_RDONLY)", False),
    _reads("memory of its own process", "os.open('/proc/self/mem', os.O_RDWR)", False),
    _reads("open files of the supervisor", "os.listdir(f'/proc/{os.getppid()}/fd')"),
    _reads("command lines of processes", "open('/proc/@decoy@/cmdline').read() + 'x'"),
    _reads("memory through a call", "(libc.process_vm_readv(@decoy@, 0, 0, 0, 0, 0) == 0) or os.open('/x', 0)"),
    _reads("which processes there are", "os.listdir('/proc')"),
    _reads("settings of the kernel", "open('/proc/sys/kernel/hostname').read()"),
    *(
        _reads(f"what it has printed, by {name}", f"read_back('{name}')", False)
        for name in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "/dev/stderr", "/proc/thread-self/fd/1")
    ),
    _reads("what it has printed, by its descriptor", "os.write(1, b'x') and os.read(1, 1)", False, ("ok",)),
    _reads("what it has printed, by a copy of its end", "os.write(1, b'x') and os.read(os.dup(1), 1)", False, ("ok",)),
    _reads("devices in /sys", "os.listdir('/sys')"),
    _reads("a disk", "os.listdir('/dev/disk')", False),
    _reads("the terminal", "os.open('/dev/tty', os.O_RDONLY)", False),
    _reads("a terminal by its name", "os.open('@terminal@', os.O_RDONLY | os.O_NOCTTY)"),
    _reads("a terminal for ioctl alone", "os.open('@terminal@', 3 | os.O_NOCTTY)"),
    _reads("the kernel's log", "os.open('/dev/kmsg', os.O_RDONLY)", False),
]

WRITES = [
    _writes("over a file", "open('@file@', 'w').write('x')"),
    _writes("at a file's end", "open('@file@', 'a').write('x')"),
    _writes("empty a file opened to be read", "os.open('@file@', os.O_RDONLY | os.O_TRUNC)"),
    _writes("empty a file opened for ioctl alone", "os.open('@file@', 3 | os.O_TRUNC)"),
    _writes("empty a file that is read through openat", "call(257, 56, -100, b'@file@', 0o1000, 0)"),
    _writes("a new file", "open('@folder@/new', 'w')"),
    _writes("a file without a name", "os.open('@folder@', os.O_TMPFILE | os.O_RDWR, 0o600)"),
    _writes("a folder", "os.mkdir('@folder@/new')"),
    _writes("a symbolic link", "os.symlink('x', '@folder@/new')"),
    _writes("a hard link", "os.link('@file@', '@folder@/new')"),
    _writes("a hard link out of the scratch folder", "open('mine', 'w'); os.link('mine', '@folder@/new')", False),
    _writes("a rename out of the scratch folder", "open('mine', 'w'); os.rename('mine', '@folder@/new')", False),
    _writes("a rename", "os.rename('@file@', '@file@2')"),
    _writes("remove", "os.remove('@file@')"),
    _writes("remove a folder", "os.rmdir('@folder@/empty')"),
    _writes("a named pipe", "os.mkfifo('@folder@/new')"),
    _writes("a device", "os.mknod('new', 0o20600, os.makedev(1, 1))", False),
    _writes("its modes", "os.chmod('@file@', 0o600)"),
    _writes("its modes through a descriptor", "os.fchmod(os.open('@file@', os.O_PATH), 0o600)", False),
    _writes("its owner", "os.chown('@file@', os.getuid(), os.getgid())"),
    _writes("its times", "os.utime('@file@', (1, 1))"),
    _writes("its attributes", "os.setxattr('@file@', 'user.x', b'1')", False),
    _writes(
        "its flags", "import fcntl; fcntl.ioctl(os.open('@file@', os.O_RDONLY), 0x40086602, b'\\x80' + bytes(7))", False
    ),
    _writes(
        "its flags by the standard library",
        "import fcntl; fcntl.ioctl(os.open(os.__file__, os.O_RDONLY), 0x40086602, bytes(8))",
        False,
    ),
    _writes("its lock", "import fcntl; fcntl.flock(os.open('@file@', os.O_RDONLY), fcntl.LOCK_EX)"),
    _writes(
        "a lock on the standard library", "import fcntl; fcntl.flock(open(os.__file__), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    ),
    _writes("a lock by fcntl", "import fcntl; fcntl.lockf(open(os.__file__), fcntl.LOCK_SH)"),
    _writes("a lease", "import fcntl; fcntl.fcntl(open(os.__file__), fcntl.F_SETLEASE, fcntl.F_RDLCK)", False),
    _writes("a watch of a folder", "import fcntl; fcntl.fcntl(os.open('.', os.O_RDONLY), fcntl.F_NOTIFY, 2)"),
    _writes("in the standard library", "open(os.path.dirname(os.__file__) + '/planted.py', 'w')", False),
    _writes("in the root folder", "open('/planted', 'w')", False),
    _writes("beside the scratch folder", "open('../planted', 'w')", False),
    _writes("memory that outlives it", "open('/dev/shm/mmrl-planted', 'w')", False),
    _writes("to the open files of the supervisor", "open(f'/proc/{os.getppid()}/fd/1', 'w').write('x')", False),
    _writes("its own limits upon lack of memory", "open('/proc/self/oom_score_adj', 'w').write('0')", False),
    _writes("a map of users", "open('/proc/self/uid_map', 'w').write('0 0 1')", False),
    _writes("copies by the kernel", "call(326, 285, os.open(os.__file__, 0), 0, os.open('@file@', 1), 0, 9, 0)", False),
    _writes("to a device", "open('/dev/null', 'w')"),
]

# what is in the scratch folder at a program's end has to be gone, and may not have grown
SCRATCH = [
    Hostile(
        "scratch: nested folders",
        "for _ in range(3000):\n    os.mkdir('d'); os.chdir('d')",
        ("raised", "out_of_disk", "killed", "ok"),
    ),
    Hostile("scratch: nested and without modes", "os.mkdir('a'); os.mkdir('a/b', 0)" + DONE),
    Hostile("scratch: a folder without modes", "os.mkdir('a', 0)" + DONE, control=True),
    Hostile("scratch: a folder without modes by mkdirat", "call(258, 34, -100, b'a', 0o077)" + DONE, control=True),
    Hostile("scratch: a mask of modes", "os.umask(0o777)" + DONE, control=True),
    Hostile("scratch: modes taken away", "os.mkdir('a'); os.chmod('a', 0)" + DONE, control=True),
    Hostile(
        "scratch: an immutable file",
        "import fcntl; fcntl.ioctl(os.open('f', 0o102), 0x40086602, b'\\x10' + bytes(7))" + DONE,
    ),
    Hostile("scratch: a large file", "open('f', 'wb').write(b'x' * (5 << 20))" + DONE, control=True),
    Hostile("scratch: a large file without content", "open('f', 'wb').truncate(5 << 20)" + DONE, control=True),
    Hostile(
        "scratch: room taken in advance", "os.posix_fallocate(os.open('f', 0o102), 0, 5 << 20)" + DONE, control=True
    ),
    Hostile(
        "scratch: files of 1 MiB",
        "for i in range(300):\n    open(f'f{i}', 'wb').write(b'x' * (1 << 20))" + DONE,
        ("raised", "out_of_disk"),
    ),
    Hostile(
        "scratch: files of 1 MiB in folders",
        "for i in range(300):\n    os.makedirs(f'{i}/a/b'); open(f'{i}/a/b/f', 'wb').write(b'x' * (1 << 20))" + DONE,
        ("raised", "out_of_disk"),
    ),
    Hostile(
        "scratch: empty files",
        "for i in range(5000):\n    open(f'f{i}', 'w').close()\ntime.sleep(2)" + DONE,
        ("raised", "out_of_disk"),
    ),
    Hostile("scratch: links to links", "os.symlink('b', 'a'); os.symlink('a', 'b'); open('a')" + DONE),
    Hostile("scratch: long names", "open('n' * 255, 'w'); open('\\udcff', 'w'); open('n' * 256, 'w')" + DONE),
    Hostile("scratch: a folder that cannot be seen", "os.mkdir('..a'); os.mkdir('.b'); raise OSError"),
    Hostile("scratch: the folder itself is removed", "os.rmdir(os.getcwd())" + DONE),
    Hostile("scratch: the folder is moved", "os.rename(os.getcwd(), os.getcwd() + '2')" + DONE),
]

PROGRAMS = [*READS, *WRITES, *SCRATCH]
