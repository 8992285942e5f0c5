// Comparing wrappers see every byte, store none, and propagate failures.
#include "memsaver/backup/store.hpp"
#include "support/machines.hpp"

namespace backup_compare_test {
using namespace test;

/// Bytes from location 0 on.
struct Kept final : ByteStore {
    explicit Kept(std::vector<std::byte> kept, Status answer = {}) : bytes{std::move(kept)}, status{answer} {}

    [[nodiscard]] std::size_t alignment() const noexcept override { return 256; }
    Status put(const std::byte*, std::uint64_t, std::size_t) const noexcept override {
        return {StatusKind::other, 0, "a put"};
    }
    Status get(std::byte* to, std::uint64_t location, std::size_t count) const noexcept override {
        CHECK(reinterpret_cast<std::uintptr_t>(to) % 256 == 0);
        std::memcpy(to, bytes.data() + location, count);
        return status;
    }

    std::vector<std::byte> bytes;
    Status status;
};

TEST_CASE("ComparingStore: a single byte, wherever it is") {
    constexpr std::size_t bytes = 3_MiB + 100; // more than it compares in one step
    for (const std::size_t at : {std::size_t{0}, std::size_t{1_MiB}, bytes - 1}) {
        Kept kept{std::vector<std::byte>(bytes, std::byte{1})};
        std::vector<std::byte> there = kept.bytes;
        const ComparingStore comparing{kept};
        CHECK(comparing.put(there.data(), 0, bytes).ok());
        CHECK_FALSE(comparing.differs());
        there[at] = std::byte{2};
        there.back() = std::byte{3}; // also differs
        CHECK(comparing.put(there.data(), 0, bytes).ok());
        CHECK(comparing.differs());
        CHECK(comparing.first_difference() == at);
        CHECK(comparing.put(kept.bytes.data(), 0, bytes).ok());
        CHECK(comparing.differs()); // one difference is enough
    }
}

TEST_CASE("a difference is named: the tag, the byte and its block") {
    const detail::Vector<Unit> units{{0x10000, 4096, 1024}, {0x20000, 8192, 2048}};
    const std::string text = difference_text(units, 8192 + 2047, "frozen");
    CHECK(text ==
          "tag \"frozen\": bytes have changed since their only save, for example at 0x207ff, in a block of 2.00 KiB "
          "at 0x20000; call invalidate(\"frozen\") after changing them");
}

TEST_CASE("ComparingStore: bytes that cannot be read are a failure, not a difference") {
    Kept kept{std::vector<std::byte>(1000, std::byte{1}), {StatusKind::other, 3, "unreadable"}};
    const ComparingStore comparing{kept};
    CHECK(comparing.put(kept.bytes.data(), 0, 1000).code == 3);
    CHECK_FALSE(comparing.differs());
}
} // namespace backup_compare_test
