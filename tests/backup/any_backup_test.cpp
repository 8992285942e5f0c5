// A type-erased policy is still the same policy, and its slot receives every call.
#include "backup/slot_support.hpp"
#include "support/machines.hpp"

namespace backup_any_backup_test {
using namespace slot_test;
using Any = AnyPolicy;
static_assert(std::is_convertible_v<Zero, Any> && std::is_convertible_v<Discard&, Any>);
static_assert(!std::is_constructible_v<Any, int>);
static_assert(std::is_copy_constructible_v<Any> && std::is_copy_assignable_v<Any>);

using Calls = std::vector<std::string>;

/// Logs its calls. Cannot be moved.
struct LoggingSlot {
    explicit LoggingSlot(Calls& calls) : calls_{calls} {}
    LoggingSlot(LoggingSlot&&) = delete;
    ~LoggingSlot() { calls_.push_back("end"); }
    void prepare(const LiveSet& live) { calls_.push_back("prepare " + std::to_string(live.extents.size())); }
    Ticket save(const LiveSet&) {
        calls_.push_back("save");
        return Ticket{nullptr, 1};
    }
    Ticket restore(const LiveSet&) {
        calls_.push_back("restore");
        return Ticket{nullptr, 2};
    }
    void resumed() noexcept { calls_.push_back("resumed"); }
    void forget(std::uint64_t serial) noexcept { calls_.push_back("forget " + std::to_string(serial)); }
    void invalidate() noexcept { calls_.push_back("invalidate"); }
    [[nodiscard]] std::size_t backed_up_bytes() const noexcept { return 42; }

private:
    Calls& calls_;
};

struct Logging {
    Calls* calls = nullptr;
    int option = 0;
    [[nodiscard]] std::string_view name() const noexcept { return "logging"; }
    [[nodiscard]] LoggingSlot open(const AnyDriver&) const { return LoggingSlot{*calls}; }
    friend bool operator==(const Logging&, const Logging&) = default;
};
static_assert(Backup<Logging>);

/// Reports the resources that it could not free.
struct ClosingSlot : LoggingSlot {
    using LoggingSlot::LoggingSlot;
    Status resumed() noexcept { return {StatusKind::other, 3, "resumed"}; }
    Status close() noexcept { return {StatusKind::other, 4, "close"}; }
};

struct Closing {
    Calls* calls = nullptr;
    [[nodiscard]] std::string_view name() const noexcept { return "closing"; }
    [[nodiscard]] ClosingSlot open(const AnyDriver&) const { return ClosingSlot{*calls}; }
    friend bool operator==(const Closing&, const Closing&) = default;
};
static_assert(Backup<Closing>);

/// Is given files to read.
struct ReadingSlot : LoggingSlot {
    using LoggingSlot::LoggingSlot;
    static void load(const LiveBlock& block, std::size_t offset, const FileRange& from, const LiveSet& live) {
        CHECK(offset == 7);
        CHECK(from.offset == 3);
        CHECK(from.bytes == 10);
        REQUIRE(live.extents.size() == 1);
        CHECK(live.extents[0].address == block.address);
        CHECK(live.extents[0].bytes == block.bytes);
        CHECK(live.blocks().size() == 1);
    }
};

struct Reading {
    Calls* calls = nullptr;
    [[nodiscard]] std::string_view name() const noexcept { return "reading"; }
    [[nodiscard]] ReadingSlot open(const AnyDriver&) const { return ReadingSlot{*calls}; }
    friend bool operator==(const Reading&, const Reading&) = default;
};
static_assert(Backup<Reading>);

TEST_CASE("AnyPolicy: equal if type and value are") {
    const Any zero{Zero{}};
    const Any copy = zero;
    CHECK(zero == copy);
    CHECK(zero == Any{Zero{}});
    CHECK(zero != Any{Discard{}});
    CHECK(Any{Discard{}} != Any{Discard{.poison = static_cast<unsigned char>(1)}});
    CHECK(Any{Logging{nullptr, 1}} == Any{Logging{nullptr, 1}});
    CHECK(Any{Logging{nullptr, 1}} != Any{Logging{nullptr, 2}});
    CHECK(zero.name() == "zero");
    CHECK(Any{Discard{}}.name() == "discard");
}

TEST_CASE("AnyPolicy: a slot that reads files is given the block as memory that is mapped") {
    Calls calls;
    TaggedArena arena{HostDriver{64_MiB}, "tag", Reading{&calls}};
    arena.load(static_cast<char*>(arena.allocate(1_MiB)) + 7, 10, "file", 3);
}

TEST_CASE("AnyPolicy: a slot's report of a failed release is passed on") {
    const Faulty driver{HostDriver{64_MiB}};
    Calls calls;
    const auto slot = Any{Closing{&calls}}.open(driver);
    CHECK(slot->resumed().code == 3);
    CHECK(slot->close().code == 4);
}
} // namespace backup_any_backup_test
