// A HostDriver stream that executes nothing until it is released. Independent of the work in it.
#pragma once

#include "memsaver/host/host.hpp"
#include "support/bytes.hpp"
#include "support/host_inside.hpp"

#include <doctest/doctest.h>

namespace test {

struct HeldStream {
    explicit HeldStream(const HostDriver& driver) : driver_{driver} {
        REQUIRE(driver_.open_stream(stream_).ok());
        hold();
    }
    template <class D>
    explicit HeldStream(const FaultyDriver<D>& driver) : HeldStream{host_of(driver)} {}
    ~HeldStream() {
        finish();
        CHECK(driver_.close_stream(stream_).ok());
    }

    void hold() const {
        REQUIRE(driver_.hold(stream_).ok());
        REQUIRE(driver_.enqueue(stream_, [] {}).ok());
    }
    void let_go() const { CHECK(driver_.let_go(stream_).ok()); }
    /// Releases the stream and waits until it has completed all its work.
    void finish() const {
        let_go();
        wait_for(driver_, stream_);
    }

    [[nodiscard]] StreamRef get() const { return stream_; }
    /// Returns the stream as CUDA's type, for code that knows only that.
    [[nodiscard]] CUstream_st* as_cuda() const { return static_cast<CUstream_st*>(stream_.native()); }

private:
    HostDriver driver_;
    StreamRef stream_;
};

/// Delays the copies of one direction as long as it lives.
struct HeldLane {
    HeldLane(const HostDriver& driver, Direction direction) : driver_{driver} {
        REQUIRE(driver_.lane(direction, lane_).ok());
        REQUIRE(driver_.hold(lane_).ok());
    }
    template <class D>
    HeldLane(const FaultyDriver<D>& driver, Direction direction) : HeldLane{host_of(driver), direction} {}
    ~HeldLane() { let_go(); }

    void let_go() const { CHECK(driver_.let_go(lane_).ok()); }

private:
    HostDriver driver_;
    StreamRef lane_;
};
} // namespace test
