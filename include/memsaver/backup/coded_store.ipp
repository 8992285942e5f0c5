// Definitions of coded_store.hpp.
#pragma once

#include "memsaver/backup/coded_store.hpp"
#include "memsaver/backup/damaged.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/ranges.hpp"
#include "memsaver/core/sizes.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// A thread that moves pieces: a stream, and a part of the scratch if there is one.
class CodedStore::Worker {
public:
    inline Worker(CodedStore& store, std::size_t number, Range part, const Plan& plan, std::size_t bytes, Ring& ring);
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;
    /// Not inlined: g++ 12 would warn that members which the constructor always sets may be uninitialized.
    [[gnu::noinline]] ~Worker() = default;

    inline void out(const std::vector<Unit>& chunks);
    inline void in(const std::vector<Unit>& chunks, const std::function<Status(Range)>& before_write);
    /// After a failure: waits until nothing is in flight. If that fails, marks the memory in use as unsettled.
    inline void drain() noexcept;

private:
    /// A chunk in flight. The bytes at `at`, on the device, belong to `record`.
    struct StoredChunk {
        Unit chunk;
        Record record;
        Address at = 0;
        std::size_t bytes = 0; ///< to copy
    };

    inline std::vector<StoredChunk> encoded(const std::vector<Unit>& chunks);
    /// Gives the records locations, and stores the records.
    inline void place(std::vector<StoredChunk>& cargo);
    inline void note_whole(const std::vector<StoredChunk>& cargo);
    inline void put(const std::vector<StoredChunk>& cargo);
    inline void get(const std::vector<StoredChunk>& cargo, const std::function<Status(Range)>& before_write);
    inline void decode(const std::vector<StoredChunk>& cargo, const std::function<Status(Range)>& before_write);
    /// Calls `act(first, last, host)` for each run of cargo that is adjacent in the inner store. `host` is its memory,
    /// or null.
    template <class Act>
    void each_row(const std::vector<StoredChunk>& cargo, const Act& act);
    /// Enqueues the copies of a run to or from `host`, where the run begins.
    inline void copy(const StoredChunk* first, const StoredChunk* last, std::byte* host, bool pinned,
                     Direction direction);
    [[nodiscard]] inline Status copy_each(Direction direction, std::span<const CopyPart> parts,
                                          bool pinned) const noexcept;
    inline void may_write(const StoredChunk& cargo, const std::function<Status(Range)>& before_write) const;
    [[nodiscard]] Codec::Place codec_place() const noexcept {
        return {stream_.get(),
                mark_.get(),
                {part_.address, plan_.work},
                rows_ != nullptr && rows_->pinned() ? rows_->data() : nullptr};
    }
    inline PinnedBuffer& buffer();
    inline void pass() const;
    [[nodiscard]] std::size_t stride(const StoredChunk& cargo) const noexcept {
        return store_.stride(cargo.record.stored);
    }

    CodedStore& store_;
    Range part_;
    Plan plan_;
    std::size_t grow_by_;
    Ring& ring_;
    std::size_t room_; // of its buffer
    OwnedStream stream_;
    OwnedEvent mark_;
    std::optional<Ring::Loan> loan_;
    PinnedBuffer* buffer_ = nullptr;
    PinnedBuffer* rows_ = nullptr;       // the codec's
    std::vector<std::uint64_t> reached_; // in the current piece
    bool reached_pinned_ = false;        // of the last of them
};

/// Borrows a part of the scratch. Waits if all are lent: a tag that was paused in several steps is resumed by several
/// concurrent transfers.
class CodedStore::Loan {
public:
    Loan(CodedStore& store, std::size_t parts) : store_{store}, part_{parts} {
        if (parts == 0) return;
        std::unique_lock lock{store_.parts_mutex_};
        const auto end = store_.lent_.begin() + static_cast<std::ptrdiff_t>(parts);
        auto free = end;
        store_.part_free_.wait(lock, [&] { return (free = std::find(store_.lent_.begin(), end, false)) != end; });
        *free = true;
        part_ = static_cast<std::size_t>(free - store_.lent_.begin());
        lent_ = true;
    }
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    ~Loan() {
        if (!lent_) return;
        store_.give_part(part_);
    }
    [[nodiscard]] std::size_t part() const noexcept { return part_; }

private:
    CodedStore& store_;
    std::size_t part_;
    bool lent_ = false;
};

class CodedStore::CodedWay final : public Transfer::Way {
public:
    CodedWay(CodedStore& store, Direction direction, std::size_t bytes, const Plan& plan, const LiveSet& live,
             std::size_t movers)
        : store_{store}, direction_{direction}, cells_{direction == Direction::out ? store.cells()
                                                                                   : std::vector<Room>{}},
          plan_{plan}, scratch_{store.scratch_->range(plan.bytes())}, in_use_{*store.scratch_}, bytes_{bytes},
          ring_{store.share_.ring()}, before_write_{live.before_write}, movers_{movers} {}

    std::size_t start(Transfer&) override { return movers_ + cells_.size(); }
    inline void work(Transfer& transfer) override;

private:
    /// Allocates host pages for the bytes while other threads move bytes.
    inline void take_ahead(const Transfer& transfer) noexcept;

