// Definitions of source_slot.hpp.
#pragma once

#include "memsaver/backup/source_index.hpp"
#include "memsaver/backup/source_slot.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

/// A transfer from files and one of kept bytes; either may be empty.
class SourceTransfer final : public Ticket::Work {
public:
    SourceTransfer(std::unique_ptr<SourceReader> reader, Ticket kept, Ticket files)
        : reader_{std::move(reader)}, kept_{std::move(kept)}, files_{std::move(files)} {}

    Status query(bool& done) noexcept override {
        const Status status = kept_.query(done);
        if (!status.ok() || !done) return status;
        return files_.query(done);
    }
    Status wait() override {
        Status status;
        std::exception_ptr thrown;
        for (Ticket* ticket : {&kept_, &files_}) { // wait for both, even if one fails
            try {
                const Status each = ticket->wait();
                if (status.ok()) status = each;
            } catch (...) {
                if (!thrown) thrown = std::current_exception();
            }
        }
        if (!checked_) {
            try {
                reader_->check_read(); // its error for a failed read names the file
            } catch (...) {
                failure_ = std::current_exception();
            }
            checked_ = true;
        }
        if (failure_) std::rethrow_exception(failure_);
        if (thrown) std::rethrow_exception(thrown);
        return status;
    }
    Status follow(StreamRef stream, Range range) noexcept override {
        const Status status = kept_.follow(stream, range);
        return status.ok() ? files_.follow(stream, range) : status;
    }
    Status wait_for(Range range) override {
        const Status status = kept_.wait_for(range);
        return status.ok() ? files_.wait_for(range) : status;
    }
    [[nodiscard]] bool enqueued() const noexcept override { return kept_.enqueued() && files_.enqueued(); }
    void cancel() noexcept override {
        kept_.cancel();
        files_.cancel();
    }

private:
    std::unique_ptr<SourceReader> reader_; // outlives its readers
    Ticket kept_;
    Ticket files_;
    bool checked_ = false;
    std::exception_ptr failure_;
};

MEMSAVER_INLINE void SourceSlot::prepare(const LiveSet& live) {
    LiveSet kept = live;
    kept.blocks = [&] { return index_->kept(live, true); };
    index_->rest.prepare(kept);
}

MEMSAVER_INLINE Ticket SourceSlot::save(const LiveSet& live) {
    index_->last = {};
    index_->last.tag = live.tag;
    index_->last.host_budget = live.host_budget;
    index_->look_at_files(live);
    LiveSet kept = live;
    kept.blocks = [&] { return index_->kept(live, true); };
    return index_->rest.save(kept);
}

MEMSAVER_INLINE Ticket SourceSlot::restore(const LiveSet& live) {
    auto reader = std::make_unique<SourceReader>(index_->driver, of_tag(live.tag));
    std::vector<Unit> units = index_->in_files(live, *reader);
    std::size_t in_files = 0;
    for (const Unit& unit : units) in_files += unit.bytes;

    LiveSet kept = live;
    kept.blocks = [&] { return index_->kept(live, false); };
    if (units.empty()) return index_->rest.restore(kept);
    struct Sums { // combined progress of both transfers
        std::atomic<std::size_t> kept_done{0};
        std::atomic<std::size_t> kept_total{0};
        std::atomic<std::size_t> read{0};
    };
    const auto sums = std::make_shared<Sums>();
    ProgressSink reading;
    if (live.progress) {
        kept.progress = [sums, in_files, sink = live.progress](std::size_t done, std::size_t total) {
            sums->kept_done = done;
            sums->kept_total = total;
            sink(done + sums->read, total + in_files);
        };
        reading = [sums, sink = live.progress](std::size_t done, std::size_t total) {
            sums->read = done;
            sink(done + sums->kept_done, total + sums->kept_total);
        };
    }
    Ticket rest = index_->rest.restore(kept);
    sums->kept_total = rest.bytes();
    const std::size_t bytes = rest.bytes() + in_files;
    Ticket files{index_->read(std::move(units), *reader, live, std::move(reading)), in_files};
    return {std::make_unique<SourceTransfer>(std::move(reader), std::move(rest), std::move(files)), bytes};
}

