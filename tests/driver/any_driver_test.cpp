// A type-erased driver makes the same calls, and returns `unsupported` if the driver lacks one.
#include "memsaver/driver/any_driver.hpp"
#include "memsaver/host/host_driver.hpp"
#include "support/gullible.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace driver_any_driver_test {

using namespace test;

namespace {

using Faulty = FaultyDriver<Gullible>;

/// The required calls of a driver, and no others.
class Poor {
public:
    bool operator==(const Poor&) const = default;
    int device() const noexcept { return 2; }
    std::string name() const { return "poor"; }

    Status granularity(std::size_t& bytes) const noexcept { return all_.granularity(bytes); }
    Status memory(DeviceMemory& memory) const noexcept { return all_.memory(memory); }
    Status reserve(std::size_t n, std::size_t m, Address& a) const noexcept { return all_.reserve(n, m, a); }
    Status unreserve(Address a, std::size_t n) const noexcept { return all_.unreserve(a, n); }
    Status create(std::size_t n, PageHandle& handle) const noexcept { return all_.create(n, handle); }
    Status release(PageHandle handle) const noexcept { return all_.release(handle); }
    Status map(Address a, std::size_t n, PageHandle handle) const noexcept { return all_.map(a, n, handle); }
    Status unmap(Address a, std::size_t n) const noexcept { return all_.unmap(a, n); }
    Status allow_access(Address a, std::size_t n) const noexcept { return all_.allow_access(a, n); }
    Status open_stream(StreamRef& stream) const noexcept { return all_.open_stream(stream); }
    Status close_stream(StreamRef stream) const noexcept { return all_.close_stream(stream); }
    Status open_event(StreamRef near, EventRef& event) const noexcept { return all_.open_event(near, event); }
    Status close_event(EventRef event) const noexcept { return all_.close_event(event); }
    Status record(EventRef event, StreamRef stream) const noexcept { return all_.record(event, stream); }
    Status record_device(EventRef event) const noexcept { return all_.record_device(event); }
    Status follow(StreamRef stream, EventRef event) const noexcept { return all_.follow(stream, event); }
    Status query(EventRef event, bool& passed) const noexcept { return all_.query(event, passed); }
    Status wait(EventRef event) const noexcept { return all_.wait(event); }
    Status drain() const noexcept { return all_.drain(); }
    Status capturing(StreamRef stream, bool& yes) const noexcept { return all_.capturing(stream, yes); }
    Status copy_to_host(void* p, Address a, std::size_t n, StreamRef s) const noexcept {
        return all_.copy_to_host(p, a, n, s);
    }
    Status copy_to_device(Address a, const void* p, std::size_t n, StreamRef s) const noexcept {
        return all_.copy_to_device(a, p, n, s);
    }
    Status fill(Address a, unsigned char byte, std::size_t n, StreamRef s) const noexcept {
        return all_.fill(a, byte, n, s);
    }

private:
    Gullible all_;
};
static_assert(Driver<Poor> && !Plain<Poor> && !Captures<Poor> && !HostPages<Poor> && !Files<Poor>);

} // namespace

static_assert(Driver<AnyDriver> && Plain<AnyDriver> && Captures<AnyDriver> && Trims<AnyDriver>);
static_assert(Shared<AnyDriver> && Named<AnyDriver> && StreamOwners<AnyDriver> && Lanes<AnyDriver> &&
              HostPages<AnyDriver> && Files<AnyDriver> && Peers<AnyDriver> && BatchCopies<AnyDriver> &&
              KernelCopies<AnyDriver>);
static_assert(std::is_nothrow_copy_constructible_v<AnyDriver> && std::is_nothrow_copy_assignable_v<AnyDriver>);
static_assert(!std::is_constructible_v<AnyDriver, int> && !std::is_default_constructible_v<AnyDriver>);

