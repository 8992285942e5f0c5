// The store of a Compressed backup: coded chunks, packed into another store. Knows neither blocks nor the codec's
// library.
#pragma once

#include "memsaver/backup/codec.hpp"
#include "memsaver/backup/device_scratch.hpp"
#include "memsaver/backup/store.hpp"
#include "memsaver/core/finally.hpp"
#include "memsaver/core/pointers.hpp"
#include "memsaver/core/sizes.hpp"
#include "memsaver/core/vector.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3::detail {

struct CodedOptions {
    std::shared_ptr<const Codec> codec{};
    std::size_t piece_bytes = 32_MiB; ///< size of a piece, at least 1 MiB
    unsigned pieces = 3;              ///< pieces in flight, at least 1
};

///     locations, as the slot sees them   |  chunk  |  chunk  | chunk |       at most 1 MiB of one block each
///                                             |         |        `---.
///     records                              coded      uncoded      coded
///                                             |         |            |
///     the inner store                    | packed |  packed   | packed |    in slabs, its Rooms
///
/// Keeps coded chunks in an inner store. The slot's locations are only names. A chunk is the part of a block between
/// two multiples of the chunk size on the device, so that any part that can be paused or resumed alone is whole chunks.
/// Chunks that do not shrink are kept uncoded.
///
/// A transfer moves pieces; a piece is the chunks that are coded together. Each worker has a stream and a part of the
/// scratch, and takes piece after piece: coding, copying and decoding by different workers overlap. While host memory
/// is being allocated, other threads touch it ahead of the workers. Pinning is left to the workers: it delays their
/// driver calls whichever thread does it, and more threads do not make it faster.
class CodedStore final : public NamingStore {
public:
    [[nodiscard]] std::size_t alignment() const noexcept override { return 256; }

    CodedStore(const AnyDriver& driver, std::shared_ptr<BackupStore> inside, StoreOptions options, CodedOptions coding)
        : NamingStore{driver, std::move(inside), std::move(options), 8_MiB, "read bytes from the backup"},
          coding_{std::move(coding)}, scratch_{new_shared<DeviceScratch>(driver)} {
        lent_.resize(coding_.pieces);
        shape_ = Ring::Shape{options_.ring_bytes, coding_.pieces, 8_MiB};
    }

    void discard(std::uint64_t location, std::size_t bytes) override {
        const std::lock_guard lock{mutex_};
        for (auto record = records_.lower_bound(location);
             record != records_.end() && record->first < location + bytes;) {
            inside_->discard(record->second.location, stride(record->second.stored));
            record = erase(record);
        }
    }
    void shrink(LocationSpace&) noexcept override { // names cost nothing
        const std::unique_lock growing{inside_mutex_};
        const std::lock_guard lock{mutex_};
        inside_->shrink(packed_);
    }
    Status clear() noexcept override {
        {
            const std::lock_guard lock{mutex_};
            records_.clear();
            packed_.clear();
            coded_area_ = 0;
            kept_bytes_ = 0;
            scratch_->want(0);
        }
        return first_failure(
            {scratch_->give(), own_ring_ ? own_ring_->clear() : Status{}, inside_->clear(), leave_ring()});
    }

