#!/usr/bin/env python3
"""Checks the features in torch_memory_saver's README on a GPU, through its own Python package.

    checks.py torch|preload [name...]     run_all.py describes how, and the environment

Prints a line for each check: "ok <name>", "skipped <name>: why" or "FAILED <name>: why". Exits with 1 if one failed.
"""
import ctypes
import gc
import os
import sys
import tempfile
import threading
import traceback

import torch
from torch_memory_saver import torch_memory_saver as tms

MIB = 1 << 20
MODE = sys.argv[1] if len(sys.argv) > 1 else "preload"
CHECKS = {}


class Skipped(Exception):
    pass


def check(function):
    CHECKS[function.__name__] = function
    return function


def expect(held, what):
    if not held:
        raise AssertionError(what)


def free_bytes(device=None):
    torch.cuda.synchronize()
    return torch.cuda.mem_get_info(device)[0]


def library():
    tms._ensure_initialized()
    return tms._impl._binary_wrapper.cdll


def tensor(mib, value, device="cuda"):
    return torch.full((mib * MIB,), value, dtype=torch.uint8, device=device)


def pattern(count, seed):
    """Returns bytes in which no two windows are alike; computed on the host."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count,), dtype=torch.uint8, generator=generator)


PAGE_TABLES = 4  # MiB that the driver may use on every device to address the host memory of a backup


def paused(tag, mib):
    """Pauses a tag, and expects `mib` MiB to be released."""
    before = free_bytes()
    tms.pause(tag)
    back = (free_bytes() - before) / MIB
    expect(back >= mib - PAGE_TABLES, f"{back:.0f} MiB were released, not {mib}")


def resident_mib():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB


@check
def regions():
    with tms.region(tag="regions"):
        x = tensor(256, 7)
    address = x.data_ptr()
    for value in range(3):
        paused("regions", 256)
        tms.resume("regions")
        expect(x.data_ptr() == address, "the address changed")
        x.fill_(value)
        expect(bool((x == value).all()), "the memory is not writable")


@check
def plain_memory_stays():
    y = tensor(64, 3)
    with tms.region(tag="plain_memory_stays"):
        x = tensor(64, 4)
    paused("plain_memory_stays", 64)
    expect(bool((y == 3).all()), "memory outside the region changed")
    tms.resume("plain_memory_stays")
    x.fill_(1)


@check
def tags():
    with tms.region(tag="tags_a"):
        a = tensor(128, 1)
    with tms.region(tag="tags_b"):
        b = tensor(128, 2)
    paused("tags_a", 128)
    expect(bool((b == 2).all()), "the other tag's memory changed")
    paused("tags_b", 128)
    tms.resume()  # all tags
    a.fill_(3)
    b.fill_(4)
    expect(bool((a == 3).all() and (b == 4).all()), "not writable")


@check
def twice_and_unknown():
    with tms.region(tag="twice"):
        x = tensor(64, 1)
    tms.pause("twice")
    tms.pause("twice")
    tms.resume("twice")
    tms.resume("twice")
    tms.pause("nobody")
    tms.resume("nobody")
    x.fill_(2)
    expect(bool((x == 2).all()), "not writable")


def cpu_backup(backend):
    bytes_odd = 96 * MIB + 6912
    tag = f"cpu_backup_{backend}"
    expected = pattern(bytes_odd, 1)
    with tms.region(tag=tag, enable_cpu_backup=True, cpu_backup_backend=backend):
        x = torch.empty(bytes_odd, dtype=torch.uint8, device="cuda")
        y = torch.arange(100, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        x.copy_(expected, non_blocking=True)  # only the pause waits for it
    for _ in range(3):
        paused(tag, 96)
        kept = tms.get_cpu_backup(y)
        expect(kept is not None and torch.equal(kept, torch.arange(100)), "the backup does not hold the bytes")
        tms.resume(tag)
        with torch.cuda.stream(side):
            expect(torch.equal(x.cpu(), expected), "the bytes changed")
    expect(torch.equal(y.cpu(), torch.arange(100)), "the bytes changed")


@check
def cpu_backup_pinned():
    cpu_backup("pinned")


@check
def cpu_backup_mmap():
    cpu_backup("mmap")


@check
def retained_backup():
    tms.retain_cpu_backup = True
    try:
        with tms.region(tag="retained", enable_cpu_backup=True):
            x = tensor(64, 0)
        addresses = set()
        for value in range(1, 4):
            x.fill_(value)
            tms.pause("retained")
            kept = tms.get_cpu_backup(x, zero_copy=True)
            addresses.add(kept.data_ptr())
            expect(bool((kept == value).all()), "the backup is stale")
            tms.resume("retained")
            expect(bool((x == value).all()), "the bytes changed")
        expect(len(addresses) == 1, "the backup moved")
    finally:
        tms.retain_cpu_backup = False


@check
def backup_given_back():
    with tms.region(tag="given_back", enable_cpu_backup=True):
        x = tensor(1024, 5)
    before = resident_mib()
    tms.pause("given_back")
    during = resident_mib()
    tms.resume("given_back")
    after = resident_mib()
    expect(during - before > 900, f"the backup took {during - before:.0f} MiB of 1024")
    expect(after - before < 256, f"{after - before:.0f} MiB of host memory were not freed")
    expect(tms.get_cpu_backup(x) is None, "active memory has a backup")
    expect(bool((x == 5).all()), "the bytes changed")


@check
def disk_backup():
    with tempfile.TemporaryDirectory(dir=os.environ.get("MEMSAVER_BENCH_DIR", "/var/tmp")) as folder:
        tms.set_disk_backup_dir(folder)
        bytes_odd = 64 * MIB + 4097
        with tms.region(tag="disk", enable_disk_backup=True):
            x = torch.empty(bytes_odd, dtype=torch.uint8, device="cuda")
        for seed in range(3):
            expected = pattern(bytes_odd, seed)
            x.copy_(expected)
            paused("disk", 64)
            expect(tms.get_cpu_backup(x) is None, "host memory keeps bytes of a disk backup")
            tms.resume("disk")
            expect(torch.equal(x.cpu(), expected), "the bytes changed")
        expect(not os.listdir(folder), "the backup file has a name and would outlive the process")


@check
def nested_regions():
    with tms.region(tag="outer"):
        a = tensor(64, 1)
        with tms.region(tag="inner", enable_cpu_backup=True):
            b = tensor(64, 2)
        c = tensor(64, 3)
    paused("inner", 64)
    expect(bool((a == 1).all() and (c == 3).all()), "the outer region's memory changed")
    tms.resume("inner")
    expect(bool((b == 2).all()), "the inner region's bytes changed")
    paused("outer", 128)
    expect(bool((b == 2).all()), "the inner region's memory changed")
    tms.resume("outer")


@check
def disabled_inside():
    if MODE == "torch":  # with any library
        raise Skipped("PyTorch refuses to end the pool of disable() inside the pool of a region")
    library().tms_set_current_tag(b"disabled")
    library().tms_set_interesting_region(True)  # as TMS_INIT_ENABLE leaves it: on, without a pool
    try:
        x = tensor(64, 1)
        with tms.disable():
            y = tensor(64, 2)
            tms.pause("disabled")
            expect(bool((y == 2).all()), "memory of disable() was paused")
            tms.resume("disabled")
            del y
    finally:
        library().tms_set_interesting_region(False)
        library().tms_set_current_tag(b"default")
    x.fill_(2)


@check
def graphs():
    n = 4 << 20
    with tms.region(tag="graph_data", enable_cpu_backup=True):
        x = torch.arange(n, dtype=torch.float32, device="cuda")
        w = torch.full((n,), 2.0, device="cuda")
        out = torch.empty(n, device="cuda")

    def step():
        y = x * w
        out.copy_(torch.relu(y) + 1)

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    if MODE == "preload":  # also the graph's own memory
        with tms.cuda_graph(graph, tag="graph", enable_cpu_backup=True):
            step()
    else:
        with torch.cuda.graph(graph):
            step()
    for value in (1.0, 3.0, 5.0):
        if MODE == "preload":
            tms.pause("graph")
        paused("graph_data", 3 * n * 4 // MIB)
        tms.resume("graph_data")
        if MODE == "preload":
            tms.resume("graph")
        w.fill_(value)
        graph.replay()
        torch.cuda.synchronize()
        expect(torch.equal(out, torch.arange(n, dtype=torch.float32, device="cuda") * value + 1),
               "the replay produced other results")


def train(steps, around_step):
    """Returns the losses of a small training run; `around_step(parameters)` runs between steps."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1024)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = torch.randn(256, 1024, device="cuda")
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (model(data) - data).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
        around_step(list(model.parameters()))
    return losses


