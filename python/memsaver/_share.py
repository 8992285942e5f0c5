"""Several processes on one device: a share, what it lends, and what it publishes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from memsaver._abi import text
from memsaver._arguments import device_of
from memsaver._callbacks import Handle, Scope, call, told
from memsaver._memory import DType, Shape, View
from memsaver.errors import Misuse
from memsaver.reports import Member, filled

if TYPE_CHECKING:
    from memsaver._saver import Saver


class Share(Scope):
    """A membership of the processes that share a device, which meet in a folder, without a daemon (docs/sharing.md).

        with memsaver.Share(0, name="rollout", priority=1) as share, memsaver.Saver(share=share) as saver:
            ...

    A saver of a share takes memory that is free and for which nobody with a higher priority waits; members that lend
    are asked for the rest. Thread-safe. The membership ends with the share and the last of its savers.
    """

    _at_end = "close"

    def __init__(
        self,
        device: int | Literal["host"] | None = None,
        *,
        name: str = "",
        priority: int = 0,
        floor: int = 0,
        ceiling: int = 0,
        trusted: bool = False,
        linger: float = 0,
        answer_within: float = 0.5,
        folder: str | os.PathLike[str] | None = None,
        host_capacity: int = 0,
        host_granularity: int = 0,
        host_machine: str | None = None,
        rdma: bool = False,
        peers: Sequence[int] = (),
        cuda_library: str | os.PathLike[str] | None = None,
    ) -> None:
        """Joins the share of a device, which `device` and the arguments after `folder` select as for `Saver`; the others are
        `ShareOptions` in docs/options.md, with times in seconds. Raises `Unavailable` if the folder cannot be used, the
        members use another version, or host memory has no `host_machine`.
        """
        self._lendings: set[Lending] = set()
        who: dict[str, Any] = {"name": name, "priority": priority, "floor": floor, "ceiling": ceiling, "trusted": trusted}
        options = who | {"folder": folder} | {"linger": linger, "answer_within": answer_within}
        where: dict[str, Any] = {"host_capacity": host_capacity, "host_granularity": host_granularity}
        where |= {"host_machine": host_machine, "rdma": rdma, "peers": peers, "cuda_library": cuda_library}
        self._handle = Handle.made("leave_share", "join_share", device_of(device, **where), options)

    def close(self) -> None:
        """Ends what it lends, and the membership unless savers of it exist. Later calls are `Misuse`. Idempotent."""
        for lending in tuple(self._lendings):
            lending.end()
        self._handle.end()

    def members(self) -> list[Member]:
        """Returns the members, this process too."""
        return [filled(Member, row) for row in json.loads(told(str, "get_members_json", self._handle))]

    def lend(self, saver: Saver) -> Lending:
        """Lends what is idle in a saver of this share to members that lack room, as `Saver.reclaim()` would release it.
        Hooks then run on a thread of the library. Ends with `end()` of the result, its `with` block, or the share.
        """
        lending = Lending(Handle.made("end_lending", "lend", self._handle, saver._handle))
        self._lendings.difference_update([each for each in tuple(self._lendings) if not each._handle._as_parameter_])
        self._lendings.add(lending)
        return lending

    def publish(
        self, name: str, saver: Saver, tag: str, ranges: Mapping[str, Any], *, version: str = "", copied: Iterable[str] = ()
    ) -> int:
        """Publishes a tag of a saver of this share: other processes may map its pages for reading (docs/sharing.md). Returns
        the hash of the names and their bytes.

        ranges: what readers find, by name: arrays of a saver, contiguous tensors (so that `model.state_dict()` does), or
            pairs of an address and a number of bytes. Every live block of the tag must have a name in it.
        version: versions of one name stand side by side.
        copied: the names of ranges that each reader gets a copy of, and may write. They may lie in any tag of the saver.

        Waits for the device, and releases memory that PyTorch caches for the tag: call it outside of its regions. Afterwards
        the pages are read-only here too. `Unavailable` if the device cannot give pages to other processes.
        """
        copies = {copied} if isinstance(copied, str) else set(copied)
        if missing := copies - ranges.keys():
            raise Misuse(f"copied: there is no range {sorted(missing)[0]!r}")
        places = [_place_of(each, value) for each, value in ranges.items()]
        options: dict[str, Any] = {"version": version, "names": [*ranges], "copied": [each in copies for each in ranges]}
        options |= {"data": [data for data, _ in places], "bytes": [bytes for _, bytes in places]}
        saver._tell_leavers(lambda each: each == tag)
        return told(int, "publish", self._handle, name, saver._handle, tag, options)

    def withdraw(self, name: str) -> None:
        """Ends a publication, in all its versions, for late readers. `Unavailable` if there is none."""
        call("withdraw", self._handle, name)

    def attach(self, name: str, saver: Saver, *, version: str = "", hash: int | None = None) -> Attached:
        """Maps a publication, without a version the one that was published last, as a new tag of a saver of this share, and
        keeps it from now on. `Unavailable` says what is published instead, or with which hash.
        """
        options = {"version": version, "hash": None if hash is None else [hash]}
        return Attached(saver, Handle.made("release_attached", "attach", self._handle, name, saver._handle, options))


class Lending(Scope):
    """A saver's idle memory at the disposal of other processes. Made by `Share.lend()`. A context manager."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        handle._finalizer.atexit = True  # the library has a thread for it, which may call back

    def end(self) -> None:
        """Ends the lending, and waits for one that runs. Idempotent."""
        self._handle.end()


