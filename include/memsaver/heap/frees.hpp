// Blocks that the program has deallocated while work may still touch them, and when they can be reused: fences of the
// whole device, and marks in streams. Knows nothing about who owned the blocks.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/core/function_ref.hpp"
#include "memsaver/core/handles.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/sizes.hpp"
#include "memsaver/core/vector.hpp"
#include "memsaver/driver/any_driver.hpp"
#include "memsaver/heap/block_allocator.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <utility>

namespace memsaver::inline v0_3::detail {

/// Events that no mark needs. Thread-safe, without a lock; a thread looks first where it leaves its own, so that
/// events, and what the driver keeps with them, stay on its core.
class SpareEvents {
public:
    /// Keeps an event, or takes one, if `event` is none. Returns the one that was taken, or for which there is no room.
    EventRef exchange(EventRef event) noexcept {
        const std::size_t first = std::hash<std::thread::id>{}(std::this_thread::get_id());
        for (std::size_t i = 0; i < places_.size(); ++i) {
            std::atomic<EventRef>& place = places_[(first + i) % places_.size()];
            EventRef now = place.load(std::memory_order_relaxed);
            if (static_cast<bool>(now) != static_cast<bool>(event) && place.compare_exchange_strong(now, event))
                return now;
        }
        return event;
    }

private:
    std::array<std::atomic<EventRef>, 64> places_{};
};

/// The freed blocks of an arena that wait for work: freed with a stream (in a list for that stream, identified by its
/// handle, which the driver does not reuse before the stream's work is done), or without one (waiting for the next
/// *fence*, a moment at which all work submitted to the device before is known to be complete). Fences are numbered
/// from 1; a block stores the number of the last fence begun before it was freed.
///
/// Blocks freed with a stream are numbered, too. A *mark* is an event and covers the blocks of its stream with numbers
/// up to its own. A list has at most 16 marks: one more joins the two neighbors that cover the fewest bytes, so no mark
/// covers much more than an eighth of what waits.
///
/// Guarded by the arena's mutex, which callers pass locked; it is given up during every call of the driver and every
/// wait. The methods of fences that take no lock are thread-safe.
class Frees {
    struct Mark {
        EventRef event;
        std::uint64_t number = 0;
    };

public:
    using Visit = FunctionRef<void(Address)>;
    using Lock = std::unique_lock<std::mutex>;

    /// Locks the mutex for a short step: tries for up to 0.2 ms, ever more rarely, before the thread sleeps.
    /// To put it to sleep and to wake it takes longer than most waits, and each try, like each change of owner, moves
    /// the tables of blocks to another core: eight threads are ten times as fast if they try rarely (decision 32).
    [[nodiscard]] static Lock lock(std::mutex& mutex) {
        for (int spins = 32; spins <= 4096; spins *= 2) {
            if (mutex.try_lock()) return Lock{mutex, std::adopt_lock};
            for (int i = 0; i < spins; ++i) {
#if defined(__x86_64__)
                __builtin_ia32_pause();
#elif defined(__aarch64__)
                asm volatile("yield");
#endif
            }
        }
        return Lock{mutex};
    }

    explicit Frees(const AnyDriver& driver) noexcept : driver_{driver} {}
    ~Frees() = default;

    // --- deallocation ---

    /// A place in a stream, at which a block was freed. Closes an event that it still has when it is destroyed, which
    /// must be without the lock.
    class Place {
    public:
        explicit Place(Frees& frees) noexcept : frees_{frees} {}
        Place& operator=(Place&&) = delete;
        ~Place() {
            if (mark_.event) (void)frees_.driver_.close_event(mark_.event);
        }
        /// Records an event at the place. Takes no lock.
        Status record(StreamRef stream) noexcept {
            const AnyDriver& driver = frees_.driver_;
            mark_ = {frees_.spare_.exchange({}), ++frees_.last_number_};
            if (mark_.event) {
                if (driver.record(mark_.event, stream).ok()) return {};
                (void)driver.close_event(mark_.event); // it was made for a stream of another context
                mark_.event = {};
            }
            const Status status = driver.open_event(stream, mark_.event);
            return status.ok() ? driver.record(mark_.event, stream) : status;
        }

    private:
        friend class Frees;
        Frees& frees_;
        Mark mark_;
    };