    CodedStore& store_;
    Direction direction_;
    std::vector<Room> cells_;
    std::atomic<std::size_t> begun_{0};
    std::atomic<std::size_t> next_cell_{0};
    Plan plan_;
    Range scratch_;
    DeviceScratch::UseGuard in_use_;
    std::size_t bytes_;
    std::shared_ptr<Ring> ring_;
    std::function<Status(Range)> before_write_;
    std::size_t movers_;
};

// --- the store ---

inline CodedStore::CodedStore(AnyDriver driver, std::shared_ptr<BackupStore> inside, StoreOptions options,
                              CodedOptions coding)
    : driver_{driver}, inside_{std::move(inside)}, options_{std::move(options)}, coding_{std::move(coding)},
      share_{driver, options_.ring_bytes, std::max(1U, coding_.pieces), 8_MiB}, scratch_{
                                                                                    std::make_shared<DeviceScratch>(
                                                                                        driver)} {
    coding_.pieces = std::max(1U, coding_.pieces);
    lent_.resize(coding_.pieces);
    rows_.resize(coding_.pieces);
    coding_.piece_bytes = std::clamp<std::size_t>(coding_.piece_bytes, largest_chunk, 1_GiB);
}

inline void CodedStore::measure() {
    if (chunk_bytes_ != 0) return;
    check_of(driver_.granularity(granularity_), "query the page granularity", 0);
    const std::size_t chunk = std::min(granularity_, largest_chunk);
    chunk_bytes_ = chunk; // `most_chunks` needs it
    Codec::Sizes sizes;
    const Status status = coding_.codec->measure(chunk, most_chunks(), sizes);
    if (!status.ok()) chunk_bytes_ = 0;
    check_of(status, "query the memory that a codec needs", chunk);
    overhead_ = std::max(sizes.coded, chunk) - chunk;
    work_bytes_ = align_up(sizes.work, 256);
}

inline void CodedStore::remember(const LiveSet& live) {
    if (last_live_.tag != live.tag) { // only once: running transfers read it
        last_live_.tag = live.tag;
        tag_text_ = of_tag(live.tag);
    }
    if (last_live_.host_budget != live.host_budget) last_live_.host_budget = live.host_budget;
    share_.join(live.host_budget);
    if (options_.observer) options_.observer->about(live.tag);
}

inline Room CodedStore::grow(std::size_t bytes, const LiveSet& live) {
    remember(live);
    const Room names{next_name_, bytes};
    next_name_ += align_up(bytes, 256);
    return names;
}

inline CodedStore::Plan CodedStore::plan(std::size_t area) const noexcept {
    if (area == 0) return {};
    const std::size_t most = most_area();
    const std::size_t parts = std::min<std::size_t>((area + most - 1) / most, coding_.pieces);
    return {parts, std::min(area, most), work_bytes_};
}

inline std::vector<Piece> CodedStore::pieces_of(const std::vector<Unit>& units, const std::vector<Range>& first) const {
    std::vector<Piece> pieces;
    for (const std::vector<Unit>& group : in_wanted_order(cut_at_addresses(units, chunk_bytes_), first, false)) {
        std::size_t area = 0;
        std::size_t bytes = 0;
        bool begun = false; // bytes that are needed first wait for nothing else
        for (const Unit& chunk : group) {
            const std::size_t more = chunk.bytes < least_coded ? 0 : area_of(chunk.bytes);
            const bool full = begun && (area + more > most_area() || bytes + chunk.bytes > coding_.piece_bytes ||
                                        pieces.back().units.size() == most_chunks());
            if (!begun || full) {
                pieces.emplace_back();
                area = 0;
                bytes = 0;
            }
            begun = true;
            pieces.back().units.push_back(chunk);
            area += more;
            bytes += chunk.bytes;
        }
    }
    return pieces;
}

inline void CodedStore::count(const Record& record, bool more) noexcept {
    const std::size_t taken = record.stored;
    const std::size_t area = record.coded ? area_of(record.bytes) : 0;
    if (more) {
        kept_bytes_ += taken;
        coded_area_ += area;
    } else {
        kept_bytes_ -= taken;
        coded_area_ -= area;
    }
    scratch_->want(align_up(plan(coded_area_).bytes(), granularity_));
}

inline void CodedStore::free_location(const Record& record) {
    packed_.give(record.location, stride(record.stored));
    if (options_.observer) options_.observer->discarded(record.location, stride(record.stored));
}

inline CodedStore::Records::iterator CodedStore::erase(Records::iterator record) {
    free_location(record->second); // may throw; nothing has changed then
    if (record->second.whole) count(record->second, false);
    return records_.erase(record);
}

inline void CodedStore::sweep() {
    const std::lock_guard lock{mutex_};
    for (auto record = records_.begin(); record != records_.end();)
        record = record->second.discarded ? erase(record) : std::next(record);
}

inline void CodedStore::forget(const std::vector<Unit>& chunks) {
    const std::lock_guard lock{mutex_};
    for (const Unit& chunk : chunks) {
        if (const auto record = records_.find(chunk.location); record != records_.end()) erase(record);
    }
}

inline void CodedStore::discard(std::uint64_t location, std::size_t bytes) noexcept {
    const std::lock_guard lock{mutex_};
    for (auto record = records_.lower_bound(location); record != records_.end() && record->first < location + bytes;) {
        inside_->discard(record->second.location, stride(record->second.stored));
        if (record->second.whole) count(record->second, false);
        record->second.whole = false;
        record->second.discarded = true;
        try {
            record = erase(record);
        } catch (const std::bad_alloc&) { // `sweep` erases it later
            ++record;
        }
    }
}

