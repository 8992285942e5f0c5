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
    std::vector<std::uint64_t> discarded;
    std::size_t room = 0;
    int clears = 0;
    Status status{};
    Status held{};

    [[nodiscard]] std::size_t alignment() const noexcept override { return 256; }
    Status put(const std::byte*, std::uint64_t, std::size_t) const noexcept override { return {}; }
    Status get(std::byte*, std::uint64_t, std::size_t) const noexcept override { return {}; }
    Room grow(std::size_t bytes, const LiveSet&) override {
        const Room made{4096 + room, bytes};
        room += bytes;
        return made;
    }
    void shrink(LocationSpace&) noexcept override {}
    Status clear() noexcept override {
        ++clears;
        room = 0;
        return retry();
    }
    Status retry() noexcept override { return held; }
    void discard(std::uint64_t location, std::size_t) noexcept override { discarded.push_back(location); }
    void prepare(detail::Vector<Unit>) override {}
    [[nodiscard]] detail::UniquePtr<Transfer> moved() const {
        auto transfer = detail::UniquePtr<Transfer>::make(HostDriver{}, detail::Vector<Piece>(1), CrewOptions{},
                                                          ProgressSink{}, detail::UniquePtr<Done>::make(status));
        transfer->start();
        return transfer;
    }
    detail::UniquePtr<Transfer> start(Direction direction, detail::Vector<Unit> units, const LiveSet&,
                                      const std::vector<Range>&) override {
        (direction == Direction::out ? saved : restored) = std::move(units);
        return moved();
    }
    void change(const Unit&, std::size_t, const std::byte*, std::size_t) override {}
    [[nodiscard]] BackupView view(std::uint64_t location, std::size_t bytes) const override {
        return {nullptr, reinterpret_cast<const std::byte*>(location), bytes}; // NOLINT(performance-no-int-to-ptr)
    }
};

constexpr Address base = 0x10000;

struct Fixture {
    explicit Fixture(StoredSlotOptions options = {}) : slot{place, options} {}

    [[nodiscard]] LiveSet live() const {
        LiveSet set;
        set.extents = {{base, 64_KiB}};
        set.blocks = [this] { return blocks; };
        return set;
    }
    Status save() { return slot.save(live()).wait(); }
    Status restore() { return slot.restore(live()).wait(); }

    std::shared_ptr<Place> place = std::make_shared<Place>();
    StoredSlot slot;
    std::vector<LiveBlock> blocks{{base, 512, 1}, {base + 1024, 256, 2}};
};

static_assert(BackupSlot<StoredSlot>);

TEST_CASE("StoredSlot: a block that is given up frees its place at the next operation, after its transfer") {
    Fixture f;
    REQUIRE(f.save().ok());
    f.slot.forget(1);
    f.slot.forget(1);
    CHECK(f.place->discarded.empty()); // the caller of forget holds locks of the arena
    CHECK(f.slot.backed_up_bytes() == 256);
    f.slot.forget(99); // never seen
    f.blocks.erase(f.blocks.begin());
    {
        Ticket saving = f.slot.save(f.live());
        CHECK(f.place->discarded.size() == 1);
        f.slot.forget(2);
        CHECK(f.place->discarded.size() == 1);
        CHECK(saving.wait().ok());
        CHECK(f.slot.backed_up_bytes() == 0); // saved, but owned by no block
    }
    f.blocks = {{base, 512, 3}};
    REQUIRE(f.save().ok());
    CHECK(f.place->discarded.size() == 2);
    CHECK(f.place->room == 768); // in the space of the freed ones
}

TEST_CASE("StoredSlot: the blocks of a failed save whose copies ran anyway are restored, and saved again") {
    Fixture f{{.refresh = Refresh::once}};
    f.place->status = {StatusKind::other, 1, "failed"};
    CHECK_FALSE(f.save().ok());
    CHECK(f.slot.backed_up_bytes() == 0);
    f.slot.saved_in_part({{base, 1024}});
    CHECK(f.slot.backed_up_bytes() == 512);
    CHECK(f.slot.view(1, 0, 1).size_bytes == 1);
    CHECK_THROWS_AS((void)f.slot.view(2, 0, 1), Misuse);
    f.place->status = {};
    CHECK(f.restore().ok());
    CHECK(f.place->restored.size() == 1);
    CHECK(f.save().ok());
    CHECK(f.place->saved.size() == 2);
}
} // namespace backup_stored_slot_test
