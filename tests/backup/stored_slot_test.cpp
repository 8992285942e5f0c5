// The slot's bookkeeping, with a store that only records its calls.
#include "memsaver/backup/store.hpp"
#include "support/machines.hpp"

namespace backup_stored_slot_test {
using namespace test;

/// Moves nothing: all has arrived, or the transfer fails, at once.
struct Done final : Transfer::Way {
    explicit Done(Status status) : status_{status} {}
    std::size_t start(Transfer& transfer) override {
        status_.ok() ? transfer.arrived(0) : transfer.fail(status_);
        return 0;
    }
    void work(Transfer&) override {}

private:
    Status status_;
};

/// Has unlimited space from location 4096 on.
struct Place final : BackupStore {
    Place() : BackupStore{HostDriver{}, {}, 2_MiB, "read"} {}
    detail::Vector<Unit> saved, restored;
    std::size_t room = 0;
    Status status{};

    [[nodiscard]] std::size_t alignment() const noexcept override { return 256; }
    Status put(const std::byte*, std::uint64_t, std::size_t) const noexcept override { return {}; }
    Status get(std::byte*, std::uint64_t, std::size_t) const noexcept override { return {}; }
    Room grow(std::size_t bytes, const LiveSet&) override {
        const Room made{4096 + room, bytes};
        room += bytes;
        return made;
    }
    void shrink(LocationSpace&) noexcept override {}
    Status clear() noexcept override { return {}; }
    Status retry() noexcept override { return {}; }
    void discard(std::uint64_t, std::size_t) noexcept override {}
    void prepare(detail::Vector<Unit>) override {}
    detail::UniquePtr<Transfer> start(Direction direction, detail::Vector<Unit> units, const LiveSet&) override {
        (direction == Direction::out ? saved : restored) = std::move(units);
        auto transfer = detail::UniquePtr<Transfer>::make(HostDriver{}, detail::Vector<Piece>(1), CrewOptions{},
                                                          ProgressSink{}, detail::UniquePtr<Done>::make(status));
        transfer->start();
        return transfer;
    }
    void change(const Unit&, std::size_t, const std::byte*, std::size_t) override {}
    [[nodiscard]] BackupView view(std::uint64_t location, std::size_t bytes) const override {
        return {nullptr, reinterpret_cast<const std::byte*>(location), bytes}; // NOLINT(performance-no-int-to-ptr)
    }
};

static_assert(BackupSlot<StoredSlot>);

TEST_CASE("StoredSlot: the blocks of a failed save whose copies ran anyway are restored, and saved again") {
    constexpr Address base = 0x10000;
    const auto place = std::make_shared<Place>();
    StoredSlot slot{place, {.refresh = Refresh::once}};
    const LiveSet live{{{base, 64_KiB}}, [] { return std::vector<LiveBlock>{{base, 512, 1}, {base + 1024, 256, 2}}; }};
    place->status = {StatusKind::other, 1, "failed"};
    CHECK_FALSE(slot.save(live).wait().ok());
    CHECK(slot.backed_up_bytes() == 0);
    slot.saved_in_part({{base, 1024}});
    CHECK(slot.backed_up_bytes() == 512);
    CHECK(slot.view(1, 0, 1).size_bytes == 1);
    CHECK_THROWS_AS((void)slot.view(2, 0, 1), Misuse);
    place->status = {};
    CHECK(slot.restore(live).wait().ok());
    CHECK(place->restored.size() == 1);
    CHECK(slot.save(live).wait().ok());
    CHECK(place->saved.size() == 2);
    slot.invalidate();
    place->status = {StatusKind::other, 1, "failed"};
    CHECK_FALSE(slot.save(live).wait().ok()); // in the place of what was saved
    CHECK(slot.backed_up_bytes() == 0);
    CHECK_THROWS_AS((void)slot.view(1, 0, 1), Misuse);
}
} // namespace backup_stored_slot_test