    /// Adds a block, whose number was taken before the place's event was recorded: whatever was numbered before is then
    /// covered, whoever is first to add it. Strong exception guarantee: may throw std::bad_alloc. Requires the lock.
    void after_stream(Address address, std::size_t bytes, StreamRef stream, Place& place) {
        Stream& list = list_of(stream);
        const auto block = static_cast<FreeBins::Node>(list.blocks.size());
        list.sizes.reserve(list.blocks.size() + 1);
        list.blocks.push_back({address, bytes, place.mark_.number});
        list.sizes.insert(block, bytes);
        place.mark_.event = add_mark(list, place.mark_);
        covering(list, place.mark_.number).bytes += bytes;
    }
    /// Keeps the event of a place that was not needed. Requires the lock, and that `clear` was not called.
    void give_back(Place& place) noexcept {
        if (place.mark_.event) place.mark_.event = spare_.exchange(place.mark_.event);
    }
    /// Adds a block that waits for the next fence. As above.
    void after_fence(Address address, std::size_t bytes) {
        fenced_.push_back({address, bytes, begun_});
        fenced_bytes_ += bytes;
    }

    // --- reuse ---

    /// Returns whether work which is submitted to this stream now may reuse what was freed with it. Takes no lock.
    [[nodiscard]] bool reusable_in(StreamRef stream) const noexcept {
        if (stream.per_thread()) return false; // that handle is another stream on each thread
        // Captured work runs later, in any stream: the work that the block waits for may not have completed by then.
        bool capturing = true;
        return driver_.capturing(stream, capturing).ok() && !capturing;
    }
    /// Takes a waiting block of this stream, with at least `bytes` and at most a quarter more, for which
    /// `usable(range)` is true; returns 0 if none is found. The block no longer waits: later work of the same stream
    /// runs after all work that touched it. Its cost does not depend on how many blocks wait.
    Address take(StreamRef stream, std::size_t bytes, FunctionRef<bool(Range)> usable) noexcept {
        Stream* const list = find(stream);
        if (list == nullptr) return 0;
        const std::size_t most = bytes + bytes / 4;
        const auto fits = [&](FreeBins::Node node) {
            const Waiting& block = list->blocks[node];
            return block.bytes >= bytes && block.bytes <= most && usable({block.address, block.bytes});
        };
        const FreeBins::Node found = list->sizes.search(FreeBins::bin_of(bytes), 32, fits, FreeBins::bin_of(most));
        if (found == FreeBins::none) return 0;
        const Address address = list->blocks[found].address;
        drop(*list, found);
        return address;
    }

    /// Calls `reclaim(address)` for blocks whose work has completed. Returns whether there was any.
    bool collect(Lock& lock, Visit reclaim) {
        std::size_t count = 0;
        for (; count < fenced_.size() && fenced_[count].until < done_; ++count) {
            fenced_bytes_ -= fenced_[count].bytes;
            reclaim(fenced_[count].address);
        }
        fenced_.erase(fenced_.begin(), fenced_.begin() + static_cast<std::ptrdiff_t>(count));
        bool any = count != 0;
        for (std::size_t i = streams(); i-- > 0;) { // downwards: no list is passed over if others go
            while (i < streams() && streams_[i].mark_count != 0) {
                const StreamRef stream = streams_[i].stream;
                Mark& first = streams_[i].marks.front();
                if (!first.event) { // another thread asks about it: wait for its answer
                    changed_.wait(lock);
                    continue;
                }
                const Mark asked{std::exchange(first.event, {}), first.number};
                lock.unlock();
                bool passed = false;
                if (!driver_.query(asked.event, passed).ok()) passed = false;
                lock.lock();
                const EventRef over = answer(stream, asked, passed, reclaim);
                if (over) close(lock, cleared_ ? over : spare_.exchange(over));
                any = any || passed;
                changed_.notify_all();
                if (!passed) break;
            }
        }
        return any;
    }
    /// Calls `reclaim(address)` for the blocks that no work can touch any more according to `gone(address)`. Does not
    /// allocate.
    void collect_if(FunctionRef<bool(Address)> gone, Visit reclaim) noexcept {
        erase_in(fenced_, [&](const Waiting& block) {
            if (!gone(block.address)) return false;
            fenced_bytes_ -= block.bytes;
            reclaim(block.address);
            return true;
        });
        for (Stream& list : streams_) {
            for (std::size_t i = list.blocks.size(); i-- > 0;) {
                const Address address = list.blocks[i].address;
                if (!gone(address)) continue;
                drop(list, i);
                reclaim(address);
            }
        }
    }

