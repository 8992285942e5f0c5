// Definitions of plain_arena.hpp.
#pragma once

#include "memsaver/driver/streams.hpp"
#include "memsaver/saver/directory.hpp"
#include "memsaver/saver/plain_arena.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// Has addresses up to its cap from the start; gets pages as it grows.
class PlainGrowingBlock final : public GrowingBlock {
public:
    PlainGrowingBlock(PlainArena& arena, Range reserved) : arena_{arena} { reserved_ = reserved; }
    ~PlainGrowingBlock() override {
        // NOLINTNEXTLINE(performance-no-int-to-ptr): device addresses are numbers
        arena_.deallocate_quietly(reinterpret_cast<void*>(address()), order_);
    }

    void grow(std::size_t bytes) override {
        if (bytes <= bytes_) return;
        if (bytes > cap()) {
            misuse({"a block at ", in_hex(address()), " in tag ", in_quotes(arena_.tag()), " cannot grow to ",
                    in_bytes(bytes), ": its cap is ", in_bytes(cap())});
        }
        bytes_ = arena_.grow(address(), bytes);
    }

private:
    PlainArena& arena_;
};

/// Its mutex is held for the whole call, including waits: releasing waits, as deallocating does.
class PlainElasticRange final : public ElasticRange {
public:
    PlainElasticRange(PlainArena& arena, Range reserved, std::size_t step)
        : ElasticRange{arena.tag(), step, arena.elastic_bytes}, arena_{arena} {
        set_range(reserved);
    }
    ~PlainElasticRange() override {
        // NOLINTNEXTLINE(performance-no-int-to-ptr): device addresses are numbers
        arena_.deallocate_quietly(reinterpret_cast<void*>(address()), order_);
    }
    using ElasticRange::round;

    void commit(std::size_t offset, std::size_t bytes) override {
        const Range part = outward("commit", offset, bytes);
        const std::lock_guard lock{mutex_};
        take(steps(part, false));
    }
    void release(std::size_t offset, std::size_t bytes, FreeOrder order) override {
        const Range part = inward("release", offset, bytes);
        const std::lock_guard lock{mutex_};
        give(all_steps(part), order);
    }
    bool grow(std::size_t bytes) override {
        const std::lock_guard lock{mutex_};
        const auto [more, rest] = resizing(bytes);
        if (more.bytes == 0) return steps(rest, true).empty();
        take(steps(more, false));
        return true;
    }
    void shrink(std::size_t bytes, FreeOrder order) override {
        const std::lock_guard lock{mutex_};
        give(steps(resizing(bytes).second, true), order);
    }
    [[nodiscard]] std::size_t physical_bytes() const noexcept override { return committed_bytes(); }
    [[nodiscard]] std::size_t waiting_bytes() const noexcept override { return 0; }
    void collect(bool) noexcept override {}

private:
    void take(const std::vector<Range>& missing) {
        const std::lock_guard lock{arena_.mutex_}; // held over driver calls, which do not wait
        arena_.require_open_locked("commit");
        if (missing.empty()) return;
        PlainArena::Block& block = arena_.blocks_.at(address());
        PlainArena::Pages& pages = *block.pages;
        const std::size_t more = missing.size() * step();
        pages.extents.reserve(pages.extents.size() + missing.size());
        Status status = pages.drop(missing); // pages left by an earlier failure
        if (status.ok()) status = arena_.room_for(more);
        for (std::size_t i = 0; status.ok() && i < missing.size(); ++i) {
            Extent& extent = pages.extents.emplace_back(missing[i].address, step());
            status = extent.create(arena_.driver_);
            if (status.ok()) status = extent.map(arena_.driver_);
        }
        if (!status.ok()) {
            (void)pages.drop(missing); // what cannot be released stays and is retried
            arena_.raise_no_room(status, "commit memory of an elastic range", more);
        }
        block.bytes += more;
        note(missing, true);
    }
    void give(const std::vector<Range>& going, const FreeOrder& order) {
        arena_.require_open("release");
        if (going.empty()) return;
        if (order.mark != nullptr) {
            check(order.mark->wait(), "wait for work before memory is released");
        } else if (order.kind != FreeOrder::Kind::idle) {
            check(arena_.driver_.drain(), "wait for the device before memory is released");
        }
        Status status;
        {
            const std::lock_guard lock{arena_.mutex_};
            arena_.require_open_locked("release");
            PlainArena::Block& block = arena_.blocks_.at(address());
            block.bytes -= going.size() * step();
            note(going, false);
            status = block.pages->drop(steps(range(), false)); // and what earlier releases could not release
        }
        if (status.ok()) return;
        tell_ignored(arena_.events_, arena_.tag(), arena_.device(), status, "release pages (the next release retries)");
    }

