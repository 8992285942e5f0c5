#!/usr/bin/env python3
"""Checks that a library exports exactly torch_memory_saver's C interface, and stays loaded after dlclose.

    symbols.py torch|preload <library>

Reads the file's table of dynamic symbols (64-bit ELF): the library is not loaded, and nothing need be installed.
"""
import struct
import sys
from pathlib import Path

BOTH = """
tms_set_interesting_region tms_get_interesting_region tms_set_current_tag tms_get_current_tag
tms_set_enable_cpu_backup tms_get_enable_cpu_backup tms_set_cpu_backup_backend tms_get_cpu_backup_backend
tms_set_enable_disk_backup tms_get_enable_disk_backup tms_set_disk_backup_dir
tms_set_retain_cpu_backup tms_get_retain_cpu_backup set_memory_margin_bytes
tms_pause tms_resume tms_get_cpu_backup_pointer
cudaHostGetFlags cudaGetLastError
""".split()
OWN = {
    "torch": ["tms_torch_malloc", "tms_torch_free"],
    "preload": """cudaMalloc cudaFree dlsym cuMemAlloc_v2 cuMemFree_v2 cuMemFreeAsync cuMemFreeAsync_ptsz
                  cuGetProcAddress cuGetProcAddress_v2""".split(),
}
# Looked up at run time, never linked, so that the libraries load on a machine without a GPU and with any runtime.
NOT_NEEDED = ("libcuda.so", "libcudart.so")


def sections(data):
    """Returns {type: [(offset, size, index of the linked section, size of an entry)]}, and all in order."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise SystemExit("no 64-bit little-endian ELF file")
    start = struct.unpack_from("<Q", data, 40)[0]
    size, count = struct.unpack_from("<HH", data, 58)
    found = []
    for i in range(count):
        _, kind, _, _, offset, length, link, _, _, entry = struct.unpack_from("<IIQQQQIIQQ", data, start + i * size)
        found.append((kind, offset, length, link, entry))
    return found


def text(data, offset):
    return data[offset : data.index(b"\0", offset)].decode()


NO_DELETE = (0x6FFFFFFB, 8)  # DT_FLAGS_1, DF_1_NODELETE


def read(path):
    data = Path(path).read_bytes()
    table = sections(data)
    exported, needed, stays = set(), [], False
    for kind, offset, length, link, entry in table:
        if kind == 11:  # SHT_DYNSYM
            names = table[link][1]
            for at in range(offset, offset + length, entry):
                name, info, _, section = struct.unpack_from("<IBBH", data, at)
                if section != 0 and info >> 4 in (1, 2, 10):  # defined; global, weak or unique
                    exported.add(text(data, names + name))
        if kind == 6:  # SHT_DYNAMIC
            names = table[link][1]
            for at in range(offset, offset + length, entry):
                tag, value = struct.unpack_from("<QQ", data, at)
                if tag == 1:
                    needed.append(text(data, names + value))
                stays = stays or (tag == NO_DELETE[0] and value & NO_DELETE[1] != 0)
    return exported, needed, stays


def main():
    mode, path = sys.argv[1:]
    exported, needed, stays = read(path)
    wanted = set(BOTH + OWN[mode])
    failures = [f"lacks {name}" for name in sorted(wanted - exported)]
    failures += [f"shows {name}" for name in sorted(exported - wanted)]
    failures += [f"needs {name}" for name in needed if name.startswith(NOT_NEEDED)]
    failures += [] if stays else ["is unloaded by dlclose: linked without -z nodelete"]
    print(f"{Path(path).name}: " + ("; ".join(failures) or f"{len(wanted)} symbols, needs {', '.join(needed)}"))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
