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

from memsaver._arguments import Under as Under
from memsaver._library import library_path as library_path
from memsaver._memory import Buffer as Buffer, View as View
from memsaver._residency import Arrival as Arrival, Elastic as Elastic, Gate as Gate, Use as Use
from memsaver._saver import Arena as Arena, Hook as Hook, Region as Region, Saver as Saver
from memsaver._saver import gpu_available as gpu_available, gpu_count as gpu_count, version as version
from memsaver._share import Attached as Attached, Lending as Lending, Share as Share
from memsaver.errors import BackupDamaged as BackupDamaged, DeviceLost as DeviceLost, DriverError as DriverError
from memsaver.errors import Error as Error, HookFailed as HookFailed, InternalError as InternalError, Misuse as Misuse
from memsaver.errors import NotIdle as NotIdle, OutOfAddresses as OutOfAddresses, OutOfHostMemory as OutOfHostMemory
from memsaver.errors import OutOfMemory as OutOfMemory, PublicationDamaged as PublicationDamaged
from memsaver.errors import SourceChanged as SourceChanged, Unavailable as Unavailable
from memsaver.events import Event as Event, EventKind as EventKind, HookEvent as HookEvent, Moment as Moment
from memsaver.events import NoRoom as NoRoom
from memsaver.policies import Discard as Discard, FileBackup as FileBackup, FileSource as FileSource
from memsaver.policies import HostBackup as HostBackup, Policy as Policy, Zero as Zero
from memsaver.reports import ArenaUsage as ArenaUsage, DeviceUsage as DeviceUsage, Info as Info, Member as Member
from memsaver.reports import Reclaimed as Reclaimed, Report as Report, Residency as Residency, Totals as Totals
from memsaver.reports import Usage as Usage, format_bytes as format_bytes
