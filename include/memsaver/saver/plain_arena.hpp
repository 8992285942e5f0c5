// Memory that is never paused: what a saver hands out outside of regions, and everywhere when it is switched off.
#pragma once

#include "memsaver/arena/arena.hpp"
#include "memsaver/driver/system_fork.hpp"
#include "memsaver/saver/plain_growth.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace memsaver::inline v0_1 {

/// One plain driver allocation for each block. Deallocating waits for the device, as cudaFree does. On a driver without
/// plain allocations, every allocation fails.
template <Driver D>
class PlainArena final : public ArenaBase {
public:
    /// `margin`: bytes of the device's memory that allocations leave free.
    PlainArena(D driver, std::string tag, EventSink events, std::size_t margin = 0)
        : driver_{std::move(driver)}, tag_{std::move(tag)}, events_{std::move(events)}, margin_{margin},
          growth_{driver_, tag_, events_, margin_, fork_mark_} {}
    ~PlainArena() override {
        if (const Status status = close(); !status.ok()) {
            tell(events_, [&] {
                return Event{EventKind::ignored, tag_, device(), failure_text(status, "free plain memory")};
            });
        }
    }

    void* allocate(std::size_t bytes, std::size_t alignment) override {
        fork_mark_.require_parent("allocate");
        if (bytes == 0 || !can_align_up(bytes, default_alignment)) refuse(bytes, "the size cannot be");
        if (alignment == 0 || alignment > default_alignment || (alignment & (alignment - 1)) != 0) {
            refuse(bytes, "plain memory is aligned to 256 bytes, not " + std::to_string(alignment));
        }
        Blocks place{{Address{0}, Block{bytes}}}; // taken before the memory, so that none is lost
        Address address = 0;
        const Status status = take(bytes, address); // may wait: outside the lock
        if (!status.ok()) {
            DeviceMemory memory;
            (void)driver_.memory(memory);
            raise(status, "allocate plain memory", format_bytes(bytes), bytes, memory.free_bytes);
        }
        auto node = place.extract(place.begin());
        node.key() = address;
        {
            const std::lock_guard lock{mutex_};
            if (!closed_) {
                blocks_.insert(std::move(node));
                used_bytes_ += bytes;
            }
        }
        if (!node.empty()) {
            (void)give(address);
            refuse(bytes, "closed");
        }
        return reinterpret_cast<void*>(address); // NOLINT(performance-no-int-to-ptr): device addresses are numbers
    }

    void deallocate(void* pointer, FreeOrder order) override {
        if (pointer == nullptr) return;
        fork_mark_.require_parent("deallocate");
        const auto address = reinterpret_cast<Address>(pointer);
        bool replayed = order.kind == FreeOrder::Kind::replayed;
        if (order.kind == FreeOrder::Kind::stream) {
            check(driver_.capturing(order.stream, replayed), "ask whether a stream is being captured");
        }
        BlockNode node;
        {
            const std::lock_guard lock{mutex_};
            const auto block = blocks_.find(address);
            if (block == blocks_.end() || block->second.kept) refuse(address);
            used_bytes_ -= block->second.bytes;
            if (replayed) { // until its graph is gone
                block->second.kept = true;
                block->second.graph = order.graph;
                kept_bytes_ += block->second.bytes;
                kept_blocks_ += 1;
                return;
            }
            node = blocks_.extract(block);
        }
        // Waits, also for another device's stream: outside the lock.
        Status status = order.mark ? order.mark->wait() : Status{};
        if (status.ok()) status = give(address);
        if (status.ok()) return;
        const std::size_t bytes = node.mapped().bytes;
        const std::lock_guard lock{mutex_};
        used_bytes_ += bytes;
        blocks_.insert(std::move(node));
        check(status, "free plain memory", bytes, address);
    }

    [[nodiscard]] BackupView backup_view(const void* pointer, std::size_t bytes) override {
        throw Misuse{"backup_view(" + format_address(reinterpret_cast<Address>(pointer)) + ", " + format_bytes(bytes) +
                     ") in tag \"" + tag_ + "\": this is plain memory, which is never paused"};
    }

    [[nodiscard]] std::unique_ptr<GrowingBlock> reserve_block(std::size_t cap) override {
        fork_mark_.require_parent("reserve addresses");
        return std::make_unique<PlainGrowingBlock<D>>(growth_, cap);
    }

    void zero(void* pointer, std::size_t bytes, StreamRef stream) override {
        require_open("zero memory");
        const auto address = reinterpret_cast<Address>(pointer);
        check(driver_.fill(address, 0, bytes, stream), "zero memory", bytes, address);
    }

    [[nodiscard]] bool owns_stream(StreamRef stream) const override {
        bool yes = true;
        if constexpr (StreamOwners<D>) check(driver_.owns_stream(stream, yes), "ask whose stream it is");
        return yes;
    }

    [[nodiscard]] bool contains(const void* pointer) const noexcept override {
        const auto address = reinterpret_cast<Address>(pointer);
        if (growth_.contains(address)) return true;
        const std::lock_guard lock{mutex_};
        return block_over(address) != blocks_.end();
    }

    [[nodiscard]] bool holds(const void* pointer, std::size_t bytes) override {
        const auto address = reinterpret_cast<Address>(pointer);
        if (growth_.holds({address, bytes})) return true;
        const std::lock_guard lock{mutex_};
        const auto block = block_over(address);
        if (block == blocks_.end() || block->second.kept) return false;
        return bytes <= block->second.bytes - (address - block->first);
    }