inline void CodedStore::shrink(LocationSpace&) { // names cost nothing
    const std::unique_lock growing{inside_mutex_};
    const std::lock_guard lock{mutex_};
    inside_->shrink(packed_);
    erase_in(slabs_, [&](const Room& slab) { return !packed_.has_room(slab.location); });
}

inline Status CodedStore::clear() noexcept {
    {
        const std::lock_guard lock{mutex_};
        records_.clear();
        packed_.clear();
        slabs_.clear();
        made_.reset();
        coded_area_ = 0;
        kept_bytes_ = 0;
        scratch_->want(0);
    }
    const Status scratch = scratch_->give();
    Status rows;
    for (PinnedBuffer& one : rows_) rows = first_failure({rows, one.release()});
    const Status inside = inside_->clear();
    return first_failure({scratch, rows, inside, share_.leave()});
}

inline Status CodedStore::retry() noexcept {
    const Status inside = inside_->retry();
    return first_failure({inside, share_.retry()});
}

inline void CodedStore::grow_inside(std::size_t bytes) const {
    if (!made_) made_ = inside_->grow(align_up(bytes, 4096), last_live_);
    const std::lock_guard lock{mutex_};
    slabs_.reserve(slabs_.size() + 1);
    packed_.add(made_->location, made_->bytes);
    slabs_.push_back(*made_);
    made_.reset();
}

inline std::uint64_t CodedStore::take_room(std::size_t bytes, std::size_t grow_by) const {
    const auto take = [&] {
        const std::lock_guard lock{mutex_};
        return packed_.take(bytes);
    };
    if (const std::uint64_t location = take()) return location;
    const std::unique_lock growing{inside_mutex_};
    for (;;) {
        if (const std::uint64_t location = take()) return location; // another thread may have grown it
        grow_inside(std::max(bytes, grow_by));
    }
}

inline void CodedStore::give_part(std::size_t part) noexcept {
    const std::lock_guard lock{parts_mutex_};
    lent_[part] = 0;
    part_free_.notify_all();
}

inline void CodedStore::ready_rows(std::size_t parts, bool settled) noexcept {
    for (std::size_t part = 0; part < parts; ++part) {
        {
            const std::lock_guard lock{parts_mutex_};
            if (lent_[part]) continue;
            lent_[part] = 1;
        }
        if (settled) (void)rows_[part].settle(); // if it fails, the rows are not used
        if (!settled) (void)take_rows(part);
        give_part(part);
    }
}

inline PinnedBuffer* CodedStore::take_rows(std::size_t part) noexcept {
    const std::size_t bytes = coding_.codec->row_bytes(most_chunks());
    if (bytes == 0 || rows_[part].unsettled()) return nullptr;
    (void)share_.take(rows_[part], bytes); // without them it is slower
    return &rows_[part];
}

inline std::vector<Room> CodedStore::cells() const {
    std::vector<Room> cells;
    const std::shared_lock steady{inside_mutex_};
    const std::lock_guard lock{mutex_};
    for (const Room& slab : slabs_) {
        for (std::uint64_t at = slab.location; at < slab.location + slab.bytes;) {
            const std::uint64_t end =
                std::min(slab.location + slab.bytes, align_down(at, HostCells::cell_bytes) + HostCells::cell_bytes);
            const Room cell{at, static_cast<std::size_t>(end - at)};
            if (!inside_->pinned(cell.location, cell.bytes)) cells.push_back(cell);
            at = end;
        }
    }
    return cells;
}

inline void CodedStore::prepare(std::vector<Unit> units) {
    measure();
    sweep();
    const std::vector<Unit> chunks = cut_at_addresses(units, chunk_bytes_);
    std::size_t area = 0;
    std::size_t wanted = 0;
    std::size_t there = 0;
    {
        const std::lock_guard lock{mutex_};
        there = packed_.free_bytes();
        for (const Unit& chunk : chunks) {
            area += chunk.bytes < least_coded ? 0 : area_of(chunk.bytes);
            wanted += stride(chunk.bytes);
            if (const auto record = records_.find(chunk.location); record != records_.end())
                there += stride(record->second.stored);
        }
    }
    const Status status = scratch_->take(plan(area).bytes());
    if (status.kind != StatusKind::out_of_memory)
        check_of(status, "allocate memory for compression", plan(area).bytes());
    ready_rows(plan(area).parts, false);
    const std::size_t room = room_of(wanted);
    wanted = wanted / 10 * 7;
    {
        const std::unique_lock growing{inside_mutex_};
        if (there < wanted) grow_inside(wanted - there);
    }
    const std::vector<Room> cells = this->cells();
    std::atomic<std::size_t> next{0};
    std::atomic<bool> through_ring{false};
    Crew crew{options_.crew};
    crew.start(cells.size(), [&] {
        for (std::size_t i = next++; i < cells.size() && !through_ring.load(); i = next++) {
            std::byte* host = nullptr;
            const std::shared_lock steady{inside_mutex_};
            check_of(inside_->reach(cells[i].location, cells[i].bytes, host), "allocate host pages", cells[i].bytes);
            if (host == nullptr) through_ring = true;
        }
    });
    crew.join();
    if (const auto failure = crew.failure()) std::rethrow_exception(failure);
    if (!through_ring.load()) return;
    const std::shared_ptr<Ring>& ring = share_.ring();
    ring->prepare(std::min(pieces_of(units, {}).size(), ring->pairs()), room, tag_text_);
}

