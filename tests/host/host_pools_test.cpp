// A host machine's pools use its memory, and release unused memory when trimmed. Also: ownership of streams.
#include "support/machines.hpp"

namespace host_host_pools_test {
using namespace test;

std::size_t held(const HostDriver& driver, PoolRef pool) {
    std::size_t bytes = 0;
    CHECK(driver.pool_memory(pool, bytes).ok());
    return bytes;
}

TEST_CASE("pools hold pages of the machine until they are trimmed") {
    const HostDriver driver{64_MiB};
    HostPool own;
    const PoolRef pools[] = {PoolRef{}, PoolRef::of_graphs(), PoolRef{&own}};
    for (const PoolRef pool : pools) {
        CHECK(held(driver, pool) == 0);
        CHECK(driver.put_in_pool(pool, 4_MiB).ok());
        CHECK(driver.put_in_pool(pool, 6_MiB).ok());
        CHECK(held(driver, pool) == 10_MiB);
        CHECK(driver.counts().held_bytes == 10_MiB);
        CHECK(driver.trim_pool(pool, 0).ok());
        CHECK(held(driver, pool) == 10_MiB); // in use
        CHECK(driver.free_pool(pool).ok());
        CHECK(held(driver, pool) == 10_MiB); // retained
        CHECK(driver.trim_pool(pool, 5_MiB).ok());
        CHECK(held(driver, pool) == 0); // whole chunks are released, down to the amount that may be kept
        CHECK(driver.counts().held_bytes == 0);
    }
    CHECK(driver.put_in_pool({}, 65_MiB).kind != StatusKind::ok);
    CHECK(driver.put_in_pool({}, 66_MiB).kind == StatusKind::out_of_memory);
    CHECK(held(driver, {}) == 0);
}

TEST_CASE("pools are told apart, also from the default one") {
    HostPool a;
    HostPool b;
    CHECK(PoolRef{} == PoolRef{});
    CHECK(!(PoolRef{} == PoolRef::of_graphs()));
    CHECK(!(PoolRef{&a} == PoolRef{&b}));
    CHECK(PoolRef{&a}.native() == &a);
    CHECK(PoolRef::of_graphs().graphs());
    CHECK(!PoolRef{}.graphs());
}

TEST_CASE("a machine knows its own streams, and a query is no violation") {
    const HostDriver one{16_MiB};
    const HostDriver two{16_MiB};
    StreamRef stream;
    REQUIRE(one.open_stream(stream).ok());
    bool yes = false;
    CHECK(one.owns_stream(stream, yes).ok());
    CHECK(yes);
    CHECK(two.owns_stream(stream, yes).ok());
    CHECK(!yes);
    CHECK(two.owns_stream({}, yes).ok());
    CHECK(yes);
    CHECK(two.violations().empty());
    CHECK(one.close_stream(stream).ok());
}
} // namespace host_host_pools_test
