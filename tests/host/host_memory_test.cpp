#include "host_support.hpp"
#include "memsaver/host/host_memory.hpp"

#include <algorithm>

namespace host_host_memory_test {
using namespace host_test;

TEST_CASE("host memory: reservations are aligned as asked, and big ones cost nothing") {
    const HostDriver driver = machine();
    for (const std::size_t alignment : {std::size_t{0}, page, 2_MiB, 1_GiB}) {
        Address address = 0;
        REQUIRE(driver.reserve(3 * page, alignment, address).ok());
        CHECK(address % std::max(alignment, page) == 0);
        CHECK(driver.unreserve(address, 3 * page).ok());
    }
    Address vast = 0;
    REQUIRE(driver.reserve(256_GiB, 0, vast).ok());
    CHECK(driver.unreserve(vast, 256_GiB).ok());
    Address unchanged = 1;
    CHECK(driver.reserve(align_down(SIZE_MAX, page), 0, unchanged).kind == StatusKind::out_of_addresses);
    CHECK(unchanged == 1);
}

TEST_CASE("host memory: wrong calls fail, are recorded, and change nothing") {
    const HostDriver driver = machine();
    Mapped a{driver, 2 * page};
    Address room = 0;
    REQUIRE(driver.reserve(8 * page, 0, room).ok());
    PageHandle loose;
    REQUIRE(driver.create(page, loose).ok());
    PageHandle one, two;
    REQUIRE(driver.create(page, one).ok());
    REQUIRE(driver.create(page, two).ok());
    REQUIRE(driver.map(room, page, one).ok());
    REQUIRE(driver.map(room + 2 * page, page, two).ok());
    PageHandle released;
    REQUIRE(driver.create(page, released).ok());
    REQUIRE(driver.release(released).ok());
    Address gone = 0;
    REQUIRE(driver.reserve(page, 0, gone).ok());
    REQUIRE(driver.unreserve(gone, page).ok());
    Address plain = 0;
    REQUIRE(driver.allocate_plain(page, plain).ok());
    const HostCounts before = driver.counts();
    CHECK(before.handles == 4);
    CHECK(before.mappings == 3);

    Address address = 0;
    PageHandle handle;
    const auto wrong = [&](Status status) {
        static_cast<void>(status);
        CHECK(status.kind == StatusKind::other);
        CHECK(driver.counts() == before);
        const std::size_t noted = driver.violations().size();
        return noted;
    };
    std::size_t n = 0;
    SUBCASE("reserve nothing") { n = wrong(driver.reserve(0, 0, address)); }
    SUBCASE("reserve a part") { n = wrong(driver.reserve(page + 1, 0, address)); }
    SUBCASE("reserve with a bad alignment") { n = wrong(driver.reserve(page, 3 * page, address)); }
    SUBCASE("create nothing") { n = wrong(driver.create(0, handle)); }
    SUBCASE("create a part") { n = wrong(driver.create(page / 2, handle)); }
    SUBCASE("map a released handle") { n = wrong(driver.map(room + page, page, released)); }
    SUBCASE("map no handle") { n = wrong(driver.map(room + page, page, {})); }
    SUBCASE("map a part of a handle") { n = wrong(driver.map(room + 4 * page, page, a.handle)); }
    SUBCASE("map more than a handle") { n = wrong(driver.map(room + 4 * page, 2 * page, loose)); }
    SUBCASE("map over a mapping") { n = wrong(driver.map(room, page, loose)); }
    SUBCASE("map half over a mapping") { n = wrong(driver.map(room + page, 2 * page, a.handle)); }
    SUBCASE("map across the end") { n = wrong(driver.map(room + 7 * page, 2 * page, a.handle)); }
    SUBCASE("map unreserved addresses") { n = wrong(driver.map(page, page, loose)); }
    SUBCASE("map unaligned") { n = wrong(driver.map(room + page + 512, page, loose)); }
    SUBCASE("unmap a hole") { n = wrong(driver.unmap(room + page, page)); }
    SUBCASE("unmap across a hole") { n = wrong(driver.unmap(room, 3 * page)); }
    SUBCASE("unmap more than is there") { n = wrong(driver.unmap(room, 2 * page)); }
    SUBCASE("unmap the front of a mapping") { n = wrong(driver.unmap(a.address, page)); }
    SUBCASE("unmap the back of a mapping") { n = wrong(driver.unmap(a.address + page, page)); }
    SUBCASE("unmap nothing") { n = wrong(driver.unmap(a.address, 0)); }
    SUBCASE("unmap past the last address") { n = wrong(driver.unmap(room, align_down(SIZE_MAX, page))); }
    SUBCASE("unmap plain memory") { n = wrong(driver.unmap(plain, page)); }
    SUBCASE("access across a hole") { n = wrong(driver.allow_access(room, 3 * page)); }
    SUBCASE("access to a part") { n = wrong(driver.allow_access(a.address, page)); }
    SUBCASE("release twice") { n = wrong(driver.release(released)); }
    SUBCASE("release no handle") { n = wrong(driver.release({})); }
    SUBCASE("unreserve twice") { n = wrong(driver.unreserve(gone, page)); }
    SUBCASE("unreserve a part") { n = wrong(driver.unreserve(room, page)); }
    SUBCASE("unreserve the back") { n = wrong(driver.unreserve(room + page, 7 * page)); }
    SUBCASE("unreserve with pages") { n = wrong(driver.unreserve(room, 8 * page)); }
    SUBCASE("free pages as plain") { n = wrong(driver.free_plain(a.address)); }
    SUBCASE("free the inside of plain") { n = wrong(driver.free_plain(plain + 512)); }
    CHECK(n == 1);
    CHECK(readable(a.address));
    REQUIRE(driver.free_plain(plain).ok());
    CHECK(driver.free_plain(0).ok()); // like cudaFree
    for (const std::size_t bytes : {std::size_t{0}, SIZE_MAX}) CHECK_FALSE(driver.allocate_plain(bytes, plain).ok());
}
} // namespace host_host_memory_test
