// A type-erased policy is still the same policy, and its slot is given the files to read.
#include "support/machines.hpp"

namespace backup_any_backup_test {
using namespace test;
using Any = AnyPolicy;
static_assert(std::is_convertible_v<Zero, Any> && std::is_convertible_v<Discard&, Any>);
static_assert(!std::is_constructible_v<Any, int>);
static_assert(std::is_copy_constructible_v<Any> && std::is_copy_assignable_v<Any>);

/// Is given files to read. Cannot be moved.
struct ReadingSlot {
    ReadingSlot() = default;
    ReadingSlot(ReadingSlot&&) = delete;
    static void prepare(const LiveSet&) {}
    static Ticket save(const LiveSet&) { return Ticket{nullptr, 1}; }
    static Ticket restore(const LiveSet&) { return Ticket{nullptr, 2}; }
    static void resumed() noexcept {}
    static void forget(std::uint64_t) noexcept {}
    static void invalidate() noexcept {}
    [[nodiscard]] static std::size_t backed_up_bytes() noexcept { return 42; }
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
    int option = 0;
    [[nodiscard]] static std::string_view name() noexcept { return "reading"; }
    [[nodiscard]] static ReadingSlot open(const AnyDriver&) { return {}; }
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
    CHECK(Any{Reading{1}} == Any{Reading{1}});
    CHECK(Any{Reading{1}} != Any{Reading{2}});
    CHECK(zero.name() == "zero");
    CHECK(Any{Discard{}}.name() == "discard");
    CHECK(Any{FileBackup{}}.name() == "file");
    CHECK(Any{FileBackup{.refresh = Refresh::once}}.name() == "file, once");
}

TEST_CASE("AnyPolicy: a slot that reads files is given the block as memory that is mapped") {
    TaggedArena arena{HostDriver{64_MiB}, "tag", Reading{}};
    arena.load(static_cast<char*>(arena.allocate(1_MiB)) + 7, 10, "file", 3);
}
} // namespace backup_any_backup_test