inline std::unique_ptr<Transfer> CodedStore::out(std::vector<Unit> units, const LiveSet& live) {
    measure();
    remember(live);
    check_of(settle(driver_, unsettled_), "wait for copies of an earlier call", 0);
    ready_rows(rows_.size(), true);
    sweep();
    const std::vector<Unit> chunks = cut_at_addresses(units, chunk_bytes_);
    forget(chunks);
    std::size_t area = 0;
    std::size_t bytes = 0;
    for (const Unit& chunk : chunks) {
        area += chunk.bytes < least_coded ? 0 : area_of(chunk.bytes);
        bytes += stride(chunk.bytes);
    }
    const std::size_t scratch = plan(area).bytes();
    const Status status = scratch_->take(scratch);
    if (status.kind != StatusKind::out_of_memory) check_of(status, "allocate memory for compression", scratch);
    if (!status.ok() && live.tell && !std::exchange(reported_, true)) {
        live.tell("the device lacks " + format_bytes(scratch) +
                  " for compression: bytes are saved uncompressed; `prepare` allocates it in advance");
    }
    const std::size_t wanted = status.ok() ? bytes / 10 * 7 : bytes;
    {
        const std::unique_lock growing{inside_mutex_};
        std::size_t there = 0;
        {
            const std::lock_guard lock{mutex_};
            there = packed_.free_bytes();
        }
        if (there < wanted) grow_inside(wanted - there);
    }
    return start(Direction::out, units, status.ok() ? plan(area) : Plan{}, live);
}

inline std::unique_ptr<Transfer> CodedStore::in(std::vector<Unit> units, const LiveSet& live) {
    remember(live);
    check_of(settle(driver_, unsettled_), "wait for copies of an earlier call", 0);
    share_.ring()->settle(tag_text_); // here: the crew must not wait for the device
    ready_rows(rows_.size(), true);
    const Plan decoding = plan(coded_bytes());
    if (decoding.parts != 0) check_of(scratch_->take(), "allocate memory for decompression", scratch_->wanted_bytes());
    return start(Direction::in, units, decoding, live);
}

inline std::unique_ptr<Transfer> CodedStore::start(Direction direction, const std::vector<Unit>& units,
                                                   const Plan& plan, const LiveSet& live) {
    inside_->about(live);
    const std::vector<Range> none;
    std::vector<Piece> pieces = pieces_of(units, direction == Direction::in ? live.first : none);
    CrewOptions crew = options_.crew;
    const std::size_t movers = std::min({plan.parts != 0 ? plan.parts : std::size_t{coding_.pieces}, pieces.size(),
                                         std::max<std::size_t>(1, crew.threads)});
    // In addition to the movers, the policy's threads allocate host memory. A crew of one stays one.
    if (crew.threads > 1) crew.threads += static_cast<unsigned>(movers);
    auto way = std::make_unique<CodedWay>(*this, direction, bytes_of(pieces), plan, live, movers);
    auto work = std::make_unique<Transfer>(driver_, std::move(pieces), crew, live.progress, std::move(way));
    work->start();
    return work;
}

inline std::size_t CodedStore::coded_bytes() const {
    const std::lock_guard lock{mutex_};
    return coded_area_;
}

inline CodedStore::Record CodedStore::record_of(const Unit& chunk) const {
    const std::lock_guard lock{mutex_};
    const auto record = records_.find(chunk.location);
    if (record == records_.end() || !record->second.whole || record->second.bytes != chunk.bytes)
        raise_damaged(chunk.device, chunk.bytes);
    return record->second;
}

inline void CodedStore::raise_damaged(Address device, std::size_t bytes) const {
    throw BackupDamaged{tag_text_ + "the compressed backup of " + format_bytes(bytes) + " at " +
                        format_address(device) + " differs from the saved bytes and is not restored"};
}

inline void CodedStore::check_of(const Status& status, const Attempt& attempt, std::size_t bytes) const {
    if (!status.ok()) raise_of(status, attempt, {tag_text_, in_bytes(bytes)}, bytes);
}

// --- access to single chunks ---

inline Status CodedStore::read(std::byte* to, const Record& record) const {
    std::byte* host = nullptr;
    const std::size_t bytes = stride(record.stored);
    const std::shared_lock steady{inside_mutex_};
    if (const Status status = inside_->reach(record.location, bytes, host); !status.ok()) return status;
    if (host == nullptr) return inside_->get(to, record.location, bytes);
    std::memcpy(to, host, bytes);
    return {};
}

inline Status CodedStore::write(const std::byte* from, std::uint64_t location, std::size_t bytes) const {
    std::byte* host = nullptr;
    const std::shared_lock steady{inside_mutex_};
    if (const Status status = inside_->reach(location, bytes, host); !status.ok()) return status;
    if (host == nullptr) return inside_->put(from, location, bytes);
    std::memcpy(host, from, bytes);
    return {};
}

