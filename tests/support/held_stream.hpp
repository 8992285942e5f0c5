// A HostDriver stream that executes nothing until it is released. Independent of the work in it.
#pragma once

#include "memsaver/host/host.hpp"

#include <doctest/doctest.h>

namespace test {

using namespace memsaver;

using namespace memsaver::detail;

class HeldStream {
public:
    explicit HeldStream(const HostDriver& driver) : driver_{driver} {
        REQUIRE(driver_.open_stream(stream_).ok());
        REQUIRE(driver_.hold(stream_).ok());
        REQUIRE(driver_.enqueue(stream_, [] {}).ok());
    }
    HeldStream(const HeldStream&) = delete;
    HeldStream& operator=(const HeldStream&) = delete;
    ~HeldStream() {
        finish();
        CHECK(driver_.close_stream(stream_).ok());
    }

    void let_go() { CHECK(driver_.let_go(stream_).ok()); }
    /// Releases the stream and waits until it has completed all its work.
    void finish() {
        let_go();
        EventRef event;
        REQUIRE(driver_.open_event(stream_, event).ok());
        CHECK(driver_.record(event, stream_).ok());
        CHECK(driver_.wait(event).ok());
        CHECK(driver_.close_event(event).ok());
    }

    [[nodiscard]] StreamRef get() const { return stream_; }
    /// Returns the stream as CUDA's type, for code that knows only that.
    [[nodiscard]] CUstream_st* as_cuda() const { return static_cast<CUstream_st*>(stream_.native()); }

private:
    HostDriver driver_;
    StreamRef stream_;
};

} // namespace test