@check
def training_and_rollout():
    """A trainer and a generator take turns; the trainer's losses must equal those of an undisturbed training run."""
    expected = train(4, lambda _: None)
    with tms.region(tag="rollout_cache"):
        cache = tensor(512, 0)
    rollout = []

    def generate(parameters):
        nonlocal rollout
        torch.cuda.synchronize()
        weights = [p.detach() for p in parameters]
        before = [w.cpu() for w in weights]
        tms.pause("trainer")
        tms.resume("rollout_cache")
        if not rollout:
            with tms.region(tag="rollout_weights"):
                rollout = [torch.empty_like(w) for w in weights]
        tms.resume("rollout_weights")
        for mine, theirs in zip(rollout, weights):
            mine.copy_(tms.get_cpu_backup(theirs))  # the trainer is paused: its bytes are on the host
        cache.fill_(1)
        expect(all(torch.equal(a.cpu(), b) for a, b in zip(rollout, before)), "the rollout's weights changed")
        tms.pause("rollout_weights")
        tms.pause("rollout_cache")
        tms.resume("trainer")

    tms.pause("rollout_cache")
    with tms.region(tag="trainer", enable_cpu_backup=True):
        losses = train(4, generate)
    expect(losses == expected, f"{losses} is not {expected}")
    tms.resume()


