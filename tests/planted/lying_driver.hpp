// A host machine with one planted bug, as a library or a driver might have it. Independent of the tests.
#pragma once

#include "memsaver/driver/device_around.hpp"
#include "memsaver/memsaver.hpp"
#include "support/host_with.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

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

/// A machine with the planted bug.
struct LyingMachine : DeviceAround {
    LyingMachine(AnyDriver inner, Lie lie) : DeviceAround{std::move(inner)}, lie_{lie} {}

    Status record_device(EventRef event) noexcept override {
        return lie_ == Lie::device_not_waited ? Status{} : DeviceAround::record_device(event);
    }
    Status wait(EventRef event) noexcept override {
        return lie_ == Lie::wait_returns_at_once ? Status{} : DeviceAround::wait(event);
    }
    Status follow(StreamRef stream, EventRef event) noexcept override {
        return lie_ == Lie::follow_forgotten ? Status{} : DeviceAround::follow(stream, event);
    }
    Status follow_outside(StreamRef stream, EventRef event) noexcept override {
        return lie_ == Lie::gate_forgotten ? Status{} : DeviceAround::follow_outside(stream, event);
    }
    Status drain() noexcept override {
        if (lie_ == Lie::drain_forgotten) return {};
        if (lie_ != Lie::drain_marks_device) return DeviceAround::drain();
        EventRef event;
        Status status = open_event({}, event);
        if (!status.ok()) return status;
        status = DeviceAround::record_device(event);
        if (status.ok()) status = DeviceAround::wait(event);
        const Status closed = DeviceAround::close_event(event);
        return status.ok() ? closed : status;
    }
    Status query(EventRef event, bool& passed) noexcept override {
        if (lie_ != Lie::query_always_passed) return DeviceAround::query(event, passed);
        passed = true;
        return {};
    }
    Status record(EventRef event, StreamRef stream) noexcept override {
        return DeviceAround::record(event, lie_ == Lie::wrong_stream_marked ? StreamRef{} : stream);
    }
    Status unmap(Address address, std::size_t bytes) noexcept override {
        if (lie_ == Lie::unmap_forgotten) return {};
        if (lie_ == Lie::half_unmapped) return DeviceAround::unmap(address, bytes / 2);
        const Status status = DeviceAround::unmap(address, bytes);
        if (lie_ == Lie::unmapped_twice) (void)DeviceAround::unmap(address, bytes);
        return status;
    }
    Status release(PageHandle handle) noexcept override {
        if (lie_ == Lie::release_forgotten) return {};
        const Status status = DeviceAround::release(handle);
        if (lie_ == Lie::released_twice) (void)DeviceAround::release(handle);
        return status;
    }
    Status map(Address address, std::size_t bytes, PageHandle handle) noexcept override {
        return lie_ == Lie::map_forgotten ? Status{} : DeviceAround::map(address, bytes, handle);
    }
    Status allow_access(Address address, std::size_t bytes, Rights rights) noexcept override {
        return lie_ == Lie::access_forgotten ? Status{} : DeviceAround::allow_access(address, bytes, rights);
    }
    Status fill(Address to, unsigned char byte, std::size_t bytes, StreamRef stream) noexcept override {
        if (lie_ == Lie::half_filled) bytes /= 2;
        if (lie_ == Lie::filled_too_far) bytes += 1;
        return DeviceAround::fill(to, byte, bytes, stream);
    }
    Status file_facts(FileRef file, FileFacts& facts) noexcept override {
        const Status status = DeviceAround::file_facts(file, facts);
        if (lie_ == Lie::files_all_alike && status.ok()) facts = {1, 1, facts.bytes, 1};
        return status;
    }
    Status close_event(EventRef event) noexcept override {
        return lie_ == Lie::event_leaked ? Status{} : DeviceAround::close_event(event);
    }

private:
    Lie lie_;
};

using LyingDriver = test::HostWith<LyingMachine>;
} // namespace planted
