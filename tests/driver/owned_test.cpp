// Resources are returned to the driver once, by their last owner. A resource that could not be acquired is not owned,
// and one that could not be released stays owned, unless it is gone anyway.
#include "support/machines.hpp"
#include "support/reserved.hpp"

namespace driver_owned_test {
using namespace test;
using Machine = FaultyDriver<HostDriver>;

const std::string directory = std::filesystem::temp_directory_path().string();

// The properties that differ between the owners of one kind of resource.
template <class T, Call Open, Call Close>
struct OwnerOf {
    using Owned = T;
    static constexpr Call opens = Open;
    static constexpr Call closes = Close;
};

struct StreamOwner : OwnerOf<OwnedStream, Call::open_stream, Call::close_stream> {
    static constexpr bool once = true;
    static Status open(Owned& owned, const Machine& driver) { return owned.open(driver); }
    static auto native(const Owned& owned) { return owned.get().native(); }
    static std::size_t count(const Machine& driver) { return driver.outstanding().streams; }
};
struct EventOwner : OwnerOf<OwnedEvent, Call::open_event, Call::close_event> {
    static constexpr bool once = true;
    static Status open(Owned& owned, const Machine& driver) { return owned.open(driver); }
    static auto native(const Owned& owned) { return owned.get().native(); }
    static std::size_t count(const Machine& driver) { return driver.outstanding().events; }
};
struct FileOwner : OwnerOf<OwnedFile, Call::open_file, Call::close_file> { // its number may already be reused
    static constexpr bool once = true;
    static Status open(Owned& owned, const Machine& driver) { return owned.open(driver, directory.c_str()); }
    static auto native(const Owned& owned) { return owned.get().descriptor; }
    static std::size_t count(const Machine& driver) { return driver.outstanding().files; }
};
struct PagesOwner : OwnerOf<OwnedPages, Call::create, Call::release> {
    static constexpr bool once = false;
    static Status open(Owned& owned, const Machine& driver) { return owned.open(driver, std::size_t{2_MiB}); }
    static auto native(const Owned& owned) { return owned.get().handle.value; }
    static std::size_t count(const Machine& driver) { return driver.outstanding().handles; }
};
struct AddressOwner : OwnerOf<Reservation, Call::reserve, Call::unreserve> {
    static constexpr bool once = false;
    static Status open(Owned& owned, const Machine& driver) {
        return owned.open(driver, std::size_t{8_MiB}, std::size_t{16_MiB});
    }
    static auto native(const Owned& owned) { return owned.get().address; }
    static std::size_t count(const Machine& driver) { return driver.outstanding().reservations; }
};

template <class T>
constexpr bool is_an_owner =
    !std::is_copy_constructible_v<T> && std::is_nothrow_move_constructible_v<T> && std::is_nothrow_move_assignable_v<T>;
static_assert(is_an_owner<Reservation> && is_an_owner<OwnedPages> && is_an_owner<Mapping>);
static_assert(is_an_owner<OwnedStream> && is_an_owner<OwnedEvent> && is_an_owner<OwnedFile>);

TEST_CASE_TEMPLATE("an owner opens, moves, and closes once", Owner, StreamOwner, EventOwner, FileOwner, PagesOwner,
                   AddressOwner) {
    const Machine driver{HostDriver{64_MiB}};
    const auto nothing = Owner::native(typename Owner::Owned{});
    {
        typename Owner::Owned one;
        CHECK_FALSE(one.owns());
        REQUIRE(Owner::open(one, driver).ok());
        CHECK(one.owns());
        const auto native = Owner::native(one);
        CHECK(native != nothing);
        typename Owner::Owned two{std::move(one)};
        typename Owner::Owned three;
        REQUIRE(Owner::open(three, driver).ok());
        three = std::move(two); // releases its previous resource
        CHECK(Owner::native(three) == native);
        typename Owner::Owned& same = three;
        three = std::move(same);
        CHECK(Owner::native(three) == native);
        CHECK(Owner::count(driver) == 1);
        CHECK(driver.calls(Owner::closes) == 1);
    }
    CHECK(driver.everything_given_back());
    CHECK(driver.calls(Owner::closes) == 2);
    CHECK(driver.violations().empty());
}

TEST_CASE_TEMPLATE("an owner of something that could not be opened owns nothing", Owner, StreamOwner, EventOwner,
                   FileOwner, PagesOwner, AddressOwner) {
    const Machine driver{HostDriver{64_MiB}};
    {
        typename Owner::Owned owned;
        driver.fail({.call = Owner::opens});
        CHECK_FALSE(Owner::open(owned, driver).ok());
        CHECK(Owner::native(owned) == Owner::native(typename Owner::Owned{}));
        CHECK_FALSE(owned.owns());
    }
    CHECK(driver.calls(Owner::closes) == 0);
}

TEST_CASE_TEMPLATE("an owner reports how closing went, and retries what is still open", Owner, StreamOwner, EventOwner,
                   FileOwner, PagesOwner, AddressOwner) {
    const Machine driver{HostDriver{64_MiB}};
    typename Owner::Owned owned;
    CHECK(owned.close().ok());
    REQUIRE(Owner::open(owned, driver).ok());
    const auto native = Owner::native(owned);
    driver.fail({.call = Owner::closes});
    CHECK(owned.close().code == Failure::injected_code);
    CHECK(owned.owns() == !Owner::once);
    if (!Owner::once) CHECK(Owner::native(owned) == native);
    CHECK(owned.close().ok());
    CHECK_FALSE(owned.owns());
    CHECK(Owner::native(owned) == Owner::native(typename Owner::Owned{}));
    CHECK(owned.close().ok());
    CHECK(driver.calls(Owner::closes) == (Owner::once ? 1 : 2));
    if (!Owner::once) CHECK(driver.everything_given_back());
}

TEST_CASE("OwnedPages: counts its bytes for as long as it owns them") {
    const Machine driver{HostDriver{8_MiB}};
    OwnedPages pages;
    CHECK(pages.get().bytes == 0);
    CHECK(pages.open(driver, std::size_t{16_MiB}).kind == StatusKind::out_of_memory);
    CHECK(pages.get().bytes == 0);
    REQUIRE(pages.open(driver, std::size_t{2_MiB}).ok());
    CHECK(pages.get().bytes == 2_MiB);
    driver.fail({.call = Call::release});
    CHECK_FALSE(pages.close().ok());
    CHECK(pages.get().bytes == 2_MiB);
    CHECK(pages.close().ok());
    CHECK(pages.get().bytes == 0);
    CHECK(driver.everything_given_back());
}

struct Mapped {
    Mapped() { REQUIRE(pages.open(driver, std::size_t{2_MiB}).ok()); }
    Status map(Mapping& mapping) { return mapping.open(driver, addresses.get(), pages.get().handle); }

    Machine driver{HostDriver{64_MiB}};
    Reservation addresses = test::reserved(driver, 2_MiB, 2_MiB);
    OwnedPages pages;
};

TEST_CASE("Mapping: a failing map owns nothing, and a failing unmap keeps it, to be tried again") {
    Mapped fixture;
    Mapping mapping;
    fixture.driver.fail({.call = Call::map});
    CHECK_FALSE(fixture.map(mapping).ok());
    CHECK_FALSE(mapping.owns());
    REQUIRE(fixture.map(mapping).ok());
    fixture.driver.fail({.call = Call::unmap});
    CHECK_FALSE(mapping.close().ok());
    CHECK(mapping.owns());
    CHECK(fixture.driver.mapped_bytes() == 2_MiB);
    CHECK(mapping.close().ok());
    CHECK_FALSE(mapping.owns());
    CHECK(mapping.close().ok());
    CHECK(fixture.driver.calls(Call::unmap) == 2);
    CHECK(fixture.driver.mapped_bytes() == 0);
}
} // namespace driver_owned_test