class Attached:
    """A publication in this process: `model["blk.0.attn_q"]` is a `View` of its bytes, `list(model)` are the names, and
    `dict(model)` is all of it. It is a tag of the saver like any other, which stays until `drop()` or the saver's end.
    """

    def __init__(self, saver: Saver, handle: Handle) -> None:
        self.saver = saver
        self._handle = handle
        info = call("get_attached_info", handle)
        self.tag = text(info.tag)  #: the publication's name, and its version: "llama-70b@2026-11"
        self.hash = info.hash  #: as `Share.publish()` returned it

    def __getitem__(self, name: str) -> View:
        """Returns the bytes of a range. Raises `KeyError` if there is no such name."""
        try:
            return self.view(name)
        except Misuse as error:
            raise KeyError(str(error)) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def keys(self) -> list[str]:
        """Returns the names of the ranges, in order."""
        names: list[str] = []
        while (name := call("attached_name", self._handle, len(names)).value) is not None:
            names.append(text(name))
        return names

    def view(self, name: str, shape: Shape | None = None, dtype: DType = "|u1") -> View:
        """Returns a range as an array; without a shape, all of it in one dimension. Only copied ranges may be written: NumPy
        refuses to write others; on a GPU it is an illegal access.
        """
        range = call("attached_at", self._handle, name)
        if shape is None:
            shape, rest = divmod(range.bytes, View(-1, 1, dtype, False).bytes)
            if rest:
                raise Misuse(f'"{name}" in "{self.tag}" has {range.bytes} bytes, not a whole number of {dtype!r}')
        view = View(range.data or 0, shape, dtype, self.saver._on_gpu, self._is_paused, bool(range.writable))
        if view.bytes > range.bytes:
            raise Misuse(f'"{name}" in "{self.tag}" has {range.bytes} bytes, not {view.bytes}')
        return view

    def _is_paused(self, pointer: int, bytes: int) -> bool:
        dropped = f'tag "{self.tag}" was dropped'
        if not self.saver.owns(pointer):
            raise Misuse(dropped)
        try:
            self.saver.totals(self.tag)  # unknown: the address may be that of another tag's block
        except Misuse:
            raise Misuse(dropped) from None
        return self.saver.is_paused(pointer, bytes)

    def verify(self) -> None:
        """Reads the shared ranges again. Raises `PublicationDamaged` with the name of one that is not what was published."""
        call("attached_verify", self._handle)

    def drop(self) -> None:
        """Drops the tag; its arrays must not be used any more."""
        self.saver.drop(self.tag)


def _place_of(name: str, value: Any) -> tuple[int, int]:
    """Returns the address and the number of bytes of an array, a tensor, or such a pair."""
    if isinstance(value, View):
        return value._address(), value.bytes
    if hasattr(value, "data_ptr"):
        if not value.is_contiguous():
            raise Misuse(f"{name!r} is not contiguous: publish a contiguous copy in memory of the saver")
        return int(value.data_ptr()), int(value.numel()) * int(value.element_size())
    if not isinstance(value, tuple) or len(value) != 2:
        found = type(value).__name__
        raise TypeError(f"{name!r} must be an array of a saver, a tensor, or an address and a size, not {found}")
    return value[0], value[1]
