// Memory whose pages other processes read: nothing is allocated in it, and it is for reading, as long as it has them.
#include "memsaver/arena/arena.hpp"
#include "support/machines.hpp"

namespace arena_seal_test {
using namespace test;

constexpr std::size_t page = 64_KiB;

template <class Policy>
struct SealedWith {
    SealedWith() {
        std::memset(block, 1, 4 * page);
        arena.deallocate(second, already_idle);
        seal();
    }
    void seal() {
        detail::ArenaCore& core = arena.core();
        const auto turn = core.take_turn({}, "seal");
        contents = core.seal();
        for (const detail::Extent& each : contents.extents)
            REQUIRE(driver.allow_access(each.address, each.bytes, Rights::read).ok());
    }
    [[nodiscard]] bool in_sealed(const void* pointer) const {
        const Address at = detail::as_address(pointer);
        for (const detail::Extent& each : contents.extents)
            if (at - each.address < each.bytes) return true;
        return false;
    }
    /// Whether the device may write there.
    [[nodiscard]] bool writable(void* pointer) const {
        return driver.fill(detail::as_address(pointer), 7, page, {}).ok() && driver.drain().ok();
    }

    FaultyDriver<HostDriver> driver{HostDriver{64 * page, {.granularity = page}}};
    TaggedArena<FaultyDriver<HostDriver>, Policy> arena{driver, "sealed"};
    void* block = arena.allocate(4 * page);
    void* second = arena.allocate(2 * page);
    detail::ArenaCore::Contents contents{};
};

using Sealed = SealedWith<HostBackup>;

TEST_CASE("seal: taken back, the memory is as before, except what had been sealed earlier") {
    Sealed f;
    (void)f.arena.allocate(page);
    const auto earlier = f.contents;
    f.seal();
    {
        const auto turn = f.arena.core().take_turn({}, "unseal");
        f.arena.core().unseal(f.contents);
    }
    void* const fresh = f.arena.allocate(page);
    f.contents = earlier;
    CHECK_FALSE(f.in_sealed(fresh));
    {
        const auto turn = f.arena.core().take_turn({}, "unseal");
        f.arena.core().unseal(earlier);
    }
    CHECK(f.arena.allocate(2 * page) == f.second);
}

TEST_CASE("seal: pages that a publication keeps are trimmed, and retried, but free nothing") {
    Sealed f;
    const auto publication = std::make_shared<int>();
    f.arena.core().set_published(publication);
    f.arena.deallocate(f.block, already_idle);
    f.driver.fail({.call = Call::release});
    CHECK_THROWS_AS((void)f.arena.trim(), DriverError);
    CHECK(f.arena.trim().released_bytes == 0);
    CHECK(f.driver.handle_bytes() == 0);
}

TEST_CASE("seal: pages that a pause could not release are not written by a resume, which releases them first") {
    Sealed f;
    f.driver.fail({.call = Call::release, .lasting = Lasting::onwards});
    try {
        f.arena.pause();
    } catch (const Error&) {
    }
    CHECK_THROWS_AS(f.arena.resume(), Error); // others read these pages
    f.driver.heal();
    f.arena.resume();
    CHECK(static_cast<const unsigned char*>(f.block)[3 * page] == 1);
    CHECK(f.writable(f.block));
    CHECK(f.in_sealed(f.arena.allocate(page))); // the addresses are of private pages again
}

TEST_CASE("seal: once a pause has released the pages, a resume does not wait for others that could not be released") {
    Sealed f;
    f.arena.pause();
    f.arena.deallocate(f.arena.allocate(page), already_idle);
    f.driver.fail({.call = Call::release, .lasting = Lasting::onwards});
    CHECK_THROWS_AS(f.arena.trim(), Error);
    f.arena.resume();
    CHECK(static_cast<const unsigned char*>(f.block)[3 * page] == 1);
    f.driver.heal();
}

TEST_CASE("seal: nor do they come back for reading only where a resume writes nothing") {
    SealedWith<Discard> f;
    f.driver.fail({.call = Call::release, .lasting = Lasting::onwards});
    CHECK_THROWS_AS(f.arena.pause(), Error);
    CHECK_THROWS_AS(f.arena.resume(), Error);
    CHECK(f.arena.usage().state == "paused");
    f.driver.heal();
    f.arena.resume();
    CHECK(f.writable(f.block));
}
} // namespace arena_seal_test