    /// Allocates storage for 0.7 of the bytes, the codec's arrays and, if the device has enough memory, the scratch.
    void prepare(Vector<Unit> units) override {
        measure();
        (void)allocate(cut_at_addresses(units, chunk_bytes_), {});
        Vector<Unit> cells;
        for (const Room& cell : cells_to_pin()) cells.push_back({0, cell.location, cell.bytes});
        inside_->prepare(std::move(cells));
        const std::size_t buffer = buffer_bytes(bytes_of(units));
        if (buffer != 0) ring()->prepare(std::min(pieces_of(units, {}).size(), ring()->pairs()), buffer, error_prefix_);
    }
    /// Changed chunks are kept uncoded until they are saved again.
    void change(const Unit& unit, std::size_t offset, const std::byte* from, std::size_t bytes) override {
        measure();
        const std::uint64_t begin = unit.location + offset;
        const std::uint64_t end = begin + bytes;
        const std::size_t step = stride(largest_chunk);
        const auto space = pages_for(2 * step);
        std::byte* const packed = space->data();
        std::byte* const plain = packed + step;
        for (const Unit& chunk : cut_at_addresses({unit}, chunk_bytes_)) {
            const std::uint64_t first = std::max(begin, chunk.location);
            const std::uint64_t last = std::min(end, chunk.location + chunk.bytes);
            if (first >= last) continue;
            const Record old = record_of(chunk);
            std::memset(plain, 0, stride(chunk.bytes));
            if (last - first != chunk.bytes) {
                decode_to(plain, packed, old);
                if (options_.observer && !old.coded())
                    options_.observer->restoring({chunk.device, old.location, old.stored}, plain);
            }
            std::memcpy(plain + (first - chunk.location), from + (first - begin), last - first);
            std::unique_lock lock{mutex_};
            Record changed{take_room(stride(chunk.bytes), 0, lock), chunk.bytes, chunk.bytes};
            lock.unlock();
            changed.whole = true;
            changed.device = chunk.device;
            try { // at another location: no bytes are ever half changed
                check_of(write(plain, changed.location, stride(chunk.bytes)), "write bytes to the backup", chunk.bytes);
                if (options_.observer) options_.observer->saved({chunk.device, changed.location, chunk.bytes}, plain);
                lock.lock();
                free_location(old);
                count(old, false);
                count(changed, true);
                records_.at(chunk.location) = changed;
            } catch (...) {
                if (!lock) lock.lock();
                free_location(changed);
                throw;
            }
        }
    }
    // ByteStore
    /// Decodes. If the codec cannot on the host, the device does, which needs a small amount of device memory for the
    /// duration of the call: throws OutOfMemory if there is none. Throws BackupDamaged, and Misuse if some of the bytes
    /// are not kept.
    Status get(std::byte* to, std::uint64_t location, std::size_t bytes) const override {
        Vector<std::pair<std::uint64_t, Record>> some;
        {
            const std::lock_guard lock{mutex_};
            auto record = records_.upper_bound(location);
            if (record != records_.begin()) --record;
            for (; record != records_.end() && record->first < location + bytes; ++record) {
                if (record->second.whole && location < record->first + record->second.bytes) some.push_back(*record);
            }
        }
        const std::size_t step = stride(largest_chunk);
        const auto space = pages_for(2 * step);
        std::byte* const plain = space->data() + step;
        std::size_t found = 0;
        for (const auto& [name, record] : some) {
            const std::uint64_t begin = std::max(location, name);
            const std::uint64_t end = std::min(location + bytes, name + record.bytes);
            decode_to(plain, space->data(), record);
            std::memcpy(to + (begin - location), plain + (begin - name), end - begin);
            found += static_cast<std::size_t>(end - begin);
        }
        if (found != bytes) misuse({"this block has no complete backup"});
        return {};
    }

    [[nodiscard]] std::shared_ptr<DeviceScratch> scratch() const noexcept override { return scratch_; }

private:
    class CodedWay;
    class Worker;

    /// Smaller chunks are not worth coding.
    static constexpr std::size_t least_coded = 4096;
    static constexpr std::size_t largest_chunk = 1_MiB;
    static constexpr std::size_t page = 4096;

    struct Record {
        std::uint64_t location = 0; ///< in the inner store
        std::size_t bytes = 0;      ///< uncoded size
        std::size_t stored = 0;
        std::uint32_t sum = 0; ///< checksum of a coded chunk
        bool whole = false;    ///< the bytes have been stored
        Address device = 0;    ///< where they were then

        [[nodiscard]] bool coded() const noexcept { return stored < bytes; }
    };
    using Records = std::map<std::uint64_t, Record>; // by name

    /// Layout of the scratch: `parts` parts of equal size, each with the codec's work memory and an area for coded
    /// chunks.
    struct Plan {
        std::size_t parts = 0;
        std::size_t each = 0;
        [[nodiscard]] std::size_t bytes() const noexcept { return parts * each; }
    };