TEST_CASE("AnyDriver: every call arrives with its arguments, and what it gives comes back") {
    const Faulty direct{Gullible{}};
    const OneOfEach expected = one_of_each(direct);
    const Faulty inside{Gullible{}};
    const AnyDriver any{inside};
    const OneOfEach made = one_of_each(any);
    CHECK(made.failed.empty());
    CHECK(made.outputs == expected.outputs);
    CHECK(inside.log() == direct.log());
    CHECK(inside.calls() == call_kinds + 1); // one is made twice
    CHECK(inside.inner().state().heard == direct.inner().state().heard);
    CHECK(any.device() == 3);
    CHECK(any.name() == "gullible");
    CHECK(any.numa_node() == 5);
    CHECK(AnyDriver{Gullible{}}.numa_node() == 5);
}

TEST_CASE("AnyDriver: what the driver answers is answered") {
    const Faulty inside{Gullible{}};
    const AnyDriver any{inside};
    inside.fail({.lasting = Lasting::onwards, .kind = StatusKind::gone});
    CHECK(one_of_each(any).failed.size() == call_kinds + 1);
    CHECK(any.drain().code == Failure::injected_code);
    CHECK(any.drain().kind == StatusKind::gone);
}

TEST_CASE("AnyDriver: what a driver lacks is unsupported, what it has is not") {
    const AnyDriver any{Poor{}};
    CHECK(any.numa_node() == -1);
    const std::vector<Call> failed = one_of_each(any).failed;
    const std::vector<Call> lacked{Call::reach_peer,     Call::copy_peer,   Call::copy_many,     Call::copy_by_kernel,
                                   Call::allocate_plain, Call::free_plain,  Call::begin_capture, Call::end_capture,
                                   Call::update_graph,   Call::launch,      Call::close_graph,   Call::follow_outside,
                                   Call::lane,           Call::owns_stream, Call::pool_memory,   Call::trim_pool,
                                   Call::host_available, Call::map_host,    Call::populate_host, Call::pin_host,
                                   Call::unpin_host,     Call::unmap_host,  Call::open_file,     Call::allocate_file,
                                   Call::write_file,     Call::read_file,   Call::punch_file,    Call::close_file,
                                   Call::open_source,    Call::file_facts,  Call::file_cached,   Call::close_file};
    CHECK(failed == lacked);
    void* pages = nullptr;
    bool yes = false;
    CHECK(any.map_host(page, pages).kind == StatusKind::unsupported);
    CHECK(any.owns_event({}, yes).kind == StatusKind::unsupported);
    CHECK_THROWS_AS(check(any.map_host(page, pages), "map host pages"), Unavailable);
    CHECK(AnyDriver{Gullible{}}.owns_event({}, yes).kind == StatusKind::unsupported);
    any.name_addresses(page, page, "nobody"); // a no-op
}

TEST_CASE("AnyDriver: names of addresses arrive") {
    const Gullible inside;
    AnyDriver{FaultyDriver{inside}}.name_addresses(page, 3 * page, "weights");
    CHECK(inside.state().heard == "name " + std::to_string(3 * page) + '\n');
}

TEST_CASE("AnyDriver: equal where type and value are, and finds the driver that it was made from") {
    const Gullible one;
    const Gullible other;
    const Faulty faulty{one};
    const AnyDriver any{one};
    const AnyDriver copy = any;
    CHECK(any == copy);
    CHECK(any == AnyDriver{one});
    CHECK(any != AnyDriver{other});
    CHECK(any != AnyDriver{faulty});
    CHECK(any == one); // arguments accept drivers directly
    REQUIRE(any.target<Gullible>() != nullptr);
    CHECK(*any.target<Gullible>() == one);
    CHECK(any.target<Faulty>() == nullptr);
    REQUIRE(AnyDriver{faulty}.target<Faulty>() != nullptr);
    CHECK(*AnyDriver{faulty}.target<Faulty>() == faulty);
}

TEST_CASE("AnyDriver: one that was moved from is whole") {
    AnyDriver any{Gullible{}};
    const AnyDriver moved = std::move(any);
    CHECK(any == moved); // NOLINT(bugprone-use-after-move): a move copies
    CHECK(any.drain().ok());
}

} // namespace driver_any_driver_test
