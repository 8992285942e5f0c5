// Plain memory: blocks in the saver's directory.
#pragma once

#include "memsaver/arena/arena.hpp"
#include "memsaver/arena/graph_keeps.hpp"
#include "memsaver/core/finally.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/pointers.hpp"
#include "memsaver/saver/directory.hpp"
#include "memsaver/saver/plain_memory.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace memsaver::inline v0_3::detail {

/// See PlainMemory for the methods.
class PlainBlocks final : public PlainMemory {
public:
    explicit PlainBlocks(Directory& directory)
        : PlainMemory{.destroy = [](PlainMemory* plain) noexcept { delete static_cast<PlainBlocks*>(plain); },
                      .allocate = &call<&PlainBlocks::allocate>,
                      .holds = &call<&PlainBlocks::holds>,
                      .deallocate = &call<&PlainBlocks::deallocate>,
                      .write = &call<&PlainBlocks::write>,
                      .load = &call<&PlainBlocks::load>,
                      .fill = &call<&PlainBlocks::fill>,
                      .close = &call<&PlainBlocks::close>},
          directory_{directory}, blocks_{directory.entries_} {}
    ~PlainBlocks() {
        while (const auto* const any = first_in(blocks_, [](const auto& each) { return each.second.plain; })) {
            const std::shared_ptr<ArenaCore> arena = any->second.arena;
            if (const Status status = PlainBlocks::close(*arena); !status.ok()) ignore(*arena, status);
            std::erase_if(blocks_, [&](const auto& each) { return is_of(*arena, each.second); });
        }
    }

    void* allocate(ArenaCore& arena, const Request& request) {
        const std::string& tag = arena.tag();
        const AnyDriver& driver = arena.driver();
        const auto still_open = [&] { arena.require_open(request.text().c_str()); };
        request.check(tag);
        still_open();
        if (!can_align_up(request.bytes, Request::default_alignment)) {
            misuse({request.text(), " in tag ", in_quotes(tag), ": the size is too large"});
        }
        if (request.alignment > Request::default_alignment) {
            misuse({request.text(), " in tag ", in_quotes(tag), ": plain memory is aligned to 256 bytes, not ",
                    in_digits(request.alignment)});
        }
        Blocks place; // allocated before the memory, so that none is leaked
        place[0] = {{}, arena.shared_from_this(), true};
        Status status = arena.leaves_margin(request.bytes);
        Address address = 0;
        if (status.ok()) status = driver.allocate_plain(request.bytes, address); // may wait, so the lock is not held
        if (!status.ok()) arena.raise_no_room(status, "allocate plain memory", request.bytes);
        Blocks::node_type node = place.extract(place.begin());
        node.key() = address;
        node.mapped().range = {address, request.bytes};
        {
            const Directory::All all{directory_};
            if (!arena.closed()) blocks_.insert(std::move(node));
        }
        if (!node.empty()) {
            (void)driver.free_plain(address);
            still_open();
        }
        return reinterpret_cast<void*>(address); // NOLINT(performance-no-int-to-ptr): device addresses are numbers
    }
    [[nodiscard]] bool holds(const ArenaCore& arena, const void* pointer, std::size_t bytes) noexcept {
        const std::lock_guard lock{directory_.one()};
        const auto block = over(arena, pointer);
        if (block == blocks_.end() || block->second.freed) return false;
        return bytes <= block->second.range.end() - as_address(pointer);
    }
    void deallocate(ArenaCore& arena, void* pointer, const FreeOrder& order, const std::shared_ptr<GraphKeeps>& graph) {
        const auto address = as_address(pointer);
        bool replayed = order.kind == FreeOrder::Kind::replayed;
        if (order.kind == FreeOrder::Kind::stream) replayed = being_captured(arena.driver(), order.stream);
        std::size_t bytes = 0;
        Blocks::node_type going;
        std::shared_ptr<Kept> kept;
        if (replayed && graph != nullptr) {
            kept = new_shared<Kept>(*this, arena.shared_from_this());
            graph->add(kept);
        }
        {
            const Directory::All all{directory_};
            const auto block = over(arena, pointer);
            std::string why = "no block starts here; it may have been freed before";
            if (block != blocks_.end() && block->second.freed) {
                why = "this block of " + format_bytes(block->second.range.bytes) + " was freed before";
            } else if (block != blocks_.end() && block->first != address) {
                why = "the pointer lies inside a block of " + format_bytes(block->second.range.bytes) +
                      " that starts at " + format_address(block->first);
            } else if (block == blocks_.end() && arena.closed()) {
                why = std::string{"the tag has been "} + arena.end();
            } else if (block != blocks_.end()) {
                why.clear();
            }
            if (!why.empty()) misuse({"deallocate(", in_hex(address), ") in tag ", in_quotes(arena.tag()), ": ", why});
            bytes = block->second.range.bytes;
            if (kept != nullptr) kept->block = address;
            block->second.freed = replayed;
            if (!replayed) going = blocks_.extract(block);
        }
        if (!replayed) check(give(std::move(going)), "free plain memory", bytes, address);
    }
    void write(ArenaCore& arena, void* pointer, const void* from, std::size_t bytes) {
        const auto address = as_address(pointer);
        if (from == nullptr) {
            misuse({"write_backup(", in_hex(address), ", ", in_bytes(bytes), ") in tag ", in_quotes(arena.tag()),
                    ": the source is null"});
        }
        const AnyDriver& driver = arena.driver();
        check(driver.drain(), "wait for the device's work"); // the pause before this call did not, being switched off
        const auto copy = [&](StreamRef stream) { return driver.copy_to_device(address, from, bytes, stream); };
        check(on_own_stream(driver, copy), "copy bytes to the device", bytes, address);
    }
    void load(ArenaCore& arena, void* pointer, const FileRange& from, AnyPolicy (*reader)()) {
        const auto turn = arena.take_turn({}, "load");
        LiveSet live;
        live.tag = arena.tag();
        std::shared_ptr<AnySlot> slot = reader().open(arena.driver());
        const Finally end{[&] { arena.retire_slot(std::move(slot)); }};
        try {
            (void)slot->load({as_address(pointer), from.bytes, 1}, 0, from, live);
        } catch (const Misuse& error) {
            misuse({"load(", in_hex(pointer), ", ", in_bytes(from.bytes), ", ", in_quotes(from.path), ") in tag ",
                    in_quotes(arena.tag()), ": ", error.what()});
        }
    }
    void fill(const ArenaCore& arena, ArenaUsage& row) noexcept {
        const std::lock_guard lock{directory_.one()};
        row.policy = "never paused";
        row.state = arena.closed() ? arena.end() : "plain";
        for (const auto& [address, block] : blocks_) {
            if (!is_of(arena, block)) continue;
            row.mapped_bytes += block.range.bytes;
            if (block.freed) continue;
            row.used_bytes += block.range.bytes;
            row.blocks += 1;
        }
        row.peak_mapped_bytes = std::max(row.peak_mapped_bytes, row.mapped_bytes);
    }
    Status close(const ArenaCore& arena) noexcept {
        Status first;
        for (Address from = 0;;) {
            Blocks::node_type going;
            {
                const Directory::All all{directory_};
                auto block = blocks_.lower_bound(from);
                while (block != blocks_.end() && !is_of(arena, block->second)) ++block;
                if (block == blocks_.end()) return first;
                from = block->first + 1;
                going = blocks_.extract(block);
            }
            const Status status = give(std::move(going));
            if (first.ok() && status.kind != StatusKind::gone) first = status;
        }
    }

private:
    /// A method of this class as a function.
    template <auto method, class Result, class... Arguments>
    static Result call(PlainMemory& plain, Arguments... arguments) noexcept(
        noexcept((std::declval<PlainBlocks&>().*method)(std::declval<Arguments>()...))) {
        return (static_cast<PlainBlocks&>(plain).*method)(std::forward<Arguments>(arguments)...);
    }