    [[nodiscard]] std::size_t stride(std::size_t bytes) const noexcept { return align_up(bytes, inside_->alignment()); }
    /// Returns the area that coding a chunk needs, in bytes; 0 if it is not coded.
    [[nodiscard]] std::size_t area_of(std::size_t bytes) const noexcept {
        return bytes < least_coded ? 0 : align_up(bytes + overhead_, 256);
    }
    [[nodiscard]] std::size_t most_area() const noexcept {
        return coding_.piece_bytes / chunk_bytes_ * area_of(chunk_bytes_);
    }
    [[nodiscard]] std::size_t most_chunks() const noexcept { return 4 * (coding_.piece_bytes / chunk_bytes_) + 64; }
    /// Returns the bytes of a buffer that are for the codec's arrays.
    [[nodiscard]] std::size_t row_bytes() const noexcept {
        return align_up(coding_.codec->row_bytes(most_chunks()), page);
    }
    /// Returns the size of a buffer of the ring, for the codec's arrays and, unless copies reach the inner store, the
    /// bytes of a transfer of `bytes` bytes.
    [[nodiscard]] std::size_t buffer_bytes(std::size_t bytes) const noexcept {
        return inside_->reachable() ? row_bytes()
                                    : std::min(shape_.buffer_bytes, row_bytes() + align_up(bytes, 64_KiB));
    }
    /// Returns the ring of the buffers. It is this store's alone if copies reach the inner store: tags then do not wait
    /// for each other.
    const std::shared_ptr<Ring>& ring() {
        if (!inside_->reachable()) return shared_ring();
        if (!own_ring_) {
            const Ring::Shape shape{2 * Ring::least_buffer * coding_.pieces, coding_.pieces, Ring::least_buffer};
            own_ring_ = new_shared<Ring>(driver_, shape, last_live_.host_budget);
        }
        return own_ring_;
    }
    [[nodiscard]] Plan plan(std::size_t area) const noexcept {
        if (area == 0) return {};
        const std::size_t most = most_area();
        return {std::min<std::size_t>((area + most - 1) / most, coding_.pieces), work_bytes_ + std::min(area, most)};
    }

