// Device memory with bytes in it, for transfers without an arena.
#pragma once

#include "memsaver/backup/backup.hpp"
#include "support/machines.hpp"

namespace transfer_test {
using namespace memsaver;
using namespace memsaver::detail;
using Faulty = FaultyDriver<HostDriver>;

/// A driver's plain memory.
template <class D = Faulty>
struct PlainBytes {
    PlainBytes(const D& driver, std::size_t bytes) : driver_{driver}, bytes_{bytes} {
        REQUIRE(driver_.allocate_plain(bytes, address_).ok());
    }
    ~PlainBytes() { CHECK(driver_.free_plain(address_).ok()); }

    [[nodiscard]] Address address() const { return address_; }
    [[nodiscard]] void* pointer() const { return reinterpret_cast<void*>(address_); }
    void write(std::uint64_t seed) const { test::write_pattern(driver_, pointer(), bytes_, seed); }
    [[nodiscard]] bool has(std::uint64_t seed) const { return test::has_pattern(driver_, pointer(), bytes_, seed); }

private:
    D driver_;
    std::size_t bytes_;
    Address address_ = 0;
};

/// Stores multiples of the alignment; fails on request.
struct Shelf final : ByteStore {
    static constexpr std::size_t page = 4096;

    explicit Shelf(std::size_t room) : bytes_(room) {}
    [[nodiscard]] std::size_t alignment() const noexcept override { return page; }
    Status put(const std::byte* from, std::uint64_t location, std::size_t bytes) const noexcept override {
        if (location % page != 0 || bytes % page != 0) return {StatusKind::other, 1, "not a whole multiple"};
        if (fail_at != 0 && ++calls_ == fail_at) return {StatusKind::other, 2, "no room on the shelf"};
        std::memcpy(bytes_.data() + location, from, bytes);
        return {};
    }
    Status get(std::byte* to, std::uint64_t location, std::size_t bytes) const noexcept override {
        if (location % page != 0 || bytes % page != 0) return {StatusKind::other, 1, "not a whole multiple"};
        if (fail_at != 0 && ++calls_ == fail_at) return {StatusKind::other, 2, "the shelf is gone"};
        std::memcpy(to, bytes_.data() + location, bytes);
        return {};
    }
    std::size_t fail_at = 0;
    mutable std::vector<std::byte> bytes_;

private:
    mutable std::atomic<std::size_t> calls_{0};
};

inline Faulty late_machine() { return Faulty{HostDriver{512_MiB, {.poison = true, .late = true}}}; }

/// Records the largest reported number of bytes.
struct Done {
    [[nodiscard]] ProgressSink sink() {
        return [most = most_](std::size_t done, std::size_t total) {
            std::size_t before = most->load();
            while (before < done && !most->compare_exchange_weak(before, done)) {
            }
            CHECK(done <= total);
        };
    }
    [[nodiscard]] std::size_t bytes() const { return most_->load(); }

private:
    std::shared_ptr<std::atomic<std::size_t>> most_ = std::make_shared<std::atomic<std::size_t>>(0);
};
} // namespace transfer_test
