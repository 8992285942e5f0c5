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