    /// Queries the chunk size and the codec's sizes, once. Throws the exception for a failing call.
    void measure() {
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
    /// Returns the chunks in the order in which they are moved, grouped into pieces.
    [[nodiscard]] Vector<Piece> pieces_of(const Vector<Unit>& units, const std::vector<Range>& first) const {
        Vector<Piece> pieces;
        for (const Vector<Unit>& group : in_wanted_order(cut_at_addresses(units, chunk_bytes_), first, false)) {
            std::size_t area = most_area() + 1; // bytes that are needed first wait for nothing else
            for (const Unit& chunk : group) {
                area += area_of(chunk.bytes);
                if (area > most_area() || pieces.back().units.size() == most_chunks()) {
                    pieces.push_back({});
                    area = area_of(chunk.bytes);
                }
                pieces.back().units.push_back(chunk);
            }
        }
        return pieces;
    }
    /// Allocates scratch and storage for saving chunks. Returns a plan without parts, and tells so once, if the device
    /// has too little memory.
    Plan allocate(const Vector<Unit>& chunks, const std::function<void(const std::string&)>& tell) {
        std::size_t area = 0;
        std::size_t wanted = 0;
        for (const Unit& chunk : chunks) {
            area += area_of(chunk.bytes);
            wanted += stride(chunk.bytes);
        }
        Plan scratch = plan(area);
        const Status status = scratch_->take(scratch.bytes());
        if (status.kind != StatusKind::out_of_memory) {
            check_of(status, "allocate memory for compression", scratch.bytes());
            wanted = wanted / 10 * 7;
        } else {
            if (tell && !std::exchange(reported_, true)) {
                tell("the device lacks " + format_bytes(scratch.bytes()) +
                     " for compression: bytes are saved uncompressed; `prepare` allocates it in advance");
            }
            scratch = {};
        }
        const std::unique_lock growing{inside_mutex_};
        const std::lock_guard lock{mutex_};
        std::size_t there = packed_.free_bytes();
        for (const Unit& chunk : chunks) {
            if (const auto record = records_.find(chunk.location); record != records_.end())
                there += stride(record->second.stored);
        }
        if (there < wanted) packed_.grow(*inside_, align_up(wanted - there, page), last_live_);
        return scratch;
    }
    UniquePtr<Transfer> start(Direction direction, Vector<Unit> units, const LiveSet& live) override;

    // Bookkeeping. `free_location`, `erase` and `count` need mutex_ to be held; the others lock it.
    void free_location(const Record& record) {
        packed_.give(record.location, record.stored);
        if (options_.observer) options_.observer->discarded(record.location, stride(record.stored));
    }
    Records::iterator erase(Records::iterator record) {
        free_location(record->second); // may throw; nothing has changed then
        if (record->second.whole) count(record->second, false);
        return records_.erase(record);
    }
    void count(const Record& record, bool more) noexcept {
        const std::size_t area = record.coded() ? area_of(record.bytes) : 0;
        kept_bytes_ += more ? record.stored : 0 - record.stored;
        coded_area_ += more ? area : 0 - area;
        scratch_->want(align_up(plan(coded_area_).bytes(), granularity_));
    }

    [[nodiscard]] Record record_of(const Unit& chunk) const {
        const std::lock_guard lock{mutex_};
        const auto record = records_.find(chunk.location);
        if (record == records_.end() || !record->second.whole || record->second.bytes != chunk.bytes)
            raise_damaged(chunk.device, chunk.bytes);
        return record->second;
    }
    [[nodiscard]] Vector<Room> cells_to_pin() const {
        const std::shared_lock steady{inside_mutex_};
        return inside_->unpinned_cells();
    }
    /// Returns a location in the inner store, which grows if needed. `lock`: holds mutex_, but not while it waits.
    std::uint64_t take_room(std::size_t bytes, std::size_t grow_by, std::unique_lock<std::mutex>& lock) {
        if (const std::uint64_t location = packed_.take(bytes)) return location;
        lock.unlock();
        const std::unique_lock growing{inside_mutex_};
        lock.lock();
        for (;;) {
            if (const std::uint64_t location = packed_.take(bytes)) return location; // another thread may have grown it
            packed_.grow(*inside_, align_up(std::max(bytes, grow_by), page), last_live_);
        }
    }

    /// Decodes a chunk. `space` has the inner store's alignment and room for a stride of the record.
    void decode_to(std::byte* to, std::byte* space, const Record& record) const {
        {
            const std::shared_lock steady{inside_mutex_};
            check_of(inside_->get(space, record.location, stride(record.stored)), reading_, record.stored);
        }
        if (!record.coded()) return static_cast<void>(std::memcpy(to, space, record.bytes));
        bool wrong = false;
        const Status here = coding_.codec->decode_here({space, record.stored}, record.sum, {to, record.bytes}, wrong);
        if (wrong) raise_damaged(record.device, record.bytes);
        if (here.kind != StatusKind::unsupported) return check_of(here, "decompress bytes", record.bytes);
        const std::lock_guard one_by_one{decode_mutex_}; // the threads of a comparison
        const bool held = scratch_->held_bytes() != 0;
        const std::size_t room = align_up(record.bytes, 256);
        const std::size_t needed = work_bytes_ + area_of(record.bytes) + room;
        const Finally give{[&] {
            if (!held) (void)scratch_->give();
        }};
        check_of(scratch_->take(needed), "allocate memory for decompression", needed);
        const Range part = scratch_->range(needed);
        OwnedStream stream;
        OwnedEvent mark;
        open(stream, mark);
        const Codec::Place place{stream.get(), mark.get(), {part.address, work_bytes_}};
        const Range plain{part.address + work_bytes_, record.bytes};
        const Range coded{plain.address + room, record.stored};
        std::uint32_t sum = 0;
        Status status = driver_.copy_to_device(coded.address, space, coded.bytes, stream.get());
        if (status.ok()) status = coding_.codec->decode(place, {&coded, 1}, {&record.sum, 1}, {&sum, 1}, {&plain, 1});
        const bool damaged = status.ok() && sum != record.sum;
        if (status.ok() && !damaged) status = driver_.copy_to_host(to, plain.address, record.bytes, stream.get());
        if (status.ok()) status = pass(driver_, place);
        if (!status.ok()) {
            if (!drained(driver_).ok()) scratch_->unsettle();
        }
        if (damaged) raise_damaged(record.device, record.bytes);
        check_of(status, "decompress bytes", record.bytes);
    }
    void open(OwnedStream& stream, OwnedEvent& mark) const {
        check_of(stream.open(driver_), "open a stream", 0);
        check_of(mark.open(driver_, stream.get()), "open an event", 0);
    }
    Status write(const std::byte* from, std::uint64_t location, std::size_t bytes) const {
        Reached host;
        const std::shared_lock steady{inside_mutex_};
        if (const Status status = inside_->reach(location, bytes, host); !status.ok()) return status;
        if (host.at == nullptr) return inside_->put(from, location, bytes);
        std::memcpy(host.at, from, bytes);
        return {};
    }
    [[noreturn]] void raise_damaged(Address device, std::size_t bytes) const {
        throw BackupDamaged{error_prefix_ + "the compressed backup of " + format_bytes(bytes) + " at " +
                            format_address(device) + " differs from the saved bytes and is not restored"};
    }

    CodedOptions coding_;
    std::shared_ptr<DeviceScratch> scratch_;
    std::shared_ptr<Ring> own_ring_;
    std::size_t chunk_bytes_ = 0;
    std::size_t overhead_ = 0;
    std::size_t work_bytes_ = 0;
    std::size_t granularity_ = 0;
    bool reported_ = false;
    std::mutex parts_mutex_; ///< guards lent_; parts of concurrent transfers have equal sizes
    std::condition_variable part_free_;
    Vector<char> lent_;
    std::atomic<bool> unsettled_{false};     ///< work that could not be waited for may still run on a closed stream
    mutable std::shared_mutex inside_mutex_; ///< exclusive while the inner store grows
    mutable std::mutex decode_mutex_;        ///< guards the scratch where no transfer uses it
    mutable std::mutex mutex_;               // guards packed_ and the members below
    Records records_;
    std::size_t coded_area_ = 0; ///< of coded chunks
};

class CodedStore::CodedWay final : public Transfer::Way {
public:
    CodedWay(CodedStore& store, Direction direction, std::size_t bytes, const Plan& plan, const LiveSet& live,
             std::size_t movers)
        : store_{store}, direction_{direction}, plan_{plan}, scratch_{store.scratch_->range(plan.bytes())},
          in_use_{*store.scratch_}, bytes_{bytes}, ring_{store.ring()}, before_write_{live.before_write}, movers_{
                                                                                                              movers} {
        if (direction == Direction::out) cells_ = store.cells_to_pin();
    }