    PlainArena& arena_;
    std::mutex mutex_;
};

MEMSAVER_INLINE std::size_t PlainArena::Pages::bytes() const noexcept {
    std::size_t sum = 0;
    for (const Extent& extent : extents) sum += extent.physical_bytes();
    return sum;
}

MEMSAVER_INLINE Status PlainArena::Pages::shrink(std::size_t bytes) noexcept {
    for (; !extents.empty() && extents.back().address() >= addresses.get().address + bytes; extents.pop_back()) {
        Status status = extents.back().unmap();
        if (status.ok()) status = extents.back().release();
        if (!status.ok()) return status;
    }
    return {};
}

MEMSAVER_INLINE Status PlainArena::Pages::drop(const std::vector<Range>& ranges) noexcept {
    Status first;
    std::erase_if(extents, [&](Extent& extent) {
        if (!covers(ranges, {extent.address(), extent.bytes()})) return false;
        Status status = extent.unmap();
        if (status.ok()) status = extent.release();
        if (first.ok()) first = status;
        return status.ok();
    });
    return first;
}

MEMSAVER_INLINE PlainArena::PlainArena(AnyDriver driver, std::string tag, EventSink events, std::size_t margin,
                                       Directory* directory)
    : driver_{std::move(driver)}, tag_{std::move(tag)}, events_{std::move(events)}, margin_{margin}, directory_{
                                                                                                         directory} {}

MEMSAVER_INLINE PlainArena::~PlainArena() {
    if (const Status status = close(); !status.ok()) {
        tell_ignored(events_, tag_, device(), status, "free plain memory");
    }
}

MEMSAVER_INLINE void* PlainArena::allocate(const Request& request) {
    request.check(tag_);
    if (!can_align_up(request.bytes, default_alignment)) {
        misuse({request.text(), " in tag ", in_quotes(tag_), ": the size is too large"});
    }
    if (request.alignment > default_alignment) {
        misuse({request.text(), " in tag ", in_quotes(tag_), ": plain memory is aligned to 256 bytes, not ",
                in_digits(request.alignment)});
    }
    Blocks place; // allocated before the memory, so that none is leaked
    place[0].bytes = request.bytes;
    Directory::Node entry = directory_ != nullptr ? Directory::node(self_.lock()) : Directory::Node{};
    Address address = 0;
    Status status = room_for(request.bytes);
    if (status.ok()) status = driver_.allocate_plain(request.bytes, address); // may wait, so the lock is not held
    if (!status.ok()) raise_no_room(status, "allocate plain memory", request.bytes);
    auto node = place.extract(place.begin());
    node.key() = address;
    {
        const std::lock_guard lock{mutex_};
        if (!closed_) {
            if (directory_ != nullptr) directory_->put(std::move(entry), {address, request.bytes});
            blocks_.insert(std::move(node));
        }
    }
    if (!node.empty()) {
        (void)driver_.free_plain(address);
        require_open(request.text().c_str());
    }
    return reinterpret_cast<void*>(address); // NOLINT(performance-no-int-to-ptr): device addresses are numbers
}

MEMSAVER_INLINE void PlainArena::deallocate(void* pointer, const FreeOrder& order) {
    if (pointer == nullptr) return;
    const auto address = reinterpret_cast<Address>(pointer);
    {
        const std::lock_guard lock{mutex_};
        const auto block = blocks_.find(address);
        if (block == blocks_.end() || block->second.kept || block->second.pages) refuse(address);
    }
    give_up(address, order);
}

MEMSAVER_INLINE void PlainArena::deallocate_quietly(void* pointer, const FreeOrder& order) noexcept {
    try {
        if (contains(pointer)) give_up(reinterpret_cast<Address>(pointer), order);
    } catch (const std::exception& error) {
        tell(events_, EventKind::ignored, tag_, device(), {error.what()});
    }
}

MEMSAVER_INLINE BackupView PlainArena::backup_view(const void* pointer, std::size_t bytes) {
    misuse({"backup_view(", in_hex(reinterpret_cast<Address>(pointer)), ", ", in_bytes(bytes), ") in tag ",
            in_quotes(tag_), ": this is plain memory, which is never paused"});
}

