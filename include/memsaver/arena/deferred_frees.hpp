// Blocks that the program has given up while work may still touch them. Does not know whose they are.
#pragma once

#include "memsaver/arena/order.hpp"
#include "memsaver/memory/memory.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

/// Three kinds: freed with a stream (an event of its own tells when it has passed, or a mark, if the stream is another
/// device's), freed without (waiting for the next time that the whole device is known to have passed, a *fence*), and
/// freed inside a capture: kept, for replays may touch them until their graph is let go; then they wait for a fence.
/// Graphs have numbers; 0 is never let go. Fences are numbered from 1; a block carries the number of the last fence
/// begun before it was freed. Not thread safe.
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

    /// Work of another device. May throw bad_alloc; then nothing changed.
    void after_mark(Address address, std::shared_ptr<const WorkMark> mark) {
        elsewhere_.push_back({address, std::move(mark)});
    }

    /// May throw bad_alloc; then nothing changed.
    void keep(Address address, std::size_t bytes, std::uint64_t graph) {
        kept_.push_back({{address, bytes, 0}, graph});
    }

    /// The blocks of a graph, at most `most` of them, wait for a fence from now on; calls `each(address)`. Answers how
    /// many there were. Needs no memory.
    template <class Each>
    std::size_t let_go(std::uint64_t graph, std::size_t most, std::uint64_t last_fence, Each&& each) {
        std::size_t count = 0;
        for (Kept& kept : kept_) {
            if (kept.graph != graph || kept.let_go || count == most) continue;
            kept.let_go = true;
            kept.block.last_fence = last_fence;
            fenced_bytes_ += kept.block.bytes;
            count += 1;
            each(kept.block.address);
        }
        let_go_ += count;
        return count;
    }

    /// `visit(address)` for every block that a graph keeps.
    template <class Visit>
    void for_each_kept(Visit&& visit) const {
        for (const Kept& kept : kept_) {
            if (!kept.let_go) visit(kept.block.address);
        }
    }

    /// Calls `reclaim(address)` for every block that has been passed, `last_done` being the last fence that is. Needs
    /// no memory.
    template <class Reclaim>
    void collect(const D& driver, std::uint64_t last_done, Reclaim&& reclaim) {
        while (!fenced_.empty() && fenced_.front().last_fence < last_done) pop_fenced(reclaim);
        collect_let_go([&](const Fenced& block) { return block.last_fence < last_done; }, reclaim);
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
        std::erase_if(elsewhere_, [&](const Elsewhere& block) {
            bool passed = false;
            if (!block.mark->query(passed).ok() || !passed) return false;
            reclaim(block.address);
            return true;
        });
    }

    /// Calls `reclaim(address)` for the blocks that `gone(address)` says no work can touch any more. Needs no
    /// memory.
    template <class Gone, class Reclaim>
    void collect_if(Gone&& gone, Reclaim&& reclaim) {
        collect_let_go([&](const Fenced& block) { return gone(block.address); }, reclaim);
        std::erase_if(fenced_, [&](const Fenced& fenced) {
            if (!gone(fenced.address)) return false;
            fenced_bytes_ -= fenced.bytes;
            reclaim(fenced.address);
            return true;
        });
        const auto take = [&](const auto& block) {
            if (!gone(block.address)) return false;
            reclaim(block.address);
            return true;
        };
        std::erase_if(marked_, take);
        std::erase_if(elsewhere_, take);
    }

    /// Forgets all of them. Needs no memory, as a new deque would.
    void clear() noexcept {
        fenced_.clear();
        marked_.clear();
        spare_.clear();
        elsewhere_.clear();
        kept_.clear();
        let_go_ = 0;
        fenced_bytes_ = 0;
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

    struct Elsewhere {
        Address address;
        std::shared_ptr<const WorkMark> mark;
    };

    struct Kept {
        Fenced block; // its fence counts once it has been let go
        std::uint64_t graph;
        bool let_go = false;
    };

    template <class Passed, class Reclaim>
    void collect_let_go(Passed&& passed, Reclaim&& reclaim) {
        if (let_go_ == 0) return;
        let_go_ -= std::erase_if(kept_, [&](const Kept& kept) {
            if (!kept.let_go || !passed(kept.block)) return false;
            fenced_bytes_ -= kept.block.bytes;
            reclaim(kept.block.address);
            return true;
        });
    }

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
    std::vector<Elsewhere> elsewhere_;
    std::vector<Kept> kept_;
    std::size_t let_go_ = 0; // of the kept
    std::size_t fenced_bytes_ = 0;
};

} // namespace memsaver::inline v0_1