    std::size_t start(Transfer&) override { return movers_ + cells_.size(); }
    void work(Transfer& transfer) override;

private:
    friend class Worker;

    CodedStore& store_;
    Direction direction_;
    Plan plan_;
    Range scratch_;
    DeviceScratch::UseGuard in_use_;
    std::size_t bytes_;
    std::shared_ptr<Ring> ring_;
    std::function<Status(Range)> before_write_;
    std::size_t movers_;
    Vector<Room> cells_;
    std::atomic<std::size_t> begun_{0};
    std::atomic<std::size_t> next_cell_{0};
    std::atomic<unsigned> buffered_{0}; ///< movers that have what they need, or are getting it
};

/// A thread that moves pieces: a stream, and a part of the scratch if there is one. Borrows the part, and waits if all
/// are lent: a tag that was paused in several steps is resumed by several concurrent transfers.
class CodedStore::Worker {
public:
    explicit Worker(CodedWay& way)
        : way_{way}, store_{way.store_}, grow_by_{std::min<std::size_t>(64_MiB, way.bytes_ / 16)},
          rows_{way.plan_.parts != 0 ? store_.row_bytes() : 0}, room_{store_.buffer_bytes(way.bytes_) -
                                                                      store_.row_bytes()} {
        if (way.plan_.parts == 0) return;
        std::unique_lock lock{store_.parts_mutex_};
        const auto end = store_.lent_.begin() + static_cast<std::ptrdiff_t>(way.plan_.parts);
        auto free = end;
        store_.part_free_.wait(lock, [&] { return (free = std::find(store_.lent_.begin(), end, false)) != end; });
        *free = true;
        number_ = static_cast<std::size_t>(free - store_.lent_.begin());
        part_ = {way.scratch_.address + number_ * way.plan_.each, way.plan_.each};
    }
    Worker& operator=(Worker&&) = delete;
    /// Not inlined: g++ 12 would warn that members which the constructor always sets may be uninitialized.
    [[gnu::noinline]] ~Worker() {
        if (part_.bytes == 0) return;
        const std::lock_guard lock{store_.parts_mutex_};
        store_.lent_[number_] = 0;
        store_.part_free_.notify_all();
    }