inline void CodedStore::decode_to(std::byte* to, std::byte* space, const Record& record, Address device) const {
    check_of(read(space, record), "read bytes from the backup", record.stored);
    if (!record.coded) return static_cast<void>(std::memcpy(to, space, record.bytes));
    bool wrong = false;
    const Status here = coding_.codec->decode_here({space, record.stored}, record.sum, {to, record.bytes}, wrong);
    if (wrong) raise_damaged(device, record.bytes);
    if (here.kind != StatusKind::unsupported) return check_of(here, "decompress bytes", record.bytes);
    const bool held = scratch_->held_bytes() != 0;
    struct AtEnd {
        ~AtEnd() {
            if (!held) (void)scratch.give();
        }
        DeviceScratch& scratch;
        bool held;
    };
    const std::size_t room = align_up(record.bytes, 256);
    const std::size_t needed = work_bytes_ + area_of(record.bytes) + room;
    const AtEnd give{*scratch_, held};
    check_of(scratch_->take(needed), "allocate memory for decompression", needed);
    const Range part = scratch_->range(needed);
    OwnedStream stream;
    OwnedEvent mark;
    check_of(stream.open(driver_), "open a stream", 0);
    check_of(mark.open(driver_, stream.get()), "open an event", 0);
    const Codec::Place place{stream.get(), mark.get(), {part.address, work_bytes_}};
    const Range plain{part.address + work_bytes_, record.bytes};
    const Range coded{plain.address + room, record.stored};
    std::uint32_t sum = 0;
    Status status = driver_.copy_to_device(coded.address, space, coded.bytes, stream.get());
    if (status.ok()) status = coding_.codec->sum(place, {&coded, 1}, {&sum, 1});
    const bool damaged = status.ok() && sum != record.sum;
    if (status.ok() && !damaged) status = coding_.codec->decode(place, {&coded, 1}, {&plain, 1});
    if (status.ok() && !damaged) status = driver_.copy_to_host(to, plain.address, record.bytes, stream.get());
    if (status.ok()) status = pass(driver_, place);
    if (!status.ok()) {
        const Status drained = driver_.drain();
        if (!drained.ok() && drained.kind != StatusKind::gone) scratch_->unsettle();
    }
    if (damaged) raise_damaged(device, record.bytes);
    check_of(status, "decompress bytes", record.bytes);
}

inline BackupView CodedStore::view(std::uint64_t location, std::size_t bytes) const {
    std::vector<std::pair<std::uint64_t, Record>> some;
    {
        const std::lock_guard lock{mutex_};
        auto record = records_.upper_bound(location);
        if (record != records_.begin()) --record;
        for (; record != records_.end() && record->first < location + bytes; ++record) {
            if (record->second.whole && location < record->first + record->second.bytes) some.push_back(*record);
        }
    }
    const std::size_t step = stride(largest_chunk);
    const auto copy = share_.copy(std::max<std::size_t>(bytes, 1), tag_text_);
    const auto space = share_.copy(2 * step, tag_text_);
    // NOLINTBEGIN(performance-no-int-to-ptr): host addresses
    auto* const to = reinterpret_cast<std::byte*>(copy->address());
    auto* const packed = reinterpret_cast<std::byte*>(space->address());
    // NOLINTEND(performance-no-int-to-ptr)
    std::byte* const plain = packed + step;
    std::size_t found = 0;
    for (const auto& [name, record] : some) {
        const std::uint64_t begin = std::max(location, name);
        const std::uint64_t end = std::min(location + bytes, name + record.bytes);
        decode_to(plain, packed, record, 0);
        std::memcpy(to + (begin - location), plain + (begin - name), end - begin);
        found += static_cast<std::size_t>(end - begin);
    }
    if (found != bytes) misuse({"this block has no complete backup"});
    return {copy, to, bytes};
}

inline void CodedStore::change(const Unit& unit, std::size_t offset, const std::byte* from, std::size_t bytes) {
    measure();
    const std::uint64_t begin = unit.location + offset;
    const std::uint64_t end = begin + bytes;
    const std::size_t step = stride(largest_chunk);
    const auto space = share_.copy(2 * step, tag_text_);
    auto* const packed = reinterpret_cast<std::byte*>(space->address()); // NOLINT(performance-no-int-to-ptr)
    std::byte* const plain = packed + step;
    for (const Unit& chunk : cut_at_addresses({unit}, chunk_bytes_)) {
        const std::uint64_t first = std::max(begin, chunk.location);
        const std::uint64_t last = std::min(end, chunk.location + chunk.bytes);
        if (first >= last) continue;
        const Record old = record_of(chunk);
        std::memset(plain, 0, stride(chunk.bytes));
        if (last - first != chunk.bytes) {
            decode_to(plain, packed, old, chunk.device);
            if (options_.observer && !old.coded)
                options_.observer->restoring({chunk.device, old.location, old.stored}, plain);
        }
        std::memcpy(plain + (first - chunk.location), from + (first - begin), last - first);
        Record changed = old;
        changed.coded = false;
        changed.stored = chunk.bytes;
        const bool moves = old.coded || options_.observer != nullptr; // checksummed bytes are never half changed
        if (moves) changed.location = take_room(stride(chunk.bytes), 0);
        try {
            check_of(write(plain, changed.location, stride(chunk.bytes)), "write bytes to the backup", chunk.bytes);
            if (options_.observer) options_.observer->saved({chunk.device, changed.location, chunk.bytes}, plain);
        } catch (...) {
            const std::lock_guard lock{mutex_};
            if (moves) free_location(changed);
            throw;
        }
        const std::lock_guard lock{mutex_};
        Record& record = records_.at(chunk.location);
        if (moves) {
            count(old, false);
            count(changed, true);
            record = changed;
            free_location(old);
        }
    }
}

