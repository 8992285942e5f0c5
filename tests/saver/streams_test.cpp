// What a program that runs ahead of its device allocates and frees with a stream: bounded queries, events and memory.
#include "support/held_stream.hpp"
#include "support/machines.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace saver_streams_test {

using namespace test;

using Machine = FaultyDriver<HostDriver>;

TEST_CASE("streams: ahead of a busy stream, at most two queries a pair, few events, and little more than is in use") {
    for (const std::size_t bytes : {std::size_t{64_KiB}, std::size_t{1_MiB}}) {
        CAPTURE(bytes);
        const Machine driver{HostDriver{8_GiB}};
        MemorySaver saver{driver};
        const Arena arena = saver.arena("a");
        const HeldStream busy{driver.inner()};
        const std::size_t pairs = 4_GiB / bytes / 4;
        for (std::size_t i = 0; i < pairs; ++i) arena.deallocate(arena.allocate(bytes), busy.get());
        CHECK(driver.calls(Call::query) <= 2 * pairs);
        CHECK(driver.outstanding().events <= 200);
        CHECK(arena.usage().mapped_bytes <= pairs * bytes * 5 / 4);
    }
}

TEST_CASE("streams: blocks for the work of the stream that gave them up take no more memory, and no queries") {
    const Machine driver{HostDriver{1_GiB}};
    MemorySaver saver{driver};
    const Arena arena = saver.arena("a");
    const HeldStream busy{driver.inner()};
    constexpr std::size_t steps = 2000;
    for (std::size_t i = 0; i < steps; ++i) {
        void* const small = arena.allocate(64_KiB, busy.get());
        void* const large = arena.allocate(3_MiB, busy.get());
        arena.deallocate(small, busy.get());
        arena.deallocate(large, busy.get());
    }
    CHECK(driver.calls(Call::query) <= steps / 10);
    CHECK(driver.outstanding().events <= 100);
    CHECK(arena.usage().mapped_bytes <= 8_MiB);
}

/// Answers as cuStreamIsCapturing does of the default stream while a stream that waits for it is captured.
struct Implicit : HostDriver {
    using HostDriver::HostDriver;
    Status capturing(StreamRef stream, bool& yes) const noexcept {
        const Status status = HostDriver::capturing(stream, yes);
        yes = yes || (stream == StreamRef{} && *implicit);
        return status;
    }
    std::shared_ptr<bool> implicit = std::make_shared<bool>(false);
};

TEST_CASE("streams: what is freed with the default stream while others capture comes back after the next fence") {
    const Implicit driver{1_GiB};
    MemorySaver saver{driver};
    const Arena arena = saver.arena("a", ArenaOptions{.capacity = 256_MiB});
    for (int i = 0; i < 20; ++i) { // more than the capacity, all in all
        void* const block = arena.allocate(32_MiB);
        *driver.implicit = true;
        arena.deallocate(block, StreamRef{});
        *driver.implicit = false;
    }
    (void)saver.trim();
    CHECK(arena.usage().mapped_bytes == 0);
    CHECK(saver.owns(arena.allocate(200_MiB)));
}

} // namespace saver_streams_test