    /// Allocates what moving pieces needs. Returns false if other workers can do without this one.
    bool open() {
        store_.open(stream_, mark_);
        if (rows_ + room_ == 0) return true;
        way_.buffered_ += 1;
        try {
            loan_.emplace(*way_.ring_);
            buffer_ = &loan_->buffer(0, rows_ + room_, store_.error_prefix_);
        } catch (const OutOfHostMemory&) {
            loan_.reset();
            if (room_ == 0) return true; // only slower
            if (way_.buffered_.fetch_sub(1) == 1) throw;
            return false;
        }
        return true;
    }
    void out(const Vector<Unit>& chunks) {
        Vector<StoredChunk> cargo = encoded(chunks);
        place(cargo);
        put(cargo);
        note_whole(cargo);
    }
    void in(const Vector<Unit>& chunks) {
        Vector<StoredChunk> cargo;
        cargo.reserve(chunks.size());
        Address at = part_.address + store_.work_bytes_;
        for (const Unit& chunk : chunks) {
            const Record record = store_.record_of(chunk);
            const std::size_t bytes = record.coded() ? store_.stride(record.stored) : record.bytes;
            cargo.push_back({chunk, record, record.coded() ? at : chunk.device, bytes});
            if (record.coded()) at += bytes;
        }
        get(cargo);
        decode(cargo);
    }
    /// After a failure: waits until nothing is in flight. If that fails, marks the memory in use as unsettled.
    void drain() noexcept {
        if (drained(store_.driver_).ok()) return;
        store_.unsettled_ = true;
        store_.scratch_->unsettle();
        if (buffer_ != nullptr) buffer_->unsettle();
        const std::shared_lock steady{store_.inside_mutex_};
        store_.inside_->unsettle();
    }

private:
    /// A chunk in flight. The bytes at `at`, on the device, belong to `record`.
    struct StoredChunk {
        Unit chunk;
        Record record;
        Address at = 0;
        std::size_t bytes = 0; ///< to copy
    };
    /// Chunks that are adjacent in the inner store, and their host memory: its own, or the buffer.
    struct Row {
        std::span<const StoredChunk> chunks;
        std::size_t bytes = 0;
        BackupStore::Reached host{};
        bool direct = false;

        [[nodiscard]] std::uint64_t location() const noexcept { return chunks.front().record.location; }
        [[nodiscard]] std::byte* at(const StoredChunk& one) const noexcept {
            return host.at + (one.record.location - location());
        }
        [[nodiscard]] static Unit unit(const StoredChunk& one) noexcept {
            return {one.chunk.device, one.record.location, one.record.stored};
        }
    };

