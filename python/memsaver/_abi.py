"""The declarations of include/memsaver/c.h for ctypes: structures, callbacks, functions. Loads nothing."""

from __future__ import annotations

import ctypes
from ctypes import (
    CFUNCTYPE,
    POINTER,
    c_bool,
    c_char,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any

UNDER = c_size_t(-1).value
ANY_DEVICE = -1
SIZE_MAX = UNDER


class Sized(ctypes.Structure):
    """A structure whose first field is its size. Omitted fields are 0 or null, not the defaults of the macro."""

    size: int

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.size = ctypes.sizeof(self)


class Error(Sized):
    result: int
    driver_code: int
    driver_name: bytes | None
    tag: bytes | None
    needed_bytes: int
    free_bytes: int
    _fields_ = (
        ("size", c_size_t),
        ("result", c_int32),
        ("driver_code", c_int32),
        ("driver_name", c_char_p),
        ("tag", c_char_p),
        ("needed_bytes", c_size_t),
        ("free_bytes", c_size_t),
    )


class Policy(Sized):
    _fields_ = (
        ("size", c_size_t),
        ("kind", c_int32),
        ("poison", c_int32),
        ("refresh", c_int32),
        ("storage", c_int32),
        ("retain", c_bool),
        ("check", c_bool),
        ("verified", c_bool),
        ("threads", c_uint32),
        ("ring_bytes", c_size_t),
        ("directory", c_char_p),
        ("compressed", c_bool),
    )


class Event(Sized):
    kind: int
    device: int
    tag: bytes | None
    text: bytes | None
    bytes_done: int
    bytes_total: int
    _fields_ = (
        ("size", c_size_t),
        ("kind", c_int32),
        ("device", c_int32),
        ("tag", c_char_p),
        ("text", c_char_p),
        ("bytes_done", c_size_t),
        ("bytes_total", c_size_t),
    )


class NoRoom(Sized):
    bytes: int
    free_bytes: int
    device: int
    tag: Any  # bytes or None; the name `bytes` is taken here
    missing_bytes: int
    _fields_ = (
        ("size", c_size_t),
        ("bytes", c_size_t),
        ("free_bytes", c_size_t),
        ("device", c_int32),
        ("tag", c_char_p),
        ("missing_bytes", c_size_t),
    )


# The context of a callback is a number assigned by memsaver._callbacks.
EventFunction = CFUNCTYPE(None, c_void_p, POINTER(Event))
NoRoomFunction = CFUNCTYPE(c_int, c_void_p, POINTER(NoRoom))


class Options(Sized):
    _fields_ = (
        ("size", c_size_t),
        ("driver", c_int32),
        ("device", c_int32),
        ("enabled", c_bool),
        ("rdma", c_bool),
        ("export_handles", c_int32),
        ("margin", c_size_t),
        ("default_policy", POINTER(Policy)),
        ("host_capacity", c_size_t),
        ("host_granularity", c_size_t),
        ("peers", POINTER(c_int)),
        ("peer_count", c_size_t),
        ("cuda_library", c_char_p),
        ("on_no_room", NoRoomFunction),
        ("on_no_room_context", c_void_p),
        ("on_event", EventFunction),
        ("on_event_context", c_void_p),
        ("new_tags", c_int32),
        ("evict_for_allocations", c_bool),
        ("host_machine", c_char_p),
        ("share", c_void_p),
    )


class Info(Sized):
    driver: int
    device: int
    enabled: bool
    granularity: int
    free_bytes: int
    total_bytes: int
    name: bytes
    _fields_ = (
        ("size", c_size_t),
        ("driver", c_int32),
        ("device", c_int32),
        ("enabled", c_bool),
        ("granularity", c_size_t),
        ("free_bytes", c_size_t),
        ("total_bytes", c_size_t),
        ("name", c_char * 128),
    )


class ArenaOptions(Sized):
    _fields_ = (
        ("size", c_size_t),
        ("policy", POINTER(Policy)),
        ("capacity", c_size_t),
        ("reserve", c_size_t),
        ("margin", c_size_t),
        ("device", c_int32),
        ("evictable", c_bool),
        ("priority", c_int32),
    )


class Report(Sized):
    _fields_ = (
        ("size", c_size_t),
        ("released_bytes", c_size_t),
        ("saved_bytes", c_size_t),
        ("restored_bytes", c_size_t),
        ("mapped_bytes", c_size_t),
        ("handed_bytes", c_size_t),
        ("held_bytes", c_size_t),
        ("elapsed_ns", c_int64),
        ("waited_ns", c_int64),
    )


class PauseOptions(Sized):
    _fields_ = (
        ("size", c_size_t),
        ("order", c_int32),
        ("streams", POINTER(c_void_p)),
        ("stream_count", c_size_t),
        ("events", POINTER(c_void_p)),
        ("event_count", c_size_t),
        ("timeout_ns", c_int64),
        ("bytes", POINTER(Policy)),
    )


class ResumeOptions(Sized):
    _fields_ = (("size", c_size_t), ("bytes", POINTER(Policy)), ("room_within_ns", c_int64))


class ExchangeOptions(Sized):
    _fields_ = (("size", c_size_t), ("pausing", POINTER(PauseOptions)), ("resuming", POINTER(ResumeOptions)))


class ResumeAsyncOptions(Sized):
    _fields_ = (
        ("size", c_size_t),
        ("first", POINTER(c_void_p)),
        ("first_bytes", POINTER(c_size_t)),
        ("first_count", c_size_t),
        ("resuming", POINTER(ResumeOptions)),
    )


class UseOptions(Sized):
    _fields_ = (
        ("size", c_size_t),
        ("order", c_int32),
        ("streams", POINTER(c_void_p)),
        ("stream_count", c_size_t),
        ("events", POINTER(c_void_p)),
        ("event_count", c_size_t),
        ("timeout_ns", c_int64),
        ("room_within_ns", c_int64),
        ("await_bytes", c_bool),
    )


class ReclaimOptions(Sized):
    _fields_ = (
        ("size", c_size_t),
        ("order", c_int32),
        ("streams", POINTER(c_void_p)),
        ("stream_count", c_size_t),
        ("events", POINTER(c_void_p)),
        ("event_count", c_size_t),
        ("timeout_ns", c_int64),
        ("device", c_int32),
    )


class Reclaimed(Sized):
    wanted_bytes: int
    unused_bytes: int
    elastic_bytes: int
    evicted_bytes: int
    saved_bytes: int
    _fields_ = (
        ("size", c_size_t),
        ("wanted_bytes", c_size_t),
        ("unused_bytes", c_size_t),
        ("elastic_bytes", c_size_t),
        ("evicted_bytes", c_size_t),
        ("saved_bytes", c_size_t),
    )


ReclaimFunction = CFUNCTYPE(c_size_t, c_void_p, c_size_t)


class ElasticOptions(Sized):
    _fields_ = (
        ("size", c_size_t),
        ("granularity", c_size_t),
        ("on_reclaim", ReclaimFunction),
        ("on_reclaim_context", c_void_p),
    )


class ElasticInfo(Sized):
    data: int | None
    capacity: int
    granularity: int
    committed_bytes: int
    _fields_ = (
        ("size", c_size_t),
        ("data", c_void_p),
        ("capacity", c_size_t),
        ("granularity", c_size_t),
        ("committed_bytes", c_size_t),
    )


class HookEvent(Sized):
    moment: int
    tags: Any  # char**
    tag_count: int
    report: Any  # Report*
    _fields_ = (
        ("size", c_size_t),
        ("moment", c_int32),
        ("tags", POINTER(c_char_p)),
        ("tag_count", c_size_t),
        ("report", POINTER(Report)),
    )


HookFunction = CFUNCTYPE(c_int, c_void_p, POINTER(HookEvent))
AnsweringHookFunction = CFUNCTYPE(None, c_void_p, POINTER(HookEvent), POINTER(c_int32))


class Usage(Sized):
    _fields_ = (
        ("size", c_size_t),
        ("arenas", c_size_t),
        ("reserved_bytes", c_size_t),
        ("mapped_bytes", c_size_t),
        ("held_bytes", c_size_t),
        ("used_bytes", c_size_t),
        ("paused_bytes", c_size_t),
        ("backed_up_bytes", c_size_t),
        ("blocks", c_size_t),
        ("peak_mapped_bytes", c_size_t),
        ("pauses", c_size_t),
        ("elastic_bytes", c_size_t),
    )


class ShareOptions(Sized):
    _fields_ = (
        ("size", c_size_t),
        ("name", c_char_p),
        ("priority", c_int32),
        ("floor", c_size_t),
        ("ceiling", c_size_t),
        ("trusted", c_bool),
        ("answer_within_ns", c_int64),
        ("folder", c_char_p),
        ("linger_ns", c_int64),
    )


class PublishOptions(Sized):
    _fields_ = (
        ("size", c_size_t),
        ("version", c_char_p),
        ("names", POINTER(c_char_p)),
        ("data", POINTER(c_void_p)),
        ("bytes", POINTER(c_size_t)),
        ("copied", POINTER(c_bool)),
        ("count", c_size_t),
    )


class AttachOptions(Sized):
    _fields_ = (("size", c_size_t), ("version", c_char_p), ("hash", POINTER(c_uint64)))


class AttachedInfo(Sized):
    tag: bytes
    hash: int
    _fields_ = (("size", c_size_t), ("tag", c_char_p), ("hash", c_uint64))


class AttachedRange(Sized):
    data: int | None
    writable: int | None
    bytes: int
    _fields_ = (("size", c_size_t), ("data", c_void_p), ("writable", c_void_p), ("bytes", c_size_t))


STRUCTURES: dict[str, type[Sized]] = {
    "memsaver_error": Error,
    "memsaver_policy": Policy,
    "memsaver_event": Event,
    "memsaver_no_room": NoRoom,
    "memsaver_options": Options,
    "memsaver_info": Info,
    "memsaver_arena_options": ArenaOptions,
    "memsaver_report": Report,
    "memsaver_pause_options": PauseOptions,
    "memsaver_resume_options": ResumeOptions,
    "memsaver_exchange_options": ExchangeOptions,
    "memsaver_resume_async_options": ResumeAsyncOptions,
    "memsaver_use_options": UseOptions,
    "memsaver_reclaim_options": ReclaimOptions,
    "memsaver_reclaimed": Reclaimed,
    "memsaver_elastic_options": ElasticOptions,
    "memsaver_elastic_info": ElasticInfo,
    "memsaver_hook_event": HookEvent,
    "memsaver_usage": Usage,
    "memsaver_share_options": ShareOptions,
    "memsaver_publish_options": PublishOptions,
    "memsaver_attach_options": AttachOptions,
    "memsaver_attached_info": AttachedInfo,
    "memsaver_attached_range": AttachedRange,
}

# Handles are void*. Names are NULL-able arrays of char*.
_handle, _names = c_void_p, POINTER(c_char_p)
_out_handle, _out_pointer = POINTER(c_void_p), POINTER(c_void_p)

FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "memsaver_result_name": (c_char_p, (c_int32,)),
    "memsaver_last_error": (c_char_p, ()),
    "memsaver_get_last_error": (c_int, (POINTER(Error),)),
    "memsaver_version": (c_int, ()),
    "memsaver_version_text": (c_char_p, ()),
    "memsaver_gpu_available": (c_int, (c_int,)),
    "memsaver_gpu_count": (c_int, ()),
    "memsaver_create": (c_int, (POINTER(Options), _out_handle)),
    "memsaver_close": (c_int, (_handle,)),
    "memsaver_destroy": (None, (_handle,)),
    "memsaver_get_info": (c_int, (_handle, POINTER(Info))),
    "memsaver_set_margin": (c_int, (_handle, c_size_t)),
    "memsaver_make_tag": (c_int, (_handle, c_char_p, POINTER(ArenaOptions))),
    "memsaver_get_arena": (c_int, (_handle, c_char_p, POINTER(ArenaOptions), _out_handle)),
    "memsaver_release_arena": (None, (_handle,)),
    "memsaver_drop": (c_int, (_handle, _names, c_size_t)),
    "memsaver_set_capacity": (c_int, (_handle, _names, c_size_t, c_size_t)),
    "memsaver_set_retain": (c_int, (_handle, _names, c_size_t, ctypes.c_bool)),
    "memsaver_allocate": (c_int, (_handle, c_char_p, c_size_t, c_size_t, _out_pointer)),
    "memsaver_allocate_on": (c_int, (_handle, c_char_p, c_size_t, c_size_t, c_void_p, _out_pointer)),
    "memsaver_deallocate": (c_int, (_handle, c_void_p)),
    "memsaver_deallocate_on": (c_int, (_handle, c_void_p, c_void_p)),
    "memsaver_deallocate_idle": (c_int, (_handle, c_void_p)),
    "memsaver_arena_allocate": (c_int, (_handle, c_size_t, c_size_t, _out_pointer)),
    "memsaver_arena_allocate_on": (c_int, (_handle, c_size_t, c_size_t, c_void_p, _out_pointer)),
    "memsaver_arena_deallocate": (c_int, (_handle, c_void_p)),
    "memsaver_arena_deallocate_on": (c_int, (_handle, c_void_p, c_void_p)),
    "memsaver_arena_deallocate_idle": (c_int, (_handle, c_void_p)),
    "memsaver_owns": (c_bool, (_handle, c_void_p)),
    "memsaver_is_paused": (c_bool, (_handle, c_void_p, c_size_t)),
    "memsaver_read_backup": (c_int, (_handle, c_void_p, c_size_t, c_void_p)),
    "memsaver_write_backup": (c_int, (_handle, c_void_p, c_void_p, c_size_t)),
    "memsaver_push_region": (c_int, (_handle, c_char_p)),
    "memsaver_push_arena": (c_int, (_handle, _handle)),
    "memsaver_push_outside": (c_int, (_handle,)),
    "memsaver_pop_region": (c_int, (_handle,)),
    "memsaver_pause": (c_int, (_handle, _names, c_size_t, POINTER(PauseOptions), POINTER(Report))),
    "memsaver_resume": (c_int, (_handle, _names, c_size_t, POINTER(ResumeOptions), POINTER(Report))),
    "memsaver_exchange": (c_int, (_handle, _names, c_size_t, _names, c_size_t, POINTER(ExchangeOptions), POINTER(Report))),
    "memsaver_bytes_to_resume": (c_int, (_handle, _names, c_size_t, POINTER(c_size_t))),
    "memsaver_trim": (c_int, (_handle, _names, c_size_t, POINTER(PauseOptions), POINTER(Report))),
    "memsaver_prepare": (c_int, (_handle, _names, c_size_t)),
    "memsaver_invalidate": (c_int, (_handle, _names, c_size_t)),
    "memsaver_forget_backup": (c_int, (_handle, _names, c_size_t)),
    "memsaver_invalidate_range": (c_int, (_handle, c_void_p, c_size_t)),
    "memsaver_load": (c_int, (_handle, c_void_p, c_size_t, c_char_p, c_size_t)),
    "memsaver_resume_async": (c_int, (_handle, _names, c_size_t, POINTER(ResumeAsyncOptions), _out_handle)),
    "memsaver_save": (c_int, (_handle, _names, c_size_t, POINTER(PauseOptions), _out_handle)),
    "memsaver_arrival_before": (c_int, (_handle, c_void_p)),
    "memsaver_arrival_before_range": (c_int, (_handle, c_void_p, c_void_p, c_size_t)),
    "memsaver_arrival_wait": (c_int, (_handle, POINTER(Report))),
    "memsaver_arrival_wait_range": (c_int, (_handle, c_void_p, c_size_t)),
    "memsaver_arrival_done": (c_int, (_handle, POINTER(c_bool))),
    "memsaver_end_arrival": (None, (_handle,)),
    "memsaver_get_gate": (c_int, (_handle, c_void_p, c_size_t, _out_handle)),
    "memsaver_gate_before": (c_int, (_handle, c_void_p)),
    "memsaver_release_gate": (None, (_handle,)),
    "memsaver_begin_use": (c_int, (_handle, _names, c_size_t, POINTER(UseOptions), _out_handle)),
    "memsaver_use_until": (c_int, (_handle, c_void_p)),
    "memsaver_use_until_event": (c_int, (_handle, c_void_p)),
    "memsaver_use_lost": (c_int, (_handle, POINTER(POINTER(c_char_p)), POINTER(c_size_t))),
    "memsaver_end_use": (None, (_handle,)),
    "memsaver_set_evictable": (c_int, (_handle, _names, c_size_t, c_bool)),
    "memsaver_set_priority": (c_int, (_handle, _names, c_size_t, c_int32)),
    "memsaver_reclaim": (c_int, (_handle, c_size_t, POINTER(ReclaimOptions), POINTER(Reclaimed), POINTER(c_void_p))),
    "memsaver_make_elastic": (c_int, (_handle, c_size_t, POINTER(ElasticOptions), _out_handle)),
    "memsaver_end_elastic": (None, (_handle,)),
    "memsaver_elastic_commit": (c_int, (_handle, c_size_t, c_size_t)),
    "memsaver_elastic_release": (c_int, (_handle, c_size_t, c_size_t, POINTER(PauseOptions))),
    "memsaver_elastic_resize": (c_int, (_handle, c_size_t, POINTER(PauseOptions))),
    "memsaver_get_elastic_info": (c_int, (_handle, POINTER(ElasticInfo))),
    "memsaver_add_hook": (c_int, (_handle, c_int32, HookFunction, c_void_p, _out_handle)),
    "memsaver_add_answering_hook": (c_int, (_handle, c_int32, AnsweringHookFunction, c_void_p, _out_handle)),
    "memsaver_remove_hook": (None, (_handle,)),
    "memsaver_get_usage": (c_int, (_handle, _names, c_size_t, POINTER(Usage))),
    "memsaver_get_arena_usage": (c_int, (_handle, POINTER(Usage))),
    "memsaver_get_usage_json": (c_int, (_handle, POINTER(c_void_p))),  # not c_char_p: the address must be freed
    "memsaver_free_text": (None, (c_void_p,)),
    "memsaver_join_share": (c_int, (POINTER(Options), POINTER(ShareOptions), _out_handle)),
    "memsaver_leave_share": (None, (_handle,)),
    "memsaver_get_members_json": (c_int, (_handle, POINTER(c_void_p))),
    "memsaver_lend": (c_int, (_handle, _handle, _out_handle)),
    "memsaver_end_lending": (None, (_handle,)),
    "memsaver_publish": (c_int, (_handle, c_char_p, _handle, c_char_p, POINTER(PublishOptions), POINTER(c_uint64))),
    "memsaver_withdraw": (c_int, (_handle, c_char_p)),
    "memsaver_attach": (c_int, (_handle, c_char_p, _handle, POINTER(AttachOptions), _out_handle)),
    "memsaver_release_attached": (None, (_handle,)),
    "memsaver_get_attached_info": (c_int, (_handle, POINTER(AttachedInfo))),
    "memsaver_attached_at": (c_int, (_handle, c_char_p, POINTER(AttachedRange))),
    "memsaver_attached_name": (c_int, (_handle, c_size_t, POINTER(c_char_p))),
    "memsaver_attached_verify": (c_int, (_handle,)),
}

# Only in some libraries; PyTorch calls the first two by their addresses.
TORCH_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "memsaver_torch_allocate": (c_void_p, (ctypes.c_ssize_t, c_int, c_void_p)),
    "memsaver_torch_free": (None, (c_void_p, ctypes.c_ssize_t, c_int, c_void_p)),
    "memsaver_torch_push": (c_int, (_handle,)),
    "memsaver_torch_pop": (c_int, ()),
}


def declare(library: ctypes.CDLL) -> None:
    """Declares the types of a loaded library's functions. Raises AttributeError if one is missing."""
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    for name, (result, arguments) in TORCH_FUNCTIONS.items():
        if hasattr(library, name):
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
