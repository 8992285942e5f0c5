"""Forked children, and the end of the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import memsaver


def python(program: str) -> subprocess.CompletedProcess[str]:
    """Runs code in a separate process, because pytest has threads, and forking with threads is unsafe."""
    path = os.pathsep.join(filter(None, [str(Path(memsaver.__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "MEMSAVER_LIBRARY": memsaver.library_path()}
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)


def test_a_forked_child_is_refused() -> None:
    done = python("""
import gc, os
import memsaver
saver = memsaver.Saver("host", host_capacity=64 << 20)
arena = saver.arena("a", memsaver.HostBackup())
buffer = arena.buffer(100)
hook = saver.add_hook(memsaver.Moment.BEFORE_PAUSE, print)
child = os.fork()
if child == 0:
    uses = [
        lambda: saver.allocate(1, "a"), lambda: arena.allocate(1), lambda: saver.pause(), lambda: saver.resume(),
        lambda: saver.region("a").__enter__(), lambda: saver.info(), lambda: saver.usage(), lambda: saver.trim(),
        lambda: saver.close(), lambda: saver.drop(None), lambda: buffer.free(),
    ]
    refused = 0
    for use in uses:
        try:
            use()
        except memsaver.Misuse:
            refused += 1
    del uses, use
    hook.remove()
    del saver, arena, buffer, hook
    gc.collect()
    os._exit(refused)