    Vector<StoredChunk> encoded(const Vector<Unit>& chunks) {
        Vector<StoredChunk> cargo;
        Vector<std::size_t> tried;
        std::vector<Range> plain;
        std::vector<Range> coded;
        Address at = part_.address + store_.work_bytes_;
        for (const Unit& chunk : chunks) {
            cargo.push_back({chunk, {0, chunk.bytes, chunk.bytes}, chunk.device, chunk.bytes});
            const std::size_t area = store_.area_of(chunk.bytes);
            if (part_.bytes == 0 || area == 0) continue;
            tried.push_back(cargo.size() - 1);
            plain.push_back({chunk.device, chunk.bytes});
            coded.push_back({at, chunk.bytes + store_.overhead_});
            at += area;
        }
        if (tried.empty()) return cargo;
        Vector<std::uint32_t> sums(tried.size());
        store_.check_of(store_.coding_.codec->encode(codec_place(), plain, coded, sums), "compress bytes",
                        plain.front().bytes);
        for (std::size_t i = 0; i < tried.size(); ++i) {
            if (coded[i].bytes == 0 || store_.stride(coded[i].bytes) >= store_.stride(plain[i].bytes)) continue;
            StoredChunk& one = cargo[tried[i]];
            one = {one.chunk, {0, plain[i].bytes, coded[i].bytes, sums[i]}, coded[i].address, coded[i].bytes};
        }
        return cargo;
    }
    void place(Vector<StoredChunk>& cargo) {
        std::size_t bytes = 0; // without a place
        for (const StoredChunk& one : cargo) bytes += stride(one);
        std::unique_lock lock{store_.mutex_};
        for (StoredChunk& one : cargo) { // side by side where there is room for that
            one.record.location = store_.take_room(stride(one), std::max(bytes, grow_by_), lock);
            one.record.device = one.chunk.device;
            bytes -= stride(one);
            try {
                store_.records_.insert_or_assign(one.chunk.location, one.record); // not whole yet
            } catch (...) {
                store_.free_location(one.record);
                throw;
            }
        }
    }
    void note_whole(const Vector<StoredChunk>& cargo) {
        const std::lock_guard lock{store_.mutex_};
        for (const StoredChunk& one : cargo) {
            Record& record = store_.records_.at(one.chunk.location);
            record.whole = true;
            store_.count(record, true);
        }
    }
    void put(const Vector<StoredChunk>& cargo) {
        PieceObserver* const observer = store_.options_.observer.get();
        each_row(cargo, [&](const Row& row) {
            copy(row);
            pass();
            for (const StoredChunk& one : row.chunks) { // zero the padding: always the same bytes
                std::memset(row.at(one) + one.bytes, 0, stride(one) - one.bytes);
                if (observer != nullptr) observer->saved(Row::unit(one), row.at(one));
            }
            if (row.direct) return;
            const std::shared_lock steady{store_.inside_mutex_};
            store_.check_of(store_.inside_->put(row.host.at, row.location(), row.bytes), "write bytes to the backup",
                            row.bytes);
        });
    }
    void get(const Vector<StoredChunk>& cargo) {
        PieceObserver* const observer = store_.options_.observer.get();
        each_row(cargo, [&](const Row& row) {
            if (!row.direct) {
                const std::shared_lock steady{store_.inside_mutex_};
                store_.check_of(store_.inside_->get(row.host.at, row.location(), row.bytes), store_.reading_,
                                row.bytes);
            }
            for (const StoredChunk& one : row.chunks) {
                if (observer != nullptr) observer->restoring(Row::unit(one), row.at(one));
                if (!one.record.coded()) may_write(one);
            }
            copy(row);
            if (!row.direct) pass();
        });
    }
    void decode(const Vector<StoredChunk>& cargo) {
        std::vector<Range> coded;
        std::vector<Range> plain;
        Vector<std::uint32_t> expected;
        for (const StoredChunk& one : cargo) {
            if (!one.record.coded()) continue;
            coded.push_back({one.at, one.record.stored});
            plain.push_back({one.chunk.device, one.chunk.bytes});
            expected.push_back(one.record.sum);
            may_write(one);
        }
        pass(); // a kernel launched behind a copy slows down all copies (decision 25)
        if (coded.empty()) return;
        Vector<std::uint32_t> sums(coded.size());
        const Status decoded = store_.coding_.codec->decode(codec_place(), coded, expected, sums, plain);
        for (std::size_t i = 0; decoded.ok() && i < coded.size(); ++i) {
            if (sums[i] != expected[i]) store_.raise_damaged(plain[i].address, plain[i].bytes);
        }
        store_.check_of(decoded, "decompress bytes", plain[0].bytes);
        pass();
    }
    template <class Act>
    void each_row(const Vector<StoredChunk>& cargo, const Act& act) {
        const auto begins_room = [&](std::uint64_t location) { // Rooms may be adjacent, but each is pinned separately
            const std::lock_guard lock{store_.mutex_};
            return store_.packed_.has_room(location);
        };
        for (std::size_t i = 0; i < cargo.size();) {
            Row row;
            const std::size_t first = i;
            const std::uint64_t location = cargo[first].record.location;
            do {
                row.bytes += stride(cargo[i++]);
            } while (i < cargo.size() && cargo[i].record.location == location + row.bytes &&
                     (room_ == 0 || row.bytes + stride(cargo[i]) <= room_) && !begins_room(location + row.bytes));
            row.chunks = {&cargo[first], i - first};
            {
                const std::shared_lock steady{store_.inside_mutex_};
                store_.check_of(store_.inside_->reach(location, row.bytes, row.host), "allocate host pages", row.bytes);
            }
            row.direct = row.host.at != nullptr;
            if (!row.direct) row.host = {buffer_->data() + rows_, buffer_->pinned()};
            act(row);
        }
    }
    void copy(const Row& row) {
        const AnyDriver& driver = store_.driver_;
        const bool out = way_.direction_ == Direction::out;
        Vector<Unit> units;
        for (const StoredChunk& one : row.chunks) units.push_back({one.at, one.record.location, one.bytes});
        Vector<CopyPart> parts; // a copy must not span two cells
        for (const Piece& piece : cut_into_pieces(units, HostCells::cell_bytes, [](auto&, auto&) { return false; })) {
            (void)piece.each_copy([&](const Unit& unit) {
                const auto host = reinterpret_cast<Address>(row.host.at) + (unit.location - row.location());
                parts.push_back({out ? host : unit.device, out ? unit.device : host, unit.bytes});
                return Status{};
            });
        }
        Status status;
        if (parts.size() > 1 && row.host.pinned) {
            status = driver.copy_many(way_.direction_, parts.data(), parts.size(), stream_.get());
            if (status.kind != StatusKind::unsupported) return store_.check_of(status, "copy bytes", bytes_of(units));
            status = {};
        }
        for (std::size_t i = 0; i < parts.size() && status.ok(); ++i)
            status = detail::copy(driver, way_.direction_, parts[i], stream_.get());
        store_.check_of(status, "copy bytes", bytes_of(units));
    }
    void may_write(const StoredChunk& cargo) const {
        if (!way_.before_write_) return;
        store_.check_of(way_.before_write_({cargo.chunk.device, cargo.chunk.bytes}),
                        "wait for the save of the previous bytes", cargo.chunk.bytes);
    }
    [[nodiscard]] Codec::Place codec_place() const noexcept {
        return {stream_.get(),
                mark_.get(),
                {part_.address, store_.work_bytes_},
                rows_ != 0 && buffer_ != nullptr && buffer_->pinned() ? buffer_->data() : nullptr};
    }
    void pass() const { store_.check_of(detail::pass(store_.driver_, codec_place()), "wait for a copy", 0); }
    [[nodiscard]] std::size_t stride(const StoredChunk& cargo) const noexcept {
        return store_.stride(cargo.record.stored);
    }

