// A HostBackup whose retention can be changed at run time, as the interface requires; memsaver fixes it when the tag is
// made.
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
    SwitchedSlot(Inner inner, std::shared_ptr<const std::atomic<bool>> retain,
                 std::shared_ptr<std::atomic<bool>> retained)
        : inner_{std::move(inner)}, retain_{std::move(retain)}, retained_{std::move(retained)} {}

    void prepare(const memsaver::LiveSet& live) { inner_.prepare(live); }
    memsaver::Ticket save(const memsaver::LiveSet& live) {
        *retained_ = false; // a failed pause must not expose the bytes that it saved
        return inner_.save(live);
    }
    memsaver::Ticket restore(const memsaver::LiveSet& live) { return inner_.restore(live); }
    memsaver::Status resumed() noexcept {
        *retained_ = retain_->load();
        return *retained_ ? memsaver::Status{} : inner_.resumed(); // frees all host memory
    }
    memsaver::Status close() noexcept { return inner_.close(); }
    void forget(std::uint64_t serial) noexcept { inner_.forget(serial); }
    void invalidate() noexcept { inner_.invalidate(); }
    [[nodiscard]] std::size_t backed_up_bytes() const noexcept { return inner_.backed_up_bytes(); }
    [[nodiscard]] memsaver::BackupView view(std::uint64_t serial, std::size_t offset, std::size_t bytes) const {
        return inner_.view(serial, offset, bytes);
    }

private:
    Inner inner_;
    std::shared_ptr<const std::atomic<bool>> retain_;
    std::shared_ptr<std::atomic<bool>> retained_;
};

struct SwitchedBackup {
    memsaver::Storage storage = memsaver::Storage::pinned;
    unsigned threads = 8;
    std::shared_ptr<const std::atomic<bool>> retain{}; ///< read at each resume
    std::shared_ptr<std::atomic<bool>> retained{};     ///< whether the last resume retained; false after a save

    [[nodiscard]] std::string_view name() const noexcept {
        return storage == memsaver::Storage::pinned ? "host" : "host pageable";
    }
    template <class D>
    [[nodiscard]] auto open(const D& driver) const {
        const memsaver::HostBackup backup{.storage = storage, .retain = false, .threads = threads};
        return SwitchedSlot<decltype(backup.open(driver))>{backup.open(driver), retain, retained};
    }
    friend bool operator==(const SwitchedBackup&, const SwitchedBackup&) = default;
};

} // namespace tms
