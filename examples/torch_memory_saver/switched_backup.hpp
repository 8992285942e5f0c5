// A HostBackup whose retention can be switched while it works, and whose bytes can be read only while memory is paused:
// what the interface promises, where memsaver fixes the one with the tag and allows the other for longer.
#pragma once

#include "memsaver/backup/backup.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

namespace tms {

template <class Inner>
class SwitchedSlot {
public:
    SwitchedSlot(Inner inner, std::shared_ptr<const std::atomic<bool>> retain)
        : inner_{std::move(inner)}, retain_{std::move(retain)} {}

    void prepare(const memsaver::LiveSet& live) { inner_.prepare(live); }
    memsaver::Ticket save(const memsaver::LiveSet& live) {
        away_ = true;
        return inner_.save(live);
    }
    memsaver::Ticket restore(const memsaver::LiveSet& live) { return inner_.restore(live); }
    void resumed() noexcept {
        away_ = false;
        if (!*retain_) inner_.resumed(); // which gives everything back
    }
    void forget(std::uint64_t serial) noexcept { inner_.forget(serial); }
    void invalidate() noexcept { inner_.invalidate(); }
    [[nodiscard]] std::size_t backed_up_bytes() const noexcept { return inner_.backed_up_bytes(); }
    [[nodiscard]] memsaver::BackupView view(std::uint64_t serial, std::size_t offset, std::size_t bytes) const {
        if (!away_) throw memsaver::Misuse{"the memory is not paused"};
        return inner_.view(serial, offset, bytes);
    }

private:
    Inner inner_;
    std::shared_ptr<const std::atomic<bool>> retain_;
    std::atomic<bool> away_{false};
};

struct SwitchedBackup {
    memsaver::Storage storage = memsaver::Storage::pinned;
    unsigned threads = 8;
    std::shared_ptr<const std::atomic<bool>> retain{};

    [[nodiscard]] std::string_view name() const noexcept {
        return storage == memsaver::Storage::pinned ? "host" : "host pageable";
    }
    template <class D>
    [[nodiscard]] auto open(const D& driver) const {
        const memsaver::HostBackup backup{.storage = storage, .retain = false, .threads = threads};
        return SwitchedSlot<decltype(backup.open(driver))>{backup.open(driver), retain};
    }
    friend bool operator==(const SwitchedBackup&, const SwitchedBackup&) = default;
};

} // namespace tms
