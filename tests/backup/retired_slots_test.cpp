// A slot that could not free everything is kept, and closed again.
#include "memsaver/backup/retired_slots.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace backup_retired_slots_test {

using namespace memsaver;
using namespace memsaver::detail;

/// `close` fails a few times.
class Stubborn final : public AnySlot {
public:
    Stubborn(int failures, int& alive) : failures_{failures}, alive_{alive} { ++alive_; }
    Stubborn(const Stubborn&) = delete;
    Stubborn& operator=(const Stubborn&) = delete;
    ~Stubborn() override { --alive_; }
    void prepare(const LiveSet&) override {}
    Ticket save(const LiveSet&) override { return {}; }
    Ticket restore(const LiveSet&) override { return {}; }
    Status resumed() noexcept override { return {}; }
    void forget(std::uint64_t) noexcept override {}
    void invalidate() noexcept override {}
    [[nodiscard]] std::size_t backed_up_bytes() const noexcept override { return 0; }
    [[nodiscard]] BackupView view(std::uint64_t, std::size_t, std::size_t) const override { return {}; }
    void write(const LiveBlock&, std::size_t, const std::byte*, std::size_t) override {}
    bool load(const LiveBlock&, std::size_t, const FileRange&, const LiveSet&) override { return false; }
    void invalidate(const LiveBlock&, std::size_t, std::size_t) override {}
    void outdated() noexcept override {}
    bool set_retain(bool) noexcept override { return false; }
    [[nodiscard]] bool asks_before_write() const noexcept override { return false; }
    void saved_in_part(const std::vector<Range>&) noexcept override {}
    [[nodiscard]] bool saves_once() const noexcept override { return false; }
    Status close() noexcept override { return failures_-- > 0 ? Status{StatusKind::other, 7, "stubborn"} : Status{}; }

private:
    int failures_;
    int& alive_;
};

TEST_CASE("RetiredSlots: keeps what cannot be closed until it can") {
    int alive = 0;
    {
        RetiredSlots slots;
        CHECK(slots.add(std::make_shared<Stubborn>(0, alive)).ok());
        CHECK(alive == 0);
        CHECK(slots.add(std::make_shared<Stubborn>(2, alive)).code == 7);
        CHECK(slots.add(std::make_shared<Stubborn>(3, alive)).code == 7);
        CHECK(slots.add(std::make_shared<Stubborn>(100, alive)).code == 7);
        CHECK(alive == 3);
        CHECK(slots.retry().code == 7);
        CHECK(alive == 3);
        CHECK(!slots.retry().ok());
        CHECK(alive == 2);
        CHECK(!slots.retry().ok());
        CHECK(alive == 1);
    }
    CHECK(alive == 0); // they end it
}

} // namespace backup_retired_slots_test
