"""Forked children, and the end of the process."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import python


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
    refused = 0
    for use in (saver.pause, saver.region("a").__enter__, saver.usage, saver.close, arena.usage, buffer.free):
        try:
            use()
        except memsaver.Misuse:
            refused += 1
    del use
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
    assert done.stdout == "refused 6\nand the parent goes on\n"


#: Programs that end while threads are at work, which must not end the process with an error.
ENDING = {
    "savers in use": """
saver = Saver("host", host_capacity=64 << 20, on_event=lambda event: None)
buffer = saver.buffer(100, tag="a")
region = saver.region("a")
region.__enter__()
for moment in Moment:
    saver.add_hook(moment, lambda event: time.sleep(0.003))
work = lambda: [(saver.pause(), saver.resume(), saver.free(saver.allocate(100, "b"))) for _ in iter(int, 1)]
threading.Thread(target=work, daemon=True).start()
time.sleep(0.1)
""",
    "copies that report": """
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
assert seen.wait(60)
""",
    "a lending": """
where = dict(folder=FOLDER, answer_within=60)
where |= dict(device="host", host_machine=f"py-{os.getpid()}-exit", host_capacity=64 << 20)
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
assert began.wait(60)
""",
}


@pytest.mark.parametrize("what", ENDING)
def test_the_process_ends(what: str, tmp_path: Path) -> None:
    imports = "import os, threading, time; from memsaver import HostBackup, Moment, Saver, Share"
    done = python(f"{imports}; FOLDER = {str(tmp_path / 'share')!r}\n{ENDING[what]}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
