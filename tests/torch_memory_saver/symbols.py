#!/usr/bin/env python3
"""Checks that a library exports exactly torch_memory_saver's C interface, and stays loaded after dlclose.

    symbols.py torch|preload <library> <nm> <readelf>
"""
import re
import subprocess
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


def said(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def read(path, nm, readelf):
    listed = (line.split()[-2:] for line in said(nm, "--dynamic", "--defined-only", path).splitlines())
    exported = {name.partition("@")[0] for kind, name in listed if kind in "ATDBRWVui"}
    dynamic = said(readelf, "--dynamic", "--wide", path)
    return exported, re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic), re.search(r"\(FLAGS_1\).*NODELETE", dynamic)


def main():
    mode, path, *tools = sys.argv[1:]
    exported, needed, stays = read(path, *tools)
    wanted = set(BOTH + OWN[mode])
    failures = [f"lacks {name}" for name in sorted(wanted - exported)]
    failures += [f"shows {name}" for name in sorted(exported - wanted)]
    failures += [f"needs {name}" for name in needed if name.startswith(NOT_NEEDED)]
    failures += [] if stays else ["is unloaded by dlclose: linked without -z nodelete"]
    print(f"{Path(path).name}: " + ("; ".join(failures) or f"{len(wanted)} symbols, needs {', '.join(needed)}"))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