    CodedWay& way_;
    CodedStore& store_;
    std::size_t number_ = 0; // of the part
    Range part_;
    std::size_t grow_by_;
    std::size_t rows_; // bytes of the buffer that are the codec's
    std::size_t room_; // of the rest
    OwnedStream stream_;
    OwnedEvent mark_;
    std::optional<Ring::Loan> loan_;
    PinnedBuffer* buffer_ = nullptr;
};

inline void CodedStore::CodedWay::work(Transfer& transfer) {
    if (begun_++ >= movers_) { // allocates host pages while the movers move bytes; they allocate the rest
        for (std::size_t i = next_cell_++; i < cells_.size() && !transfer.all_taken(); i = next_cell_++) {
            const std::shared_lock steady{store_.inside_mutex_};
            const std::uint64_t cell = cells_[i].location;
            if (!store_.inside_->pages_of(cell)->prepare(cell, false).ok()) return; // `reach` reports failures
        }
        return;
    }
    Worker worker{*this};
    if (transfer.all_taken() || !worker.open()) return;
    for (std::size_t i = 0; transfer.take(i);) {
        try {
            if (direction_ == Direction::out) {
                worker.out(transfer.pieces()[i].units);
            } else {
                worker.in(transfer.pieces()[i].units);
            }
        } catch (...) {
            worker.drain();
            throw;
        }
        transfer.arrived(i);
    }
}

inline UniquePtr<Transfer> CodedStore::start(Direction direction, Vector<Unit> units, const LiveSet& live) {
    measure();
    check_of(settle(driver_, unsettled_), "wait for copies of an earlier call", 0);
    ring()->settle(error_prefix_); // here: the crew must not wait for the device
    Plan scratch;
    if (direction == Direction::out) {
        const Vector<Unit> chunks = cut_at_addresses(units, chunk_bytes_);
        {
            const std::lock_guard lock{mutex_};
            for (const Unit& chunk : chunks) {
                if (const auto record = records_.find(chunk.location); record != records_.end()) erase(record);
            }
        }
        scratch = allocate(chunks, live.tell);
    } else {
        {
            const std::lock_guard lock{mutex_};
            scratch = plan(coded_area_);
        }
        if (scratch.parts != 0)
            check_of(scratch_->take(), "allocate memory for decompression", scratch_->wanted_bytes());
    }
    inside_->about(live);
    Vector<Piece> pieces = pieces_of(units, live.first);
    CrewOptions crew = options_.crew;
    const std::size_t movers = std::min({scratch.parts != 0 ? scratch.parts : std::size_t{coding_.pieces},
                                         pieces.size(), std::max<std::size_t>(1, crew.threads)});
    // In addition to the movers, the policy's threads allocate host memory. A crew of one stays one.
    if (crew.threads > 1) crew.threads += static_cast<unsigned>(movers);
    auto way = UniquePtr<CodedWay>::make(*this, direction, bytes_of(units), scratch, live, movers);
    auto work = UniquePtr<Transfer>::make(driver_, std::move(pieces), crew, live.progress, std::move(way));
    work->start();
    return work;
}

} // namespace memsaver::inline v0_3::detail