inline void CodedStore::compare(std::vector<Unit> units, const LiveSet& live, CompareWith /*compare_with*/) {
    measure();
    remember(live);
    const std::size_t step = stride(largest_chunk);
    const auto space = share_.copy(3 * step, tag_text_);
    auto* const packed = reinterpret_cast<std::byte*>(space->address()); // NOLINT(performance-no-int-to-ptr)
    std::byte* const plain = packed + step;
    std::byte* const now = plain + step;
    OwnedStream stream;
    OwnedEvent mark;
    check_of(stream.open(driver_), "open a stream", 0);
    check_of(mark.open(driver_, stream.get()), "open an event", 0);
    for (const Unit& chunk : cut_at_addresses(units, chunk_bytes_)) {
        decode_to(plain, packed, record_of(chunk), chunk.device);
        Status status = driver_.copy_to_host(now, chunk.device, chunk.bytes, stream.get());
        if (status.ok()) status = pass(driver_, {stream.get(), mark.get(), {}});
        if (!status.ok() && !driver_.drain().ok()) space->unsettle();
        check_of(status, "compare bytes", chunk.bytes);
        if (std::memcmp(plain, now, chunk.bytes) == 0) continue;
        const auto at = static_cast<std::size_t>(std::mismatch(now, now + chunk.bytes, plain).first - now);
        misuse({difference_text(units, chunk.location + at, live.tag)});
    }
}

// --- workers ---

inline CodedStore::Worker::Worker(CodedStore& store, std::size_t number, Range part, const Plan& plan,
                                  std::size_t bytes, Ring& ring)
    : store_{store}, part_{part}, plan_{plan}, grow_by_{std::min<std::size_t>(64_MiB, bytes / 16)}, ring_{ring},
      room_{store.room_of(bytes)} {
    store_.check_of(stream_.open(store_.driver_), "open a stream", 0);
    store_.check_of(mark_.open(store_.driver_, stream_.get()), "open an event", 0);
    if (plan.parts != 0) rows_ = store.take_rows(number);
}

inline void CodedStore::Worker::drain() noexcept {
    const Status drained = store_.driver_.drain();
    if (drained.ok() || drained.kind == StatusKind::gone) return;
    store_.unsettled_ = true;
    store_.scratch_->unsettle();
    if (buffer_ != nullptr) buffer_->unsettle();
    if (rows_ != nullptr) rows_->unsettle();
    const std::shared_lock steady{store_.inside_mutex_};
    for (const std::uint64_t location : reached_) store_.inside_->unsettle(location);
}

inline void CodedStore::Worker::pass() const {
    store_.check_of(detail::pass(store_.driver_, codec_place()), "wait for a copy", 0);
}

inline PinnedBuffer& CodedStore::Worker::buffer() {
    if (!loan_) loan_.emplace(ring_);
    buffer_ = &loan_->buffer(0, room_, store_.tag_text_);
    return *buffer_;
}

inline std::vector<CodedStore::Worker::StoredChunk> CodedStore::Worker::encoded(const std::vector<Unit>& chunks) {
    std::vector<StoredChunk> cargo;
    cargo.reserve(chunks.size());
    for (const Unit& chunk : chunks) {
        Record record;
        record.bytes = chunk.bytes;
        record.stored = chunk.bytes;
        cargo.push_back({chunk, record, chunk.device, chunk.bytes});
    }
    if (part_.bytes == 0) return cargo;
    std::vector<std::size_t> tried;
    std::vector<Range> plain;
    std::vector<Range> coded;
    Address at = part_.address + plan_.work;
    for (std::size_t i = 0; i < chunks.size(); ++i) {
        if (chunks[i].bytes < least_coded) continue;
        tried.push_back(i);
        plain.push_back({chunks[i].device, chunks[i].bytes});
        coded.push_back({at, chunks[i].bytes + store_.overhead_});
        at += store_.area_of(chunks[i].bytes);
    }
    if (tried.empty()) return cargo;
    const Codec& codec = *store_.coding_.codec;
    std::vector<std::uint32_t> sums(tried.size());
    store_.check_of(codec.encode_and_sum(codec_place(), plain, coded, sums), "compress bytes", plain.front().bytes);
    for (std::size_t i = 0; i < tried.size(); ++i) {
        if (coded[i].bytes == 0 || store_.stride(coded[i].bytes) >= store_.stride(plain[i].bytes)) continue;
        StoredChunk& one = cargo[tried[i]];
        one.record.coded = true;
        one.record.sum = sums[i];
        one.record.stored = coded[i].bytes;
        one.at = coded[i].address;
        one.bytes = coded[i].bytes;
    }
    return cargo;
}

