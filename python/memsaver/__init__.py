"""memsaver: release GPU memory to the device and get it back later at the same addresses.

    saver = memsaver.Saver()  # GPU 0, or host memory if there is none
    saver.arena("weights", memsaver.HostBackup(refresh="once"))
    with saver.region("weights"):
        weights = saver.buffer((1024, 1024), "<f4")
    saver.pause("weights")  # releases the pages to the device and saves the bytes in host memory
    saver.resume("weights")  # restores the bytes at the same addresses

Based on ctypes over the C interface of libmemsaver, which is loaded on first use; the environment variable
MEMSAVER_LIBRARY names the file. `memsaver.torch` allocates PyTorch tensors in a tag's memory.
"""

from memsaver._library import library_path as library_path
from memsaver._memory import Buffer as Buffer, View as View
from memsaver._residency import *
from memsaver._saver import Arena as Arena, Hook as Hook, Region as Region, Saver as Saver, Under as Under
from memsaver._saver import gpu_available as gpu_available, gpu_count as gpu_count, version as version
from memsaver._share import *
from memsaver.errors import *
from memsaver.events import *
from memsaver.policies import *
from memsaver.reports import *
