// A growing block of an arena: extents at just these addresses, behind live blocks that nobody else gives up.
// Does not know what it is used for.
#pragma once

#include "memsaver/arena/block.hpp"
#include "memsaver/arena/extent_sizes.hpp"
#include "memsaver/arena/growing_block.hpp"
#include "memsaver/backup/backup.hpp"
#include "memsaver/memory/memory.hpp"

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

/// Each growth is one block in the arena's books and lies in extents of the arena's own, so that pause, resume, trim,
/// policies and usage treat it as any other. Only the addresses are special: taken up to the cap from the beginning.
template <class Core, Driver D>
class ExtendingBlock final : public GrowingBlock {
public:
    /// Throws Misuse if the arena's capacity has no room.
    ExtendingBlock(Core& core, std::size_t cap) : core_{core} {
        auto& memory = core_.memory_;
        const std::size_t granularity = memory.pages.granularity();
        if (cap == 0 || !can_align_up(cap, granularity)) {
            throw Misuse{"tag \"" + core.tag() + "\": addresses for " + format_bytes(cap) + " cannot be"};
        }
        const std::size_t bytes = align_up(cap, granularity);
        memory.require_open([&] { return "reserve addresses for " + format_bytes(cap); });
        const Range range = memory.pages.take_addresses(bytes, bytes, granularity);
        try {
            memory.growing_blocks.add(range);
        } catch (...) {
            memory.pages.give_addresses(range);
            throw;
        }
        reserved_ = range;
    }
    ~ExtendingBlock() override {
        auto& memory = core_.memory_;
        if (memory.closed.load() || core_.forked()) return;
        memory.growing_blocks.remove(reserved_);
        // NOLINTNEXTLINE(performance-no-int-to-ptr): device addresses are numbers
        for (const Address part : parts_) core_.deallocate_quietly(reinterpret_cast<void*>(part), order_);
        try {
            give_addresses();
        } catch (const std::bad_alloc&) {
            tell(core_.options().events, [&] {
                return Event{EventKind::ignored, core_.tag(), core_.device(), "no host memory to give addresses back"};
            });
        }
    }

    void grow(std::size_t bytes) override {
        if (bytes <= bytes_) return;
        auto& memory = core_.memory_;
        if (bytes > cap()) refuse(bytes, "its cap is " + format_bytes(cap()));
        const Range more{address() + bytes_, align_up(bytes, memory.pages.granularity()) - bytes_};
        clear_the_way(more);
        parts_.reserve(parts_.size() + 1);
        const std::lock_guard lock{memory.growing};
        memory.require_open(
            [&] { return "grow a block at " + format_address(address()) + " to " + format_bytes(bytes); });
        if (memory.any_away({address(), bytes_})) refuse(bytes, "it is paused; resume its tag first");
        take(more);
        parts_.push_back(more.address);
        bytes_ += more.bytes;
    }

private:
    /// Active memory that is one live block. May throw; then nothing changed.
    void take(Range more) {
        auto& pages = core_.memory_.pages;
        std::vector<Extent<D>> extents = pages.plan({more});
        Status status = pages.create_all(extents);
        for (std::size_t i = 0; status.ok() && i < extents.size(); ++i) status = extents[i].map(pages.driver());
        if (!status.ok()) {
            pages.abandon(extents, false);
            pages.raise_no_room(status, "take memory for a block that grows", more.bytes);
        }
        try {
            core_.memory_.heaps.add(more, Block::State::live);
        } catch (const std::bad_alloc&) {
            pages.abandon(extents, false);
            throw;
        }
        const std::lock_guard lock{pages.mutex};
        pages.activate(extents);
    }

    /// Pages of an earlier growth that failed may still be mapped here: tries once more to give them back.
    void clear_the_way(Range more) {
        auto& pages = core_.memory_.pages;
        if (intersection({more}, pages.mapped_and_held()).empty()) return;
        Status status{StatusKind::other, 0, "an operation is under way"};
        if (const auto turn = core_.try_turn()) status = pages.retry_held();
        if (!intersection({more}, pages.mapped_and_held()).empty())
            check(status, "give back what an earlier growth left", more.bytes, more.address);
    }

    /// Gives the addresses without memory back; those of pages that could not be given back so far go with these.
    void give_addresses() {
        const Range rest{address() + bytes_, cap() - bytes_};
        if (rest.bytes == 0) return;
        auto& pages = core_.memory_.pages;
        std::vector<Range> mapped;
        {
            const std::lock_guard lock{pages.mutex};
            mapped.reserve(pages.held.size());
            for (auto& held : pages.held) {
                if (held.extent.state() != ExtentState::active || !overlap(rest, held.range())) continue;
                held.owns_addresses = true;
                mapped.push_back(held.range());
            }
        }
        sort_by_address(mapped);
        for (const Range& gap : without({rest}, mapped)) pages.give_addresses(gap);
    }

    [[noreturn]] void refuse(std::size_t bytes, const std::string& why) const {
        throw Misuse{"a block at " + format_address(address()) + " in tag \"" + core_.tag() + "\" cannot grow to " +
                     format_bytes(bytes) + ": " + why};
    }

    Core& core_;
    std::vector<Address> parts_; // where each growth began
};

} // namespace memsaver::inline v0_1