inline void CodedStore::Worker::place(std::vector<StoredChunk>& cargo) {
    std::size_t bytes = 0;
    for (const StoredChunk& one : cargo) bytes += stride(one);
    std::uint64_t location = store_.take_room(bytes, grow_by_);
    const std::uint64_t end = location + bytes;
    const std::lock_guard lock{store_.mutex_};
    try {
        for (StoredChunk& one : cargo) {
            one.record.location = location;
            store_.records_.insert_or_assign(one.chunk.location, one.record); // not whole yet
            location += stride(one);
        }
    } catch (...) {
        store_.packed_.give(location, static_cast<std::size_t>(end - location));
        throw;
    }
}

inline void CodedStore::Worker::note_whole(const std::vector<StoredChunk>& cargo) {
    const std::lock_guard lock{store_.mutex_};
    for (const StoredChunk& one : cargo) {
        Record& record = store_.records_.at(one.chunk.location);
        record.whole = true;
        store_.count(record, true);
    }
}

inline void CodedStore::Worker::out(const std::vector<Unit>& chunks) {
    std::vector<StoredChunk> cargo = encoded(chunks);
    place(cargo);
    put(cargo);
    note_whole(cargo);
}

template <class Act>
void CodedStore::Worker::each_row(const std::vector<StoredChunk>& cargo, const Act& act) {
    reached_.clear();
    const auto begins_room = [&](std::uint64_t location) { // Rooms may be adjacent, but each is pinned separately
        const std::lock_guard lock{store_.mutex_};
        return store_.packed_.has_room(location);
    };
    for (std::size_t i = 0; i < cargo.size();) {
        const std::size_t first = i;
        std::uint64_t end = cargo[i].record.location;
        for (; i < cargo.size() && cargo[i].record.location == end; ++i) {
            if (i != first && begins_room(end)) break;
            end += stride(cargo[i]);
        }
        const std::uint64_t location = cargo[first].record.location;
        std::byte* host = nullptr;
        {
            const std::shared_lock steady{store_.inside_mutex_};
            store_.check_of(store_.inside_->reach(location, static_cast<std::size_t>(end - location), host),
                            "allocate host pages", static_cast<std::size_t>(end - location));
        }
        if (host != nullptr) {
            reached_.push_back(location);
            {
                const std::shared_lock steady{store_.inside_mutex_};
                reached_pinned_ = store_.inside_->pinned(location, static_cast<std::size_t>(end - location));
            }
            act(&cargo[first], cargo.data() + i, host);
            continue;
        }
        for (const StoredChunk *begin = &cargo[first], *const last = cargo.data() + i; begin != last;) {
            const StoredChunk* until = begin;
            for (std::size_t bytes = 0; until != last && bytes + stride(*until) <= room_; ++until)
                bytes += stride(*until);
            act(begin, until, nullptr);
            begin = until;
        }
    }
}

inline void CodedStore::Worker::copy(const StoredChunk* first, const StoredChunk* last, std::byte* host, bool pinned,
                                     Direction direction) {
    const bool out = direction == Direction::out;
    std::vector<CopyPart> parts;
    std::size_t bytes = 0;
    Address device = 0; // behind the last part, as is `location`
    std::uint64_t location = first->record.location;
    const auto base = reinterpret_cast<Address>(host) - location;
    for (const StoredChunk* one = first; one != last; ++one) {
        for (std::size_t done = 0; done < one->bytes;) { // a copy must not span two cells
            const std::uint64_t next = one->record.location + done;
            const std::size_t room = HostCells::cell_bytes - static_cast<std::size_t>(next % HostCells::cell_bytes);
            const std::size_t more = std::min(one->bytes - done, room);
            const bool joins = device == one->at + done && location == next && next % HostCells::cell_bytes != 0;
            if (!joins) parts.push_back({out ? base + next : one->at + done, out ? one->at + done : base + next, 0});
            parts.back().bytes += more;
            device = one->at + done + more;
            location = next + more;
            bytes += more;
            done += more;
        }
    }
    store_.check_of(copy_each(direction, parts, pinned), "copy bytes", bytes);
}

inline Status CodedStore::Worker::copy_each(Direction direction, std::span<const CopyPart> parts,
                                            bool pinned) const noexcept {
    const AnyDriver& driver = store_.driver_;
    if (parts.size() > 1 && pinned) {
        const Status status = driver.copy_many(direction, parts.data(), parts.size(), stream_.get());
        if (status.kind != StatusKind::unsupported) return status;
    }
    for (const CopyPart& part : parts) {
        // NOLINTNEXTLINE(performance-no-int-to-ptr): a host address
        auto* const host = reinterpret_cast<std::byte*>(direction == Direction::out ? part.to : part.from);
        const Status status = direction == Direction::out
                                  ? driver.copy_to_host(host, part.from, part.bytes, stream_.get())
                                  : driver.copy_to_device(part.to, host, part.bytes, stream_.get());
        if (!status.ok()) return status;
    }
    return {};
}

inline void CodedStore::Worker::put(const std::vector<StoredChunk>& cargo) {
    PieceObserver* const observer = store_.options_.observer.get();
    each_row(cargo, [&](const StoredChunk* first, const StoredChunk* last, std::byte* host) {
        std::byte* const to = host != nullptr ? host : buffer().data();
        const std::uint64_t origin = first->record.location;
        copy(first, last, to, host != nullptr ? reached_pinned_ : buffer().pinned(), Direction::out);
        pass();
        for (const StoredChunk* one = first; one != last; ++one) {
            std::byte* const at = to + (one->record.location - origin);
            std::memset(at + one->bytes, 0, stride(*one) - one->bytes); // zero the padding: always the same bytes
            if (observer != nullptr) observer->saved({one->chunk.device, one->record.location, one->record.stored}, at);
        }
        if (host != nullptr) return;
        const std::size_t bytes = static_cast<std::size_t>((last - 1)->record.location + stride(*(last - 1)) - origin);
        const std::shared_lock steady{store_.inside_mutex_};
        store_.check_of(store_.inside_->put(to, origin, bytes), "write bytes to the backup", bytes);
    });
}

