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

from memsaver._library import library_path
from memsaver._memory import Buffer, View
from memsaver._residency import Arrival, Elastic, Gate, Use
from memsaver._saver import Arena, Hook, Region, Saver, Under, gpu_available, gpu_count, version
from memsaver._share import Attached, Lending, Share
from memsaver.errors import (
    BackupDamaged,
    DeviceLost,
    DriverError,
    Error,
    HookFailed,
    InternalError,
    Misuse,
    NotIdle,
    OutOfAddresses,
    OutOfHostMemory,
    OutOfMemory,
    PublicationDamaged,
    SourceChanged,
    Unavailable,
)
from memsaver.events import Event, EventKind, HookEvent, Moment, NoRoom
from memsaver.policies import Discard, FileBackup, FileSource, HostBackup, Policy, Zero
from memsaver.reports import (
    ArenaUsage,
    DeviceUsage,
    Info,
    Member,
    Reclaimed,
    Report,
    Residency,
    Totals,
    Usage,
    format_bytes,
)

__all__ = [
    "Arena",
    "ArenaUsage",
    "Arrival",
    "Attached",
    "BackupDamaged",
    "Buffer",
    "DeviceLost",
    "DeviceUsage",
    "Discard",
    "DriverError",
    "Elastic",
    "Error",
    "Event",
    "EventKind",
    "FileBackup",
    "FileSource",
    "Gate",
    "Hook",
    "HookEvent",
    "HookFailed",
    "HostBackup",
    "Info",
    "InternalError",
    "Lending",
    "Member",
    "Misuse",
    "Moment",
    "NoRoom",
    "NotIdle",
    "OutOfAddresses",
    "OutOfHostMemory",
    "OutOfMemory",
    "Policy",
    "PublicationDamaged",
    "Reclaimed",
    "Region",
    "Report",
    "Residency",
    "Saver",
    "Share",
    "SourceChanged",
    "Totals",
    "Unavailable",
    "Under",
    "Usage",
    "Use",
    "View",
    "Zero",
    "format_bytes",
    "gpu_available",
    "gpu_count",
    "library_path",
    "version",
]
