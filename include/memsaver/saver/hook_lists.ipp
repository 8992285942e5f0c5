// Definitions of hook_lists.hpp.
#pragma once

#include "memsaver/core/lists.hpp"
#include "memsaver/saver/hook_lists.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

struct HookTable::State {
    struct Entry {
        std::uint64_t key;
        HookKind kind;
        std::shared_ptr<void> function;
    };
    using Entries = std::vector<Entry>;

    explicit State(std::shared_ptr<const ForkCheck> check) : fork{std::move(check)} {}

    /// Returns the first entry whose key is larger.
    [[nodiscard]] Entries::iterator after(std::uint64_t key) {
        return std::partition_point(entries.begin(), entries.end(), [&](const Entry& each) { return each.key <= key; });
    }

    std::shared_ptr<const ForkCheck> fork; // checked before the lock is taken
    std::atomic<std::uint64_t> last_key{0};
    std::mutex mutex; // guards the members below
    Entries entries;  // by key
};

MEMSAVER_INLINE HookTable::HookTable(std::shared_ptr<const ForkCheck> fork)
    : state_{std::make_shared<State>(std::move(fork))} {}

MEMSAVER_INLINE Hook HookTable::add(HookKind kind, std::shared_ptr<void> function) {
    const std::uint64_t key = state_->last_key.fetch_add(1) + 1;
    Hook hook{[weak = std::weak_ptr{state_}, key] {
        const auto state = weak.lock();
        if (state == nullptr || state->fork->forked()) return;
        std::shared_ptr<void> ending; // destroyed after unlocking: it may own hooks of this list
        const std::lock_guard lock{state->mutex};
        const auto entry = state->after(key - 1);
        if (entry == state->entries.end() || entry->key != key) return;
        ending = std::move(entry->function);
        state->entries.erase(entry);
    }};
    const std::lock_guard lock{state_->mutex};
    state_->entries.insert(state_->after(key), {key, kind, std::move(function)});
    return hook;
}

MEMSAVER_INLINE bool HookTable::empty(HookKind kind) const noexcept {
    const std::lock_guard lock{state_->mutex};
    return !any_in(state_->entries, [&](const State::Entry& each) { return each.kind == kind; });
}

MEMSAVER_INLINE void HookTable::each(HookKind kind, FunctionRef<void(void*)> run, bool all) const {
    std::exception_ptr first;
    const std::uint64_t last = state_->last_key.load();
    for (std::uint64_t key = 0;;) {
        std::shared_ptr<void> function; // keeps it alive while it runs
        {
            const std::lock_guard lock{state_->mutex};
            auto next = state_->after(key);
            while (next != state_->entries.end() && next->kind != kind) ++next;
            if (next == state_->entries.end() || next->key > last) break;
            key = next->key;
            function = next->function;
        }
        try {
            run(function.get());
        } catch (...) {
            if (!all) throw;
            if (!first) first = std::current_exception();
        }
    }
    if (first) std::rethrow_exception(first);
}

MEMSAVER_INLINE Running::Entry::Entry(Running& all, Kind kind, const std::vector<std::string>* tags) noexcept
    : all_{all}, kind_{kind}, tags_{tags} {
    const std::lock_guard lock{all_.mutex_};
    all_.count_ += 1;
    after_ = std::exchange(all_.entries_, this);
    if (after_ != nullptr) after_->before_ = this;
}

MEMSAVER_INLINE Running::Entry::~Entry() {
    if (all_.fork_->forked()) return;
    const std::lock_guard lock{all_.mutex_};
    all_.count_ -= 1;
    (before_ != nullptr ? before_->after_ : all_.entries_) = after_;
    if (after_ != nullptr) after_->before_ = before_;
}

MEMSAVER_INLINE bool Running::here(Kind kind) {
    const std::lock_guard lock{mutex_};
    const Entry* entry = entries_;
    while (entry != nullptr && (entry->thread_ != std::this_thread::get_id() || entry->kind_ != kind))
        entry = entry->after_;
    return entry != nullptr;
}

MEMSAVER_INLINE bool Running::here_for(const std::vector<std::string>& tags) {
    const std::lock_guard lock{mutex_};
    for (const Entry* entry = entries_; entry != nullptr; entry = entry->after_) {
        if (entry->thread_ != std::this_thread::get_id() || entry->kind_ != Kind::hook) continue;
        for (const std::string& tag : *entry->tags_) {
            if (is_in(tags, tag)) return true;
        }
    }
    return false;
}

} // namespace detail

} // namespace memsaver::inline v0_3