inline void CodedStore::Worker::may_write(const StoredChunk& cargo,
                                          const std::function<Status(Range)>& before_write) const {
    if (!before_write) return;
    store_.check_of(before_write({cargo.chunk.device, cargo.chunk.bytes}), "wait for the save of the previous bytes",
                    cargo.chunk.bytes);
}

inline void CodedStore::Worker::in(const std::vector<Unit>& chunks, const std::function<Status(Range)>& before_write) {
    std::vector<StoredChunk> cargo;
    cargo.reserve(chunks.size());
    Address at = part_.address + plan_.work;
    for (const Unit& chunk : chunks) {
        const Record record = store_.record_of(chunk);
        const std::size_t bytes = record.coded ? store_.stride(record.stored) : record.bytes;
        cargo.push_back({chunk, record, record.coded ? at : chunk.device, bytes});
        if (record.coded) at += bytes;
    }
    get(cargo, before_write);
    decode(cargo, before_write);
}

inline void CodedStore::Worker::get(const std::vector<StoredChunk>& cargo,
                                    const std::function<Status(Range)>& before_write) {
    PieceObserver* const observer = store_.options_.observer.get();
    each_row(cargo, [&](const StoredChunk* first, const StoredChunk* last, std::byte* host) {
        std::byte* const from = host != nullptr ? host : buffer().data();
        const std::uint64_t origin = first->record.location;
        if (host == nullptr) {
            const std::size_t bytes =
                static_cast<std::size_t>((last - 1)->record.location + stride(*(last - 1)) - origin);
            const std::shared_lock steady{store_.inside_mutex_};
            store_.check_of(store_.inside_->get(from, origin, bytes), "read bytes from the backup", bytes);
        }
        for (const StoredChunk* one = first; one != last; ++one) {
            if (observer != nullptr) {
                observer->restoring({one->chunk.device, one->record.location, one->record.stored},
                                    from + (one->record.location - origin));
            }
            if (!one->record.coded) may_write(*one, before_write);
        }
        copy(first, last, from, host != nullptr ? reached_pinned_ : buffer().pinned(), Direction::in);
        if (host == nullptr) pass();
    });
}

inline void CodedStore::Worker::decode(const std::vector<StoredChunk>& cargo,
                                       const std::function<Status(Range)>& before_write) {
    std::vector<const StoredChunk*> which;
    std::vector<Range> coded;
    std::vector<Range> plain;
    for (const StoredChunk& one : cargo) {
        if (!one.record.coded) continue;
        which.push_back(&one);
        coded.push_back({one.at, one.record.stored});
        plain.push_back({one.chunk.device, one.chunk.bytes});
    }
    if (coded.empty()) return pass();
    std::vector<std::uint32_t> expected;
    std::vector<std::uint32_t> sums(coded.size());
    for (const StoredChunk* const one : which) {
        expected.push_back(one->record.sum);
        may_write(*one, before_write);
    }
    pass(); // a kernel launched behind a copy slows down all copies (decision 25)
    const Codec& codec = *store_.coding_.codec;
    const Status decoded = codec.sum_and_decode(codec_place(), coded, expected, sums, plain);
    for (std::size_t i = 0; decoded.ok() && i < coded.size(); ++i) {
        if (sums[i] != expected[i]) store_.raise_damaged(plain[i].address, plain[i].bytes);
    }
    store_.check_of(decoded, "decompress bytes", plain[0].bytes);
    pass();
}

// --- transfers ---

inline void CodedStore::CodedWay::take_ahead(const Transfer& transfer) noexcept {
    // Movers take the rest.
    for (std::size_t i = next_cell_++; i < cells_.size() && !transfer.all_taken(); i = next_cell_++) {
        const std::shared_lock steady{store_.inside_mutex_};
        if (!store_.inside_->take_ahead(cells_[i].location, cells_[i].bytes)) return;
    }
}

inline void CodedStore::CodedWay::work(Transfer& transfer) {
    if (begun_++ >= movers_) return take_ahead(transfer);
    const Loan loan{store_, plan_.parts};
    if (transfer.all_taken()) return;
    const std::size_t each = plan_.work + plan_.area;
    const Range scratch = plan_.parts != 0 ? Range{scratch_.address + loan.part() * each, each} : Range{};
    Worker worker{store_, loan.part(), scratch, plan_, bytes_, *ring_};
    for (std::size_t i = 0; transfer.take(i);) {
        try {
            if (direction_ == Direction::out) {
                worker.out(transfer.pieces()[i].units);
            } else {
                worker.in(transfer.pieces()[i].units, before_write_);
            }
        } catch (...) {
            worker.drain();
            throw;
        }
        transfer.arrived(i);
    }
}

} // namespace detail

} // namespace memsaver::inline v0_3
