// The owner of a pinned buffer frees it, also if it could not be pinned.
#include "support/machines.hpp"

namespace driver_pinned_buffer_test {
using namespace test;
using Machine = FaultyDriver<HostDriver>;
using Buffer = PinnedBuffer;

static_assert(!std::is_move_constructible_v<Buffer> && !std::is_move_assignable_v<Buffer>);

TEST_CASE("PinnedBuffer: is pinned, grows, and is released") {
    const Machine driver{HostDriver{64_MiB}};
    {
        Buffer buffer;
        CHECK(!buffer.owns());
        CHECK(buffer.data() == nullptr);
        REQUIRE(buffer.take(driver, 2_MiB).ok());
        CHECK(buffer.owns());
        CHECK(buffer.pinned());
        REQUIRE(buffer.take(driver, 4_MiB).ok());
        std::memset(buffer.data(), 7, 4_MiB);
        CHECK(driver.pinned_bytes() == 4_MiB);
        std::byte* const data = buffer.data();
        REQUIRE(buffer.take(driver, 2_MiB).ok());
        CHECK(buffer.data() == data);
        CHECK(buffer.release().ok());
        CHECK(driver.everything_given_back());
        CHECK(buffer.release().ok());
    }
    CHECK(driver.everything_given_back());
    CHECK(driver.violations().empty());
}

TEST_CASE("PinnedBuffer: a refused pin is no failure, but refused memory is") {
    const Machine driver{HostDriver{64_MiB}};
    driver.fail({.call = Call::pin_host});
    {
        Buffer buffer;
        REQUIRE(buffer.take(driver, 2_MiB).ok());
        CHECK(buffer.owns());
        CHECK(!buffer.pinned());
        std::memset(buffer.data(), 7, 2_MiB);
    }
    CHECK(driver.calls(Call::unpin_host) == 0);
    for (const Call call : {Call::map_host, Call::populate_host}) {
        driver.fail({.call = call, .kind = StatusKind::out_of_host_memory});
        {
            Buffer buffer;
            CHECK(buffer.take(driver, 2_MiB).kind == StatusKind::out_of_host_memory);
        }
        CHECK(driver.everything_given_back());
    }
    CHECK(driver.violations().empty());
}

TEST_CASE("PinnedBuffer: pages that the driver still holds are not unmapped") {
    const Machine driver{HostDriver{64_MiB}};
    for (const StatusKind kind : {StatusKind::other, StatusKind::gone}) { // a device that is gone holds nothing
        driver.fail({.call = Call::unpin_host, .kind = kind});
        {
            Buffer buffer;
            REQUIRE(buffer.take(driver, 2_MiB).ok());
        }
        CHECK(driver.calls(Call::unmap_host) == (kind == StatusKind::gone ? 1 : 0));
    }
}

TEST_CASE("PinnedBuffer: a failed release is retried, also of a buffer that was made only in part") {
    const Machine driver{HostDriver{64_MiB}};
    for (const Call call : {Call::unpin_host, Call::unmap_host}) {
        CAPTURE(call_name(call));
        Buffer buffer;
        REQUIRE(buffer.take(driver, 2_MiB).ok());
        driver.fail({.call = call});
        CHECK(buffer.release().code == Failure::injected_code);
        CHECK(buffer.owns());
        CHECK(buffer.take(driver, 2_MiB).ok()); // reused, as good as new
        CHECK(buffer.pinned());
        std::memset(buffer.data(), 7, 2_MiB);
        driver.fail({.call = call});
        CHECK(!buffer.release().ok());
        CHECK(buffer.release().ok());
        CHECK(driver.everything_given_back());
    }
    {
        Buffer buffer;
        driver.fail({.call = Call::populate_host, .kind = StatusKind::out_of_host_memory});
        CHECK(buffer.take(driver, 2_MiB).kind == StatusKind::out_of_host_memory);
        CHECK(buffer.take(driver, 2_MiB).ok());
        CHECK(buffer.pinned());
    }
    CHECK(driver.everything_given_back());
    CHECK(driver.violations().empty());
}
} // namespace driver_pinned_buffer_test