@check
def freed_while_paused():
    with tms.region(tag="freed", enable_cpu_backup=True):
        x = tensor(64, 1)
        y = tensor(64, 2)
    tms.pause("freed")
    del x
    gc.collect()
    torch.cuda.empty_cache()
    with tms.region(tag="freed", enable_cpu_backup=True):
        z = tensor(96, 3)  # active at once
    tms.resume("freed")
    expect(bool((y == 2).all() and (z == 3).all()), "the bytes changed")


@check
def margin():
    tms.memory_margin_bytes = free_bytes() - 512 * MIB
    try:
        with tms.region(tag="margin"):
            try:
                tensor(1024, 1)
                raise AssertionError("the margin was not respected")
            except torch.cuda.OutOfMemoryError:
                pass
    finally:
        tms.memory_margin_bytes = 0
    with tms.region(tag="margin"):
        x = tensor(1024, 1)
    expect(bool((x == 1).all()), "not writable")


@check
def no_room_to_resume():
    with tms.region(tag="no_room", enable_cpu_backup=True):
        x = tensor(2048, 9)
    tms.pause("no_room")
    torch.cuda.empty_cache()
    ballast = torch.empty(free_bytes() - 1024 * MIB, dtype=torch.uint8, device="cuda")
    expect(library().tms_resume(b"no_room") == 2, "expected out of memory (2)")
    expect(tms.get_cpu_backup(x) is not None, "the backup was lost")
    del ballast
    torch.cuda.empty_cache()
    expect(library().tms_resume(b"no_room") == 0, "the resume failed")
    expect(bool((x == 9).all()), "the bytes changed")


@check
def several_threads():
    failures = []

    def work(number):
        try:
            tag = f"thread_{number}"
            for value in range(5):
                with tms.region(tag=tag, enable_cpu_backup=True):
                    x = tensor(32, value)
                torch.cuda.current_stream().synchronize()
                tms.pause(tag)
                tms.resume(tag)
                expect(bool((x == value).all()), "the bytes changed")
        except BaseException:  # noqa: BLE001: reported by the thread that waits
            failures.append(traceback.format_exc())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(not failures, "\n".join(failures))


@check
def several_devices():
    if torch.cuda.device_count() < 2:
        raise Skipped("only one device")
    blocks = []
    for device in range(2):
        with torch.cuda.device(device), tms.region(tag="devices", enable_cpu_backup=True):
            blocks.append(tensor(64, device + 1, f"cuda:{device}"))
    before = [free_bytes(device) for device in range(2)]
    tms.pause("devices")
    back = [(free_bytes(device) - before[device]) / MIB for device in range(2)]
    expect(min(back) >= 64 - PAGE_TABLES, f"{back} MiB were released, not 64 on each")
    expect(torch.cuda.current_device() == 0, "the current device changed")
    tms.resume("devices")
    expect(all(bool((block == i + 1).all()) for i, block in enumerate(blocks)), "the bytes changed")


@check
def emptied_cache_gives_back():
    if MODE == "torch":
        raise Skipped("the package never frees its memory pools")
    before = free_bytes()
    library().tms_set_current_tag(b"emptied")
    library().tms_set_interesting_region(True)
    try:
        runtime = ctypes.CDLL(None)
        pointer = ctypes.c_void_p()
        expect(runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(256 * MIB)) == 0, "cudaMalloc failed")
    finally:
        library().tms_set_interesting_region(False)
        library().tms_set_current_tag(b"default")
    expect(before - free_bytes() >= 256 * MIB, "nothing was allocated")
    expect(runtime.cudaFree(pointer) == 0, "cudaFree failed")
    expect(before - free_bytes() < 64 * MIB, "cudaFree kept the memory")


@check
def everything_from_the_start():
    """With TMS_INIT_ENABLE and TMS_INIT_ENABLE_CPU_BACKUP a whole process can be paused."""
    if os.environ.get("TMS_INIT_ENABLE") != "1":
        raise Skipped("TMS_INIT_ENABLE is not set")
    x = tensor(512, 6)
    paused(None, 512)
    tms.resume()
    expect(bool((x == 6).all()), "the bytes changed")


@check
def wrong_environment():
    """An invalid value is reported, and the process continues."""
    if os.environ.get("TMS_RETAIN_CPU_BACKUP") != "perhaps":
        raise Skipped("the environment is valid")
    expect(not tms.retain_cpu_backup, "the default was not used")


def main():
    failed = 0
    for name in sys.argv[2:] or CHECKS:
        try:
            CHECKS[name]()
            print(f"ok {name}", flush=True)
        except Skipped as why:
            print(f"skipped {name}: {why}", flush=True)
        except Exception:  # noqa: BLE001: one check's failure is reported, the others continue
            failed = 1
            print(f"FAILED {name}: {traceback.format_exc().strip().splitlines()[-1]}", flush=True)
            traceback.print_exc()
        gc.collect()
    return failed


if __name__ == "__main__":
    sys.exit(main())
