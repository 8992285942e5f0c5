// A host machine with one planted bug, as a library or a driver might have it. Independent of the tests.
#pragma once

#include "memsaver/memsaver.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace planted {

using namespace memsaver;
using namespace memsaver::detail;

enum class Lie : unsigned char {
    none,
    device_not_waited,    ///< a mark of the device's work that marks nothing
    wait_returns_at_once, ///< a wait for an event that does not wait
    follow_forgotten,     ///< a stream that does not follow
    drain_forgotten,      ///< a wait for the device that does not wait
    query_always_passed,  ///< every event is reported as completed
    wrong_stream_marked,  ///< marks the default stream instead of the given one
    unmapped_twice,
    unmap_forgotten,   ///< the pages are released but still mapped
    half_unmapped,     ///< the range is wrong
    release_forgotten, ///< a handle leaks
    released_twice,
    access_forgotten,
    map_forgotten,
    half_filled, ///< the range is wrong
    filled_too_far,
    event_leaked,
    files_all_alike,    ///< all files are reported as the same file
    drain_marks_device, ///< waits in a way that breaks captures
    gate_forgotten,     ///< a graph that does not wait for events recorded outside it
};

/// HostDriver with the planted bug.
class LyingDriver : public HostDriver {
public:
    LyingDriver(Lie lie, std::size_t capacity, HostDriverOptions options) : HostDriver{capacity, options}, lie_{lie} {}
    friend bool operator==(const LyingDriver&, const LyingDriver&) = default;

    Status record_device(EventRef event) const noexcept {
        return lie_ == Lie::device_not_waited ? Status{} : HostDriver::record_device(event);
    }
    Status wait(EventRef event) const noexcept {
        return lie_ == Lie::wait_returns_at_once ? Status{} : HostDriver::wait(event);
    }
    Status follow(StreamRef stream, EventRef event) const noexcept {
        return lie_ == Lie::follow_forgotten ? Status{} : HostDriver::follow(stream, event);
    }
    Status follow_outside(StreamRef stream, EventRef event) const noexcept {
        return lie_ == Lie::gate_forgotten ? Status{} : HostDriver::follow_outside(stream, event);
    }
    Status drain() const noexcept {
        if (lie_ == Lie::drain_forgotten) return {};
        if (lie_ != Lie::drain_marks_device) return HostDriver::drain();
        EventRef event;
        Status status = open_event({}, event);
        if (!status.ok()) return status;
        status = HostDriver::record_device(event);
        if (status.ok()) status = HostDriver::wait(event);
        const Status closed = HostDriver::close_event(event);
        return status.ok() ? closed : status;
    }
    Status query(EventRef event, bool& passed) const noexcept {
        if (lie_ != Lie::query_always_passed) return HostDriver::query(event, passed);
        passed = true;
        return {};
    }
    Status record(EventRef event, StreamRef stream) const noexcept {
        return HostDriver::record(event, lie_ == Lie::wrong_stream_marked ? StreamRef{} : stream);
    }
    Status unmap(Address address, std::size_t bytes) const noexcept {
        if (lie_ == Lie::unmap_forgotten) return {};
        if (lie_ == Lie::half_unmapped) return HostDriver::unmap(address, bytes / 2);
        const Status status = HostDriver::unmap(address, bytes);
        if (lie_ == Lie::unmapped_twice) (void)HostDriver::unmap(address, bytes);
        return status;
    }
    Status release(PageHandle handle) const noexcept {
        if (lie_ == Lie::release_forgotten) return {};
        const Status status = HostDriver::release(handle);
        if (lie_ == Lie::released_twice) (void)HostDriver::release(handle);
        return status;
    }
    Status map(Address address, std::size_t bytes, PageHandle handle) const noexcept {
        return lie_ == Lie::map_forgotten ? Status{} : HostDriver::map(address, bytes, handle);
    }
    Status allow_access(Address address, std::size_t bytes) const noexcept {
        return lie_ == Lie::access_forgotten ? Status{} : HostDriver::allow_access(address, bytes);
    }
    Status fill(Address to, unsigned char byte, std::size_t bytes, StreamRef stream) const noexcept {
        if (lie_ == Lie::half_filled) bytes /= 2;
        if (lie_ == Lie::filled_too_far) bytes += 1;
        return HostDriver::fill(to, byte, bytes, stream);
    }
    Status file_facts(FileRef file, FileFacts& facts) const noexcept {
        const Status status = HostDriver::file_facts(file, facts);
        if (lie_ == Lie::files_all_alike && status.ok()) facts = {1, 1, facts.bytes, 1};
        return status;
    }
    Status close_event(EventRef event) const noexcept {
        return lie_ == Lie::event_leaked ? Status{} : HostDriver::close_event(event);
    }

private:
    Lie lie_;
};

static_assert(Driver<LyingDriver> && Plain<LyingDriver> && Captures<LyingDriver>);

} // namespace planted
