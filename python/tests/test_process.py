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