MEMSAVER_INLINE void PlainArena::write_backup(void* pointer, const void* from, std::size_t bytes) {
    const auto address = reinterpret_cast<Address>(pointer);
    if (bytes == 0 || from == nullptr || !holds(pointer, bytes)) {
        misuse({"write_backup(", in_hex(address), ", ", in_bytes(bytes), ") in tag ", in_quotes(tag_),
                ": these are not bytes of a live block, or the source is null or empty"});
    }
    OwnedStream stream;
    OwnedEvent event;
    check(stream.open(driver_), "open a stream");
    check(event.open(driver_, stream.get()), "open an event");
    check(driver_.drain(), "wait for the device's work"); // the pause before this call did not, being switched off
    check(driver_.copy_to_device(address, static_cast<const std::byte*>(from), bytes, stream.get()),
          "copy bytes to the device");
    const Status marked = driver_.record(event.get(), stream.get());
    check(marked.ok() ? driver_.wait(event.get()) : driver_.drain(), "wait for a copy");
}

MEMSAVER_INLINE void PlainArena::load(void* pointer, const FileRange& from, AnyPolicy (*reader)()) {
    const auto refusal = [&](const char* why) {
        return Misuse{"load(" + format_address(reinterpret_cast<Address>(pointer)) + ", " + format_bytes(from.bytes) +
                      ", \"" + from.path + "\") in tag \"" + tag_ + "\": " + why};
    };
    if (from.bytes == 0 || !holds(pointer, from.bytes)) throw refusal("these are not bytes of a live block");
    LiveSet live;
    live.tag = tag_;
    const std::shared_ptr<AnySlot> slot = reader().open(driver_);
    try {
        (void)slot->load({reinterpret_cast<Address>(pointer), from.bytes, 1}, 0, from, live);
    } catch (const Misuse& error) {
        end_load(slot);
        throw refusal(error.what());
    } catch (...) {
        end_load(slot);
        throw;
    }
    end_load(slot);
}

MEMSAVER_INLINE void PlainArena::end_load(std::shared_ptr<AnySlot> slot) noexcept {
    const std::lock_guard lock{ending_};
    Status status = spent_.retry();
    if (const Status last = spent_.add(std::move(slot)); status.ok()) status = last;
    if (status.ok() || status.kind == StatusKind::gone) return;
    tell_ignored(events_, tag_, device(), status, "release the resources of a load (the next load retries)");
}

MEMSAVER_INLINE void PlainArena::invalidate(const void* pointer, std::size_t bytes) {
    if (bytes != 0 && holds(pointer, bytes)) return; // nothing is ever saved
    misuse({"invalidate(", in_hex(reinterpret_cast<Address>(pointer)), ", ", in_bytes(bytes), ") in tag ",
            in_quotes(tag_), ": these are not bytes of a live block"});
}

MEMSAVER_INLINE std::shared_ptr<GateMark> PlainArena::gate(const void* pointer, std::size_t bytes) {
    require_open("gate");
    if (bytes != 0 && holds(pointer, bytes)) return nullptr;
    misuse({"gate(", in_hex(reinterpret_cast<Address>(pointer)), ", ", in_bytes(bytes), ") in tag ", in_quotes(tag_),
            ": these are not bytes of a live block"});
}

MEMSAVER_INLINE std::unique_ptr<GrowingBlock> PlainArena::reserve_block(std::size_t cap) {
    const std::size_t granularity = granularity_of(driver_);
    if (cap == 0 || !can_align_up(cap, granularity)) {
        misuse({"tag ", in_quotes(tag_), ": addresses for ", in_bytes(cap), " cannot be reserved"});
    }
    std::unique_ptr<GrowingBlock> growing;
    reserve_pages(align_up(cap, granularity), granularity, 0,
                  [&](Range range) { growing = std::make_unique<PlainGrowingBlock>(*this, range); });
    return growing;
}

MEMSAVER_INLINE std::unique_ptr<ElasticRange> PlainArena::reserve_elastic(std::size_t bytes, std::size_t step) {
    const std::size_t granularity = granularity_of(driver_);
    PlainElasticRange::round(tag_, bytes, step, granularity);
    std::unique_ptr<ElasticRange> elastic;
    reserve_pages(bytes, granularity, step,
                  [&](Range range) { elastic = std::make_unique<PlainElasticRange>(*this, range, step); });
    return elastic;
}

MEMSAVER_INLINE void PlainArena::reserve_pages(std::size_t bytes, std::size_t granularity, std::size_t step,
                                               FunctionRef<void(Range)> made) {
    require_open("reserve addresses");
    Blocks place;
    Block& block = place[0];
    block.step = step;
    block.pages = std::make_unique<Pages>();
    check(block.pages->addresses.open(driver_, bytes, granularity), "reserve addresses", bytes, 0);
    block.pages->granularity = granularity;
    const Range range{block.pages->addresses.get().address, block.addresses()};
    made(range);
    Directory::Node entry = directory_ != nullptr ? Directory::node(self_.lock()) : Directory::Node{};
    auto node = place.extract(place.begin());
    node.key() = range.address;
    const std::lock_guard lock{mutex_};
    require_open_locked("reserve addresses");
    if (directory_ != nullptr) directory_->put(std::move(entry), range);
    blocks_.insert(std::move(node));
}