    /// Forgets all blocks, and closes all events.
    void clear(Lock& lock) noexcept {
        cleared_ = true; // from now on, none is spare
        fenced_.clear();
        fenced_bytes_ = 0;
        while (!streams_.empty()) {
            Stream& list = streams_.back();
            if (list.mark_count != 0) {
                close(lock, list.marks[--list.mark_count].event);
            } else {
                streams_.pop_back();
            }
        }
        while (const EventRef event = spare_.exchange({})) close(lock, event);
    }
    /// Returns whether waiting for the device would make anything reusable.
    [[nodiscard]] bool any_waiting() const noexcept {
        return fenced_bytes_ != 0 || any_in(streams_, [](const Stream& list) { return !list.blocks.empty(); });
    }
    /// Returns the number of streams with blocks or marks, and of some without.
    [[nodiscard]] std::size_t streams() const noexcept { return streams_.size(); }

    // --- fences ---

    /// Call `begin_fence` before waiting for the device, and `finish_fence` with its number after a successful wait.
    std::uint64_t begin_fence() noexcept { return ++begun_; }
    void finish_fence(std::uint64_t fence) noexcept {
        std::uint64_t done = done_;
        while (done < fence && !done_.compare_exchange_weak(done, fence)) {
        }
    }
    /// Waits for the device, which is a fence. Takes no lock.
    Status drain() noexcept {
        const std::uint64_t fence = begin_fence();
        const Status status = driver_.drain();
        if (status.ok()) finish_fence(fence);
        return status;
    }
    [[nodiscard]] std::uint64_t last_begun() const noexcept { return begun_; }
    [[nodiscard]] std::uint64_t last_done() const noexcept { return done_; }

    /// Returns whether to wait for the device, so that freed memory can be reused, rather than to map `growth` more
    /// bytes. A wait costs microseconds on an idle device, and any time on a busy one, to which other threads submit no
    /// work in the meantime; so a small amount of waiting memory does not justify it.
    [[nodiscard]] bool fence_is_worth_it(Lock& lock, std::size_t growth) {
        const std::size_t waiting = fenced_bytes_;
        if (waiting < std::max(growth, least_threshold)) return false;
        if (threshold_ == 0) {
            lock.unlock();
            DeviceMemory memory;
            const bool known = driver_.memory(memory).ok();
            lock.lock();
            if (known) threshold_ = std::clamp(memory.total_bytes / 512, least_threshold, most_threshold);
        }
        return waiting >= threshold_;
    }
    /// Waits for the whole device. Keeps stream captures intact; launches by other threads may block in the meantime.
    /// Threads that arrive during a wait share the next one. `collect` then finds the reusable blocks.
    void fence(Lock& lock) { pass(lock, begun_ + 1); }
    /// Like `fence`, but waits only for the block that has waited longest, if there is one: often a wait that another
    /// thread has begun.
    void fence_oldest(Lock& lock) { pass(lock, fenced_.empty() ? begun_ + 1 : fenced_.front().until + 1); }

private:
    static constexpr std::size_t most_marks = 16;   // of a stream
    static constexpr std::size_t most_streams = 16; // without waiting blocks

    struct Waiting {
        Address address = 0;
        std::size_t bytes = 0;
        std::uint64_t until = 0; ///< the last fence begun, or the block's number in its stream
    };
    struct Covering : Mark {
        std::size_t bytes = 0; ///< of the waiting blocks that no earlier mark covers
    };
    /// The blocks freed with one stream, in any order.
    struct Stream {
        StreamRef stream;
        Vector<Waiting> blocks;
        FreeBins sizes; // node i: block i; newest first
        std::array<Covering, most_marks> marks{};
        std::size_t mark_count = 0;
    };

