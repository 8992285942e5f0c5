// Blocks that the program has given up while work may still touch them. Does not know whose they are.
#pragma once

#include "memsaver/memory/memory.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

/// Three kinds: freed with a stream (an event of its own tells when it has passed), freed without (waiting for the next
/// time that the whole device is known to have passed, a *fence*), and freed inside a capture (replays may touch them
/// for ever: kept). Fences are numbered from 1; a block carries the number of the last fence begun before it was freed.
/// Not thread safe.
template <Streams D>
class DeferredFrees {
public:
    /// May throw bad_alloc; then nothing changed.
    void after_fence(Address address, std::size_t bytes, std::uint64_t last_fence) {
        fenced_.push_back({address, bytes, last_fence});
        fenced_bytes_ += bytes;
    }

    /// Marks `stream` now. Throws bad_alloc, or answers the status of a failing driver call; then nothing changed.
    Status after_stream(const D& driver, Address address, StreamRef stream) {
        spare_.reserve(most_spare); // so that collecting needs no memory
        marked_.push_back({address, {}});
        Status status{StatusKind::other, 0, ""};
        if (!spare_.empty()) { // of the arena's device; a stream of another one refuses it
            marked_.back().event = std::move(spare_.back());
            spare_.pop_back();
            status = driver.record(marked_.back().event.get(), stream);
        }
        if (!status.ok()) {
            OwnedEvent<D> fresh;
            status = fresh.open(driver, stream);
            if (status.ok()) status = driver.record(fresh.get(), stream);
            marked_.back().event = std::move(fresh);
        }
        if (!status.ok()) marked_.pop_back();
        return status;
    }

    void keep(Address address) { kept_.push_back(address); }

    /// Calls `reclaim(address)` for every block that has been passed, `last_done` being the last fence that is. Needs
    /// no memory.
    template <class Reclaim>
    void collect(const D& driver, std::uint64_t last_done, Reclaim&& reclaim) {
        while (!fenced_.empty() && fenced_.front().last_fence < last_done) pop_fenced(reclaim);
        for (std::size_t i = 0; i < marked_.size();) {
            bool passed = false;
            if (!driver.query(marked_[i].event.get(), passed).ok() || !passed) {
                ++i;
                continue;
            }
            reclaim(marked_[i].address);
            if (spare_.size() < most_spare) spare_.push_back(std::move(marked_[i].event));
            if (i + 1 != marked_.size()) marked_[i] = std::move(marked_.back());
            marked_.pop_back();
        }
    }

    /// Calls `reclaim(address)` for the blocks that `gone(address)` says no work can touch any more. Needs no
    /// memory.
    template <class Gone, class Reclaim>
    void collect_if(Gone&& gone, Reclaim&& reclaim) {
        std::erase_if(fenced_, [&](const Fenced& fenced) {
            if (!gone(fenced.address)) return false;
            fenced_bytes_ -= fenced.bytes;
            reclaim(fenced.address);
            return true;
        });
        std::erase_if(marked_, [&](Marked& marked) {
            if (!gone(marked.address)) return false;
            reclaim(marked.address);
            return true;
        });
    }

    /// Bytes that the next fence would make reusable.
    [[nodiscard]] std::size_t fenced_bytes() const noexcept { return fenced_bytes_; }

private:
    static constexpr std::size_t most_spare = 64;

    struct Fenced {
        Address address;
        std::size_t bytes;
        std::uint64_t last_fence;
    };
    struct Marked {
        Address address;
        OwnedEvent<D> event;
    };

    template <class Reclaim>
    void pop_fenced(Reclaim&& reclaim) {
        const Fenced front = fenced_.front();
        fenced_.pop_front();
        fenced_bytes_ -= front.bytes;
        reclaim(front.address);
    }

    std::deque<Fenced> fenced_;
    std::vector<Marked> marked_;
    std::vector<OwnedEvent<D>> spare_;
    std::vector<Address> kept_;
    std::size_t fenced_bytes_ = 0;
};

} // namespace memsaver::inline v0_1