MEMSAVER_INLINE std::size_t PlainArena::grow(Address address, std::size_t bytes) {
    const std::lock_guard lock{mutex_}; // held over driver calls, which do not wait
    require_open_locked("grow a block");
    Block& block = blocks_.at(address);
    Pages& pages = *block.pages;
    Status status = pages.shrink(block.bytes); // pages left by an earlier failed growth
    const std::size_t more = align_up(bytes, pages.granularity) - block.bytes;
    if (status.ok()) status = room_for(more);
    if (status.ok()) {
        Extent& extent = pages.extents.emplace_back(address + block.bytes, more);
        status = extent.create(driver_);
        if (status.ok()) status = extent.map(driver_);
    }
    if (!status.ok()) {
        (void)pages.shrink(block.bytes); // what cannot be released stays and is retried
        raise_no_room(status, "allocate memory for a growing block", more);
    }
    return block.bytes += more;
}

MEMSAVER_INLINE void PlainArena::zero(void* pointer, std::size_t bytes, StreamRef stream) {
    require_open("zero memory");
    const auto address = reinterpret_cast<Address>(pointer);
    check(driver_.fill(address, 0, bytes, stream), "zero memory", bytes, address);
}

MEMSAVER_INLINE bool PlainArena::owns_stream(StreamRef stream) const {
    bool yes = true;
    const Status status = driver_.owns_stream(stream, yes);
    if (status.kind != StatusKind::unsupported) check(status, "query the owner of a stream");
    return yes;
}

MEMSAVER_INLINE bool PlainArena::contains(const void* pointer) const noexcept {
    const std::lock_guard lock{mutex_};
    return block_over(reinterpret_cast<Address>(pointer)) != blocks_.end();
}

MEMSAVER_INLINE bool PlainArena::holds(const void* pointer, std::size_t bytes) {
    const auto address = reinterpret_cast<Address>(pointer);
    const std::lock_guard lock{mutex_};
    const auto block = block_over(address);
    if (block == blocks_.end() || block->second.kept) return false;
    if (block->second.step != 0) {
        const std::vector<Extent>& extents = block->second.pages->extents;
        std::size_t here = 0; // extents of one range do not overlap
        for (const Extent& extent : extents) {
            const Address begin = std::max(extent.address(), address);
            const Address end = std::min(extent.end(), address + bytes);
            here += begin < end && extent.state() == ExtentState::active ? end - begin : 0;
        }
        return here == bytes;
    }
    const std::size_t offset = address - block->first;
    return offset < block->second.bytes && bytes <= block->second.bytes - offset;
}

MEMSAVER_INLINE void PlainArena::let_go(std::uint64_t graph) noexcept {
    for (;;) {
        Address address = 0;
        {
            const std::lock_guard lock{mutex_};
            for (auto& [at, block] : blocks_) {
                if (!block.kept || block.graph != graph) continue;
                address = at;
                block.graph = 0; // no longer belongs to a graph; if it cannot be freed, `close` retries
                break;
            }
        }
        if (address == 0) return;
        try {
            give_up(address, {});
        } catch (const std::exception& error) {
            tell(events_, EventKind::ignored, tag_, device(), {error.what()});
        }
    }
}

MEMSAVER_INLINE void PlainArena::require_open(const char* what) const {
    const std::lock_guard lock{mutex_};
    require_open_locked(what);
}

MEMSAVER_INLINE ArenaUsage PlainArena::usage() {
    const std::lock_guard lock{mutex_};
    ArenaUsage row;
    row.tag = tag_;
    row.device = device();
    row.policy = "never paused";
    row.state = closed_ ? end() : "plain";
    row.mapped_bytes = leaving_bytes_;
    row.elastic_bytes = elastic_bytes.load();
    for (const auto& [address, block] : blocks_) {
        row.mapped_bytes += block.physical();
        if (block.kept) continue;
        row.used_bytes += block.bytes;
        row.blocks += block.step != 0 ? block.bytes / block.step : 1;
    }
    totals.fill(row);
    return row;
}