    /// A block that was freed in a capture: ends with the graph.
    struct Kept {
        Kept(PlainBlocks& of, std::shared_ptr<ArenaCore> in) noexcept : all{of}, arena{std::move(in)} {}
        Kept& operator=(Kept&&) = delete;
        ~Kept() {
            if (block != 0) all.let_go(*arena, block);
        }

        PlainBlocks& all;
        std::shared_ptr<ArenaCore> arena;
        Address block = 0; // guarded by the directory's locks
    };
    using Blocks = Directory::Entries;

    [[nodiscard]] static bool is_of(const ArenaCore& arena, const Directory::Entry& entry) noexcept {
        return entry.plain && entry.arena.get() == &arena;
    }
    /// Returns the block that contains an address, or the end.
    [[nodiscard]] Blocks::iterator over(const ArenaCore& arena, const void* pointer) noexcept {
        const auto block = Directory::over(blocks_, as_address(pointer));
        return block != blocks_.end() && is_of(arena, block->second) ? block : blocks_.end();
    }
    /// Frees the memory of a block that was taken out before: as soon as it is free, another block may be there. If
    /// that fails, the block is back as it was.
    Status give(Blocks::node_type block) noexcept {
        const Status status = block.mapped().arena->driver().free_plain(block.key()); // waits, so the lock is not held
        if (status.ok()) return status;
        const Directory::All all{directory_};
        blocks_.insert(std::move(block));
        return status;
    }
    void let_go(const ArenaCore& arena, Address address) noexcept {
        if (arena.forked()) return;
        Blocks::node_type going;
        {
            const Directory::All all{directory_};
            const auto block = blocks_.find(address);
            if (block == blocks_.end() || !is_of(arena, block->second) || !block->second.freed)
                return; // the arena has been closed
            going = blocks_.extract(block);
        }
        if (const Status status = give(std::move(going)); !status.ok()) ignore(arena, status); // `close` retries
    }
    static void ignore(const ArenaCore& arena, const Status& status) noexcept {
        tell_ignored(arena.options().events, arena.tag(), arena.device(), status, "free plain memory");
    }

    Directory& directory_;
    Blocks& blocks_;
};

} // namespace memsaver::inline v0_3::detail