print("refused", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
hook.remove()
saver.pause()
saver.resume()
print("and the parent goes on")
""")
    assert done.stderr == ""
    assert done.stdout == "refused 11\nand the parent goes on\n"


def test_a_forked_child_has_a_saver_of_its_own() -> None:
    """Whatever the parent's threads were in the middle of."""
    done = python("""
import os, signal, threading
import memsaver, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12: a fork beside threads is what is tried
saver = memsaver.Saver("host", host_capacity=64 << 20)
stop = threading.Event()
def use():
    while not stop.is_set():
        saver.free(saver.allocate(100, "a"))
        saver.drop("a")
other = threading.Thread(target=use)
other.start()
good = 0
for _ in range(30):
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        own = memsaver.Saver("host", host_capacity=16 << 20)
        own.arena("a", memsaver.HostBackup())
        own.allocate(100, "a")
        own.pause()
        own.resume()
        own.close()
        os._exit(7)
    good += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
stop.set()
other.join()
print("good", good)
""")
    assert (done.stdout, done.stderr) == ("good 30\n", "")


def test_limits_are_named() -> None:
    """No signal is sent, and the tag stays active."""
    done = python("""
import resource
import memsaver
saver = memsaver.Saver("host", host_capacity=64 << 20)
for name, limit in (("RLIMIT_FSIZE", resource.RLIMIT_FSIZE), ("RLIMIT_NOFILE", resource.RLIMIT_NOFILE)):
    buffer = saver.arena(name, memsaver.FileBackup("/tmp")).buffer(4 << 20)
    soft, hard = resource.getrlimit(limit)
    resource.setrlimit(limit, (1, hard))
    try:
        saver.pause(name)
    except memsaver.DriverError as error:
        print(name in str(error), error.tag == name)
    finally:
        resource.setrlimit(limit, (soft, hard))
    assert not saver.is_paused(buffer.pointer)
    print(saver.pause(name).saved_bytes == 4 << 20)
""")
    assert (done.stdout, done.stderr) == ("True True\nTrue\n" * 2, "")


def test_a_descriptor_that_the_program_closed() -> None:
    """As daemons do: the program's file that has the number now is left alone."""
    done = python("""
import os, tempfile
import memsaver
saver = memsaver.Saver("host", host_capacity=64 << 20)
buffer = saver.arena("a", memsaver.FileBackup("/tmp")).buffer(1 << 20)
next = os.open("/dev/null", os.O_RDONLY)
os.close(next)
saver.pause("a")
os.closerange(next, next + 16)
with tempfile.TemporaryFile() as mine:
    mine.write(b"mine")
    mine.flush()
    for number in range(next, next + 16):
        if number != mine.fileno():
            os.dup2(mine.fileno(), number)
    try:
        saver.resume("a")
    except memsaver.DriverError as error:
        print(error.tag)
    try:
        saver.close()
    except memsaver.DriverError:
        print("the file cannot be closed")
    print(os.pread(mine.fileno(), 8, 0))
""")
    assert (done.stdout, done.stderr) == ("a\nthe file cannot be closed\nb'mine'\n", "")


def test_relative_paths_mean_what_they_meant(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"weights")
    done = python(f"""
import os
import memsaver
os.chdir({str(tmp_path)!r})
saver = memsaver.Saver("host", host_capacity=64 << 20)
buffer = saver.arena("a", memsaver.FileSource()).buffer(7)
saver.load(buffer.pointer, 7, "model")
os.chdir("/")
saver.pause()
saver.resume()
print(bytes(buffer.memory()))
""")
    assert (done.stdout, done.stderr) == ("b'weights'\n", "")


def test_the_process_ends_with_savers_in_use() -> None:
    done = python("""
import threading, time
import memsaver
saver = memsaver.Saver("host", host_capacity=64 << 20, on_event=print)
saver.add_hook(memsaver.Moment.BEFORE_PAUSE, lambda event: None)
buffer = saver.buffer(100, tag="a")
region = saver.region("a")
region.__enter__()
threading.Thread(target=lambda: [saver.free(saver.allocate(100, "b")) for _ in iter(int, 1)], daemon=True).start()
time.sleep(0.05)
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_process_ends_while_threads_of_the_library_call_back(tmp_path: Path) -> None:
    """They would end it with an error, had the interpreter ended before them."""
    done = python("""
import threading, time
from memsaver import HostBackup, Saver
main, seen = threading.get_native_id(), threading.Event()
def slow(event):
    if threading.get_native_id() != main:
        seen.set()
        time.sleep(0.02)
saver = Saver("host", on_event=slow)
saver.arena("a", HostBackup(storage="pageable"))
saver.allocate(128 << 20, "a")
saver.pause("a")
seen.clear()
arrival = saver.resume_async("a")
print(seen.wait(60))
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
    done = python(f"""
import os, threading, time
from memsaver import HostBackup, Moment, Saver, Share
where = dict(folder={str(tmp_path / "share")!r}, answer_within=60)
where |= dict(device="host", host_machine=f"py-{{os.getpid()}}-exit", host_capacity=64 << 20)
one, two = Share(name="one", **where), Share(name="two", **where)
began = threading.Event()
saver, other = Saver(share=one), Saver(share=two)
def slow(event):
    began.set()
    for _ in range(300):
        time.sleep(0.001)
saver.add_hook(Moment.BEFORE_PAUSE, slow)
saver.arena("a", HostBackup(), evictable=True)
saver.allocate(40 << 20, "a")
one.lend(saver)
threading.Thread(target=lambda: other.allocate(40 << 20, "b"), daemon=True).start()
print(began.wait(60))
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_the_process_ends_while_a_daemon_thread_is_in_a_hook() -> None:
    done = python("""
import threading, time
from memsaver import Moment, Saver
saver = Saver("host", host_capacity=64 << 20)
saver.allocate(100, "a")
for moment in Moment:
    saver.add_hook(moment, lambda event: time.sleep(0.003))
threading.Thread(target=lambda: [(saver.pause(), saver.resume()) for _ in iter(int, 1)], daemon=True).start()
time.sleep(0.1)
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_without_a_gpu() -> None:
    """Runs in a process in which no test has loaded a stub of the driver."""
    done = python("""
import memsaver
if not memsaver.gpu_available():
    try:
        memsaver.Saver(0)
    except memsaver.Unavailable as error:
        print(error)
    assert not memsaver.Saver(host_capacity=8 << 20).info().on_gpu
else:
    assert memsaver.gpu_count() > 0
    assert memsaver.Saver().info().on_gpu
""")
    assert (done.returncode, done.stderr) == (0, "")