MEMSAVER_INLINE Status PlainArena::close(FunctionRef<void()> closing) noexcept {
    Status first;
    {
        const std::lock_guard lock{ending_};
        if (const Status status = spent_.retry(); status.kind != StatusKind::gone) first = status;
    }
    const std::lock_guard lock{mutex_};
    closed_ = true;
    closing();
    for (auto block = blocks_.begin(); block != blocks_.end();) {
        const Status status = give(block->first, block->second);
        if (first.ok() && status.kind != StatusKind::gone) first = status;
        block = status.ok() ? blocks_.erase(block) : std::next(block);
    }
    return first;
}

MEMSAVER_INLINE void PlainArena::give_up(Address address, const FreeOrder& order) {
    bool replayed = order.kind == FreeOrder::Kind::replayed;
    if (order.kind == FreeOrder::Kind::stream) {
        replayed = being_captured(driver_, order.stream);
    }
    Blocks::node_type node;
    std::size_t physical = 0;
    {
        const std::lock_guard lock{mutex_};
        const auto block = blocks_.find(address);
        if (block == blocks_.end() || (block->second.kept && block->second.graph != 0)) refuse(address);
        if (replayed) { // kept until its graph is destroyed
            block->second.kept = true;
            block->second.graph = order.graph;
            return;
        }
        node = blocks_.extract(block);
        leaving_bytes_ += physical = node.mapped().physical();
    }
    // May wait, also for another device's stream, so the lock is not held.
    Status status = order.mark ? order.mark->wait() : Status{};
    Directory::Node entry = directory_ != nullptr ? directory_->take(address) : Directory::Node{};
    if (status.ok()) status = give(address, node.mapped());
    const std::lock_guard lock{mutex_};
    leaving_bytes_ -= physical;
    if (status.ok()) return;
    const std::size_t bytes = node.mapped().bytes;
    const Range range{address, node.mapped().addresses()};
    if (!entry.empty()) directory_->put(std::move(entry), range);
    if (node.mapped().pages) node.mapped().kept = true; // it has no owner any more; `close` retries
    blocks_.insert(std::move(node));
    check(status, "free plain memory", bytes, address);
}

MEMSAVER_INLINE Status PlainArena::give(Address address, Block& block) noexcept {
    if (!block.pages) return driver_.free_plain(address);
    Status status = driver_.drain();
    if (status.ok()) status = block.pages->shrink(0);
    return status.ok() ? block.pages->addresses.close() : status;
}

MEMSAVER_INLINE Status PlainArena::room_for(std::size_t bytes) const noexcept {
    const std::size_t margin = margin_.load();
    if (margin == 0) return {};
    DeviceMemory memory;
    if (const Status status = driver_.memory(memory); !status.ok()) return status;
    if (memory.free_bytes >= margin && memory.free_bytes - margin >= bytes) return {};
    return {StatusKind::out_of_memory, 0, "less than the margin would be left free"};
}

MEMSAVER_INLINE void PlainArena::raise_no_room(const Status& status, const char* what, std::size_t bytes) const {
    DeviceMemory memory;
    (void)driver_.memory(memory);
    const std::size_t margin = margin_.load();
    raise(status, what,
          "tag \"" + tag_ + "\" needs " + format_bytes(bytes) + ", " + format_bytes(memory.free_bytes) + " are free" +
              (margin != 0 ? ", of which " + format_bytes(margin) + " are the margin" : ""),
          bytes, memory.free_bytes);
}

MEMSAVER_INLINE PlainArena::Blocks::const_iterator PlainArena::block_over(Address address) const noexcept {
    const auto after = blocks_.upper_bound(address);
    if (after == blocks_.begin()) return blocks_.end();
    const auto block = std::prev(after);
    return address - block->first < block->second.addresses() ? block : blocks_.end();
}

MEMSAVER_INLINE void PlainArena::require_open_locked(const std::string& what) const {
    if (closed_) misuse({what, ": tag ", in_quotes(tag_), " has been ", end()});
}

MEMSAVER_INLINE void PlainArena::refuse(Address address) const {
    std::string why = "no block starts here; it may have been freed before";
    const auto block = block_over(address);
    if (block == blocks_.end()) {
        if (closed_) why = std::string{"the tag has been "} + end();
    } else if (block->second.pages) {
        why = "the pointer lies in a growing block (such as a workspace) or an elastic range, which its owner frees";
    } else if (block->second.kept) {
        why = "this block of " + format_bytes(block->second.bytes) + " was freed before";
    } else {
        why = "the pointer lies inside a block of " + format_bytes(block->second.bytes) + " that starts at " +
              format_address(block->first);
    }
    misuse({"deallocate(", in_hex(address), ") in tag ", in_quotes(tag_), ": ", why});
}

} // namespace detail

} // namespace memsaver::inline v0_3