    void let_go(std::uint64_t graph) noexcept override {
        if (fork_mark_.forked()) return;
        growth_.let_go(graph);
        for (;;) {
            BlockNode node;
            {
                const std::lock_guard lock{mutex_};
                const auto block = std::find_if(blocks_.begin(), blocks_.end(), [&](const auto& entry) {
                    return entry.second.kept && entry.second.graph == graph;
                });
                if (block == blocks_.end()) return;
                node = blocks_.extract(block);
                kept_blocks_ -= 1;
            }
            const Status status = give(node.key()); // waits: outside the lock
            const std::lock_guard lock{mutex_};
            if (status.ok()) {
                kept_bytes_ -= node.mapped().bytes;
                continue;
            }
            node.mapped().graph = 0; // `close` tries it again
            blocks_.insert(std::move(node));
            kept_blocks_ += 1;
        }
    }

    void require_open(const char* what) const override {
        fork_mark_.require_parent(what);
        const std::lock_guard lock{mutex_};
        if (closed_) throw Misuse{std::string{what} + ": tag \"" + tag_ + "\" has been closed"};
    }
    void require_resumed(const char* what) override { require_open(what); }

    void deallocate_quietly(void* pointer, FreeOrder order) noexcept override {
        if (fork_mark_.forked()) return;
        try {
            if (contains(pointer)) deallocate(pointer, order);
        } catch (const std::exception& error) {
            tell(events_, [&] { return Event{EventKind::ignored, tag_, device(), error.what()}; });
        }
    }

    [[nodiscard]] ArenaUsage usage() override {
        fork_mark_.require_parent("usage");
        const std::lock_guard lock{mutex_};
        ArenaUsage row;
        row.tag = tag_;
        row.device = device();
        row.policy = "never paused";
        row.state = "plain";
        row.used_bytes = used_bytes_ + growth_.bytes();
        row.mapped_bytes = row.used_bytes + kept_bytes_ + growth_.kept_bytes();
        row.blocks = blocks_.size() - kept_blocks_ + growth_.blocks();
        return row;
    }

    /// Frees everything. Answers the first failure; what failed is kept, to be tried again.
    Status close() noexcept {
        const std::lock_guard lock{mutex_};
        closed_ = true;
        Status first = growth_.close();
        if (first.kind == StatusKind::gone) first = {};
        for (auto block = blocks_.begin(); block != blocks_.end();) {
            const Status status = give(block->first);
            if (status.ok()) {
                (block->second.kept ? kept_bytes_ : used_bytes_) -= block->second.bytes;
                kept_blocks_ -= block->second.kept ? 1U : 0U;
                block = blocks_.erase(block);
                continue;
            }
            if (first.ok() && status.kind != StatusKind::gone) first = status;
            ++block;
        }
        return first;
    }

    [[nodiscard]] const std::string& tag() const noexcept override { return tag_; }
    [[nodiscard]] int device() const noexcept override { return driver_.device(); }
    [[nodiscard]] const D& driver() const noexcept { return driver_; }

private:
    struct Block {
        std::size_t bytes = 0;
        std::uint64_t graph = 0;
        bool kept = false; // given up, but replays of `graph` may touch it
    };
    using Blocks = std::map<Address, Block>;
    using BlockNode = typename Blocks::node_type;

    static constexpr Status lacking{StatusKind::other, 0, "this driver has no plain allocations"};

    Status take(std::size_t bytes, Address& address) noexcept {
        if (margin_ != 0) {
            DeviceMemory memory;
            if (const Status status = driver_.memory(memory); !status.ok()) return status;
            if (memory.free_bytes < margin_ || memory.free_bytes - margin_ < bytes)
                return {StatusKind::out_of_memory, 0, "less than the margin would be left free"};
        }
        if constexpr (Plain<D>) return driver_.allocate_plain(bytes, address);
        return lacking;
    }
    Status give(Address address) noexcept {
        if constexpr (Plain<D>) return driver_.free_plain(address);
        return lacking;
    }
    [[noreturn]] void refuse(std::size_t bytes, const std::string& why) const {
        throw Misuse{"allocate(" + std::to_string(bytes) + " bytes) in tag \"" + tag_ + "\": " + why};
    }

    // With the lock held.

    /// The block that an address lies in, live or kept.
    [[nodiscard]] auto block_over(Address address) const noexcept {
        const auto after = blocks_.upper_bound(address);
        if (after == blocks_.begin()) return blocks_.end();
        const auto block = std::prev(after);
        return address - block->first < block->second.bytes ? block : blocks_.end();
    }
    [[noreturn]] void refuse(Address address) const {
        std::string why = "no block starts here; it may have been freed before";
        const auto block = block_over(address);
        if (growth_.contains(address)) {
            why = "it lies in a block that grows, such as a workspace; its owner gives it back";
        } else if (block != blocks_.end() && block->second.kept) {
            why = "this block of " + format_bytes(block->second.bytes) + " was freed before";
        } else if (block != blocks_.end()) {
            why = "the pointer lies inside a block of " + format_bytes(block->second.bytes) + " that starts at " +
                  format_address(block->first);
        } else if (closed_) {
            why = "it has been closed";
        }
        throw Misuse{"deallocate(" + format_address(address) + ") in tag \"" + tag_ + "\": " + why};
    }

    D driver_;
    std::string tag_;
    EventSink events_;
    std::size_t margin_;
    ForkMark fork_mark_;
    PlainGrowth<D> growth_;
    mutable std::mutex mutex_;
    Blocks blocks_;
    std::size_t used_bytes_ = 0; // of live blocks
    std::size_t kept_bytes_ = 0;
    std::size_t kept_blocks_ = 0;
    bool closed_ = false;
};

} // namespace memsaver::inline v0_1
