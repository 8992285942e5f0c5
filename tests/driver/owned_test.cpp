// Resources are returned to the driver once, by their last owner. A resource that could not be acquired is not owned,
// and one that could not be released stays owned, unless it is gone anyway.
#include "support/machines.hpp"

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
} // namespace driver_owned_test
