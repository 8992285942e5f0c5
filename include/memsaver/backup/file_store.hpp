// Room for bytes in one file. Knows locations, not blocks.
#pragma once

#include "memsaver/backup/backup_concept.hpp"
#include "memsaver/backup/compare.hpp"
#include "memsaver/backup/location_space.hpp"
#include "memsaver/backup/store_options.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_1 {

/// A file without a name in a directory, opened when room is first needed. A location is an offset plus one page, so
/// that none is 0. Blocks begin at pages of their own, because direct writes come in pages.
template <class D>
requires Copies<D> && HostPages<D> && Files<D>
class FileStore {
public:
    static constexpr std::size_t alignment = 4096;

    FileStore(D driver, std::string directory, StoreOptions options)
        : driver_{driver}, directory_{std::move(directory)}, options_{std::move(options)},
          ring_{std::make_shared<Ring<D>>(driver, options_.ring_bytes, options_.crew.threads, 32_MiB)} {}

    /// The disk's room is taken now: a full disk is an error before anything is written.
    Room grow(std::size_t bytes, const LiveSet& live) {
        whose_ = of_tag(live.tag);
        if (!file_.owns()) {
            const Status status = file_.open(driver_, directory_);
            if (!status.ok()) raise(status, "open a file for a backup", whose_ + "in " + directory_);
        }
        const Status status = driver_.allocate_file(file_.get(), size_, bytes);
        if (!status.ok()) {
            (void)driver_.punch_file(file_.get(), size_, bytes);
            raise(status, "take room in a backup file", whose_ + format_bytes(bytes) + " in " + directory_, bytes);
        }
        const Room room{size_ + alignment, bytes};
        size_ += bytes;
        return room;
    }
    void shrink(LocationSpace&) noexcept {} // what is not needed has been punched out
    void discard(std::uint64_t location, std::size_t bytes) noexcept {
        if (options_.observer) options_.observer->discarded(location, bytes);
        if (file_.owns()) (void)driver_.punch_file(file_.get(), location - alignment, bytes);
    }
    Status clear() noexcept {
        if (options_.observer) options_.observer->discarded(alignment, size_);
        size_ = 0;
        const Status file = file_.close();
        const Status ring = ring_->clear();
        return first_failure({file, ring, retry()});
    }
    Status retry() noexcept { return views_->retry(); }

    void prepare(std::vector<Unit> units) { // the file has its room; the rest is the ring
        ring_->prepare(cut(std::move(units)).size(), whose_);
    }
    std::unique_ptr<Ticket::Work> out(std::vector<Unit> units, const LiveSet& live) {
        return start(Direction::out, std::move(units), live);
    }
    std::unique_ptr<Ticket::Work> in(std::vector<Unit> units, const LiveSet& live) {
        return start(Direction::in, std::move(units), live);
    }
    void compare(std::vector<Unit> units, const LiveSet& live) {
        compare_with(*this, driver_, units, cut(units), ring_, options_.crew, live.tag);
    }

    /// A copy of the bytes.
    [[nodiscard]] BackupView view(std::uint64_t location, std::size_t bytes) const {
        const std::uint64_t begin = location - location % alignment;
        const std::size_t span = align_up(location + bytes, alignment) - begin;
        const auto copy = views_->make(driver_, span, {}, whose_); // aligned, and kept out of core dumps
        // NOLINTNEXTLINE(performance-no-int-to-ptr): a host address
        auto* const data = reinterpret_cast<std::byte*>(copy->address());
        Status status = copy->take();
        if (status.ok()) status = get(data, begin, span);
        if (!status.ok()) raise(status, "read a backup file", whose_ + format_bytes(bytes));
        return {copy, data + (location - begin), bytes};
    }

    // ByteStore
    Status put(const std::byte* from, std::uint64_t location, std::size_t bytes) const noexcept {
        return driver_.write_file(file_.get(), from, bytes, location - alignment);
    }
    Status get(std::byte* to, std::uint64_t location, std::size_t bytes) const noexcept {
        return driver_.read_file(file_.get(), to, bytes, location - alignment);
    }

private:
    [[nodiscard]] std::vector<Piece> cut(std::vector<Unit> units) const {
        return cut_into_pieces(cut_for_observer(std::move(units), options_, driver_), ring_->buffer_bytes(),
                               [](const Unit&, const Unit&) { return false; });
    }
    std::unique_ptr<Ticket::Work> start(Direction direction, std::vector<Unit> units, const LiveSet& live) {
        if (options_.observer) options_.observer->about(live.tag);
        auto work = std::make_unique<RingTransfer<D, FileStore>>(CopyLane<D>{driver_, direction}, cut(std::move(units)),
                                                                 *this, ring_, options_.crew, options_.observer.get(),
                                                                 live.progress, of_tag(live.tag));
        work->start();
        return work;
    }

    D driver_;
    std::string directory_;
    StoreOptions options_;
    std::string whose_; ///< for the text of errors
    std::shared_ptr<Ring<D>> ring_;
    std::shared_ptr<HostRegions<D>> views_ = std::make_shared<HostRegions<D>>();
    OwnedFile<D> file_;
    std::size_t size_ = 0;
};

} // namespace memsaver::inline v0_1
