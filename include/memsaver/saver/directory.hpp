// Which arena an address belongs to. Readers take no lock.
#pragma once

#include "memsaver/transfer/range.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

namespace memsaver::inline v0_1 {

class ArenaBase;

/// Address ranges are only ever added, so a reader may go on with an older table; all tables live as long as this.
class Directory {
public:
    /// May throw bad_alloc; then nothing changed.
    void add(Range range, ArenaBase& arena) {
        const std::lock_guard lock{mutex_};
        auto table = std::make_unique<Table>();
        if (!tables_.empty()) *table = *tables_.back();
        const auto at = std::lower_bound(table->begin(), table->end(), range.address,
                                         [](const Entry& entry, Address a) { return entry.range.address < a; });
        table->insert(at, Entry{range, &arena});
        tables_.push_back(std::move(table));
        newest_.store(tables_.back().get(), std::memory_order_release);
    }

    /// The arena whose addresses hold `address`, or null.
    [[nodiscard]] ArenaBase* find(Address address) const noexcept {
        const Table* table = newest_.load(std::memory_order_acquire);
        if (table == nullptr) return nullptr;
        const auto after = std::upper_bound(table->begin(), table->end(), address,
                                            [](Address a, const Entry& entry) { return a < entry.range.address; });
        if (after == table->begin() || address >= std::prev(after)->range.end()) return nullptr;
        return std::prev(after)->arena;
    }

private:
    struct Entry {
        Range range;
        ArenaBase* arena;
    };
    using Table = std::vector<Entry>;

    std::mutex mutex_;
    std::vector<std::unique_ptr<Table>> tables_;
    std::atomic<const Table*> newest_{nullptr};
};

} // namespace memsaver::inline v0_1
