// A driver with all required methods, which do nothing. Tests omit or replace one of them.
#pragma once

#include "memsaver/driver/any_driver.hpp"

#include <cstddef>

#if defined(MEMSAVER_CONTROL) || !defined(UNMAP)
#undef UNMAP
#define UNMAP                                                                                                          \
    Status unmap(Address, std::size_t) const noexcept { return {}; }
#endif

namespace memsaver {

struct WholeDriver {
    bool operator==(const WholeDriver&) const = default;
    int device() const noexcept { return 0; }
    const char* name() const { return "whole"; }

    Status granularity(std::size_t&) const noexcept { return {}; }
    Status memory(DeviceMemory&) const noexcept { return {}; }
    Status reserve(std::size_t, std::size_t, Address&) const noexcept { return {}; }
    Status unreserve(Address, std::size_t) const noexcept { return {}; }
    Status create(std::size_t, PageHandle&) const noexcept { return {}; }
    Status release(PageHandle) const noexcept { return {}; }
    Status map(Address, std::size_t, PageHandle) const noexcept { return {}; }
    UNMAP
    Status allow_access(Address, std::size_t) const noexcept { return {}; }

    Status open_stream(StreamRef&) const noexcept { return {}; }
    Status close_stream(StreamRef) const noexcept { return {}; }
    Status open_event(StreamRef, EventRef&) const noexcept { return {}; }
    Status close_event(EventRef) const noexcept { return {}; }
    Status record(EventRef, StreamRef) const noexcept { return {}; }
    Status record_device(EventRef) const noexcept { return {}; }
    Status follow(StreamRef, EventRef) const noexcept { return {}; }
    Status query(EventRef, bool&) const noexcept { return {}; }
    Status wait(EventRef) const noexcept { return {}; }
    Status drain() const noexcept { return {}; }
    Status capturing(StreamRef, bool&) const noexcept { return {}; }

    Status copy_to_host(void*, Address, std::size_t, StreamRef) const noexcept { return {}; }
    Status copy_to_device(Address, const void*, std::size_t, StreamRef) const noexcept { return {}; }
    Status fill(Address, unsigned char, std::size_t, StreamRef) const noexcept { return {}; }
};

} // namespace memsaver