MEMSAVER_INLINE void SourceSlot::load(const LiveBlock& block, std::size_t offset, const FileRange& from,
                                      const LiveSet& live) {
    const SourceIndex::ListingGuard listing{*index_};
    auto reader = std::make_unique<SourceReader>(index_->driver, of_tag(live.tag));
    const std::shared_ptr<const SourceFile> file = index_->file_now(from.path, *reader);
    if (from.offset > file->facts.bytes || from.bytes > file->facts.bytes - from.offset) {
        misuse({from.path, " has ", in_bytes(file->facts.bytes), "; ", in_bytes(from.bytes), " at offset ",
                in_digits(from.offset), " extend past its end"});
    }
    reader->open(file);
    index_->cut_out(block, offset, from.bytes); // from here on they have no origin
    {
        const Unit unit{block.address + offset, file->first + from.offset, from.bytes};
        Ticket reading{index_->read({unit}, *reader, live, live.progress), from.bytes};
        SourceTransfer transfer{std::move(reader), {}, std::move(reading)};
        const Status status = transfer.wait();
        if (!status.ok()) raise_of(status, "load bytes", {of_tag(live.tag), from.path});
    }
    index_->put(block, {offset, from.bytes, file, from.offset});
    if (!index_->retain) (void)index_->share.leave();
}

MEMSAVER_INLINE void SourceSlot::saved_in_part(const std::vector<Range>& away) noexcept {
    index_->rest.saved_in_part(away);
}

MEMSAVER_INLINE Status SourceSlot::resumed() noexcept {
    const Status rest = index_->rest.resumed();
    return first_failure({rest, index_->retain ? index_->share.retry() : index_->share.leave()});
}

MEMSAVER_INLINE void SourceSlot::set_retain(bool yes) noexcept {
    index_->retain = yes;
    index_->rest.set_retain(yes);
}

MEMSAVER_INLINE Status SourceSlot::close() noexcept {
    index_->clear();
    return first_failure({index_->rest.close(), index_->share.leave()});
}

MEMSAVER_INLINE void SourceSlot::forget(std::uint64_t serial) noexcept { index_->forget(serial); }

MEMSAVER_INLINE void SourceSlot::invalidate() noexcept {
    index_->change_all();
    index_->rest.invalidate();
}

MEMSAVER_INLINE void SourceSlot::invalidate(const LiveBlock& block, std::size_t offset, std::size_t bytes) {
    index_->change(block, offset, bytes);
}

MEMSAVER_INLINE void SourceSlot::outdated() noexcept { index_->rest.invalidate(); }

MEMSAVER_INLINE std::size_t SourceSlot::backed_up_bytes() const noexcept { return index_->rest.backed_up_bytes(); }

MEMSAVER_INLINE BackupView SourceSlot::view(std::uint64_t serial, std::size_t offset, std::size_t bytes) const {
    const SourceIndex::Parts parts = index_->parts_of(serial, offset, bytes);
    if (parts.size() == 1 && parts.front().file == nullptr) {
        return index_->rest.view(parts.front().at, offset - parts.front().offset, bytes);
    }
    SourceReader reader{index_->driver, of_tag(index_->last.tag)};
    const auto copy = index_->share.copy(bytes, of_tag(index_->last.tag));
    std::byte* const data = copy->data();
    for (const SourceIndex::Part& part : parts) {
        const std::size_t begin = std::max(part.offset, offset);
        const std::size_t count = std::min(part.end(), offset + bytes) - begin;
        std::byte* const to = data + (begin - offset);
        if (part.file != nullptr) {
            reader.copy(to, part.file, part.at + (begin - part.offset), count);
        } else {
            std::memcpy(to, index_->rest.view(part.at, begin - part.offset, count).data(), count);
        }
    }
    reader.check_read();
    return {copy, data, bytes};
}

MEMSAVER_INLINE void SourceSlot::write(const LiveBlock& block, std::size_t offset, const std::byte* from,
                                       std::size_t bytes) {
    for (const SourceIndex::Part& part : index_->parts_of(block.serial, offset, bytes)) {
        const std::size_t begin = std::max(part.offset, offset);
        const std::size_t end = std::min(part.end(), offset + bytes);
        const std::byte* const fresh = from + (begin - offset);
        if (part.file == nullptr) {
            index_->rest.write(part.kept_in(block), begin - part.offset, fresh, end - begin);
            continue;
        }
        const SourceIndex::Part kept{begin, end - begin, {}, index_->fresh_serial()};
        try {
            index_->rest.put(kept.kept_in(block), fresh, index_->last);
            if (!index_->keep(block.serial, kept)) index_->rest.forget(kept.at); // the block was freed
        } catch (...) {                                                          // no part refers to it
            index_->rest.forget(kept.at);
            throw;
        }
    }
}

} // namespace detail

} // namespace memsaver::inline v0_3