    [[nodiscard]] Stream* find(StreamRef stream) noexcept {
        for (Stream& list : streams_) {
            if (list.stream == stream) return &list;
        }
        return nullptr;
    }
    Stream& list_of(StreamRef stream) {
        if (Stream* const list = find(stream)) return *list;
        streams_.emplace_back().stream = stream;
        return streams_.back();
    }
    /// Returns the event of a mark that is not needed any more, if any.
    static EventRef add_mark(Stream& list, Mark mark) noexcept {
        if (list.mark_count != 0 && list.marks[list.mark_count - 1].number > mark.number) return mark.event;
        EventRef over;
        if (list.mark_count == most_marks) {
            std::size_t least = 0;
            const auto both = [&](std::size_t i) { return list.marks[i].bytes + list.marks[i + 1].bytes; };
            for (std::size_t i = 1; i + 1 < most_marks; ++i) {
                if (both(i) < both(least)) least = i;
            }
            over = list.marks[least].event; // none while it is being queried
            list.marks[least + 1].bytes = both(least);
            remove_mark(list, least);
        }
        list.marks[list.mark_count++] = {mark, 0};
        return over;
    }
    static void remove_mark(Stream& list, std::size_t i) noexcept {
        const auto at = list.marks.begin() + static_cast<std::ptrdiff_t>(i);
        std::copy(at + 1, list.marks.begin() + static_cast<std::ptrdiff_t>(list.mark_count--), at);
    }
    /// The first mark that covers a block.
    static Covering& covering(Stream& list, std::uint64_t number) noexcept {
        std::size_t i = 0;
        while (i + 1 < list.mark_count && list.marks[i].number < number) ++i;
        return list.marks[i];
    }
    /// Removes a block; the last one takes its place.
    static void drop(Stream& list, std::size_t block) noexcept {
        const std::size_t last = list.blocks.size() - 1;
        covering(list, list.blocks[block].until).bytes -= list.blocks[block].bytes;
        list.sizes.remove(static_cast<FreeBins::Node>(block));
        if (block != last) {
            list.blocks[block] = list.blocks[last];
            list.sizes.remove(static_cast<FreeBins::Node>(last));
            list.sizes.insert(static_cast<FreeBins::Node>(block), list.blocks[block].bytes);
        }
        list.blocks.pop_back();
    }
    void forget_idle(Stream& list) noexcept {
        if (!list.blocks.empty() || list.mark_count != 0 || streams_.size() <= most_streams) return;
        if (&list != &streams_.back()) list = std::move(streams_.back());
        streams_.pop_back();
    }

    /// Puts back the event of a stream's first mark, which was queried, or calls `reclaim(address)` for the blocks
    /// covered by it if it has `passed`. Returns an event that is not needed any more, or none.
    EventRef answer(StreamRef stream, const Mark& asked, bool passed, Visit reclaim) noexcept {
        Stream* const list = find(stream);
        if (list == nullptr) return asked.event; // cleared
        const bool first = list->mark_count != 0 && list->marks.front().number == asked.number;
        if (!passed && first) {
            list->marks.front().event = asked.event;
            return {};
        }
        if (passed) { // also if the mark has been joined to the next one in the meantime
            for (std::size_t i = list->blocks.size(); i-- > 0;) {
                const Waiting block = list->blocks[i];
                if (block.until > asked.number) continue;
                drop(*list, i);
                reclaim(block.address);
            }
            if (first) remove_mark(*list, 0);
            forget_idle(*list);
        }
        return asked.event;
    }

    /// Bytes that do not justify a fence, which takes 2 to 3 us on an idle device: a five-hundredth of the device's
    /// memory, within these bounds.
    static constexpr std::size_t least_threshold = 32_MiB;
    static constexpr std::size_t most_threshold = 128_MiB;

    /// Waits until the fence `wanted` is done; it is at most the next one to begin.
    void pass(Lock& lock, std::uint64_t wanted) {
        for (int i = 0; i < 50 && fencing_ && done_ < wanted;
             ++i) {        // a sleeping thread wakes up later than an idle device
            lock.unlock(); // completes
            std::this_thread::yield();
            lock.lock();
        }
        changed_.wait(lock, [&] { return done_ >= wanted || !fencing_; });
        if (done_ >= wanted) return;
        fencing_ = true;
        lock.unlock();
        const Status status = drain();
        lock.lock();
        fencing_ = false;
        changed_.notify_all();
        check(status, "wait for the device before reusing freed memory");
    }
    void close(Lock& lock, EventRef event) const noexcept {
        if (!event) return;
        lock.unlock();
        (void)driver_.close_event(event);
        lock.lock();
    }

    const AnyDriver& driver_;
    Vector<Waiting> fenced_; // in the order of their fences
    Vector<Stream> streams_;
    std::size_t fenced_bytes_ = 0; // that the next fence makes reusable
    SpareEvents spare_;
    std::atomic<std::uint64_t> last_number_{0}; // of a block freed with a stream
    std::condition_variable changed_;           // a fence is over, or an event has been queried
    bool cleared_ = false;
    bool fencing_ = false;      // a thread waits for the device, and others wait for that thread
    std::size_t threshold_ = 0; // 0: the device has not been asked yet
    std::atomic<std::uint64_t> begun_{0};
    std::atomic<std::uint64_t> done_{0};
};

} // namespace memsaver::inline v0_3::detail
