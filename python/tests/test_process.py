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
