// Transfers between the device and a store: pieces, in the order in which they are needed, each moved in some way.
#pragma once

#include "memsaver/backup/copy_lane.hpp"
#include "memsaver/backup/crew.hpp"
#include "memsaver/core/function_ref.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/pointers.hpp"
#include "memsaver/core/vector.hpp"
#include "memsaver/driver/host_cells.hpp"
#include "memsaver/driver/ring.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace memsaver::inline v0_3::detail {

/// Keeps bytes at locations. Thread-safe for different bytes.
class ByteStore {
public:
    ByteStore& operator=(ByteStore&&) = delete;
    virtual ~ByteStore() = default;

    /// Returns the alignment of locations and sizes, a power of two.
    [[nodiscard]] virtual std::size_t alignment() const noexcept = 0;
    // Both may throw what says more than a status.
    virtual Status put(const std::byte* /*from*/, std::uint64_t /*location*/, std::size_t /*bytes*/) const {
        return {StatusKind::unsupported, 0, "a file source is read-only"};
    }
    virtual Status get(std::byte* to, std::uint64_t location, std::size_t bytes) const = 0;
    /// Host pages could not be pinned: they are copied anyway, but slowly. Called on any thread.
    virtual void not_pinned() {}
};

/// Moves pieces on threads that take one after the other. Streams and threads wait for the pieces that they want only.
/// Knows when pieces have arrived, but not how they are moved: its Way does.
class Transfer final : public Ticket::Work {
public:
    class Way {
    public:
        Way& operator=(Way&&) = delete;
        virtual ~Way() = default;
        /// Returns how many threads are to `work`; 0 if it has put everything on streams, or has failed.
        virtual std::size_t start(Transfer& transfer) = 0;
        /// Takes and moves pieces until there is none. If it throws, the transfer ends, and `wait` throws it again.
        virtual void work(Transfer& transfer) = 0;
    };

    /// `shown`: bytes count as arrived once the way has said so, even if an event marks the end of their copies.
    Transfer(AnyDriver driver, Vector<Piece> pieces, const CrewOptions& crew, const ProgressSink& progress,
             UniquePtr<Way> way, bool shown = false)
        : driver_{std::move(driver)}, way_{std::move(way)}, pieces_{std::move(pieces)}, moved_(pieces_.size()),
          progress_{progress, bytes_of(pieces_)}, wanted_{shown ? here : on_stream}, crew_{crew} {}
    ~Transfer() override {
        crew_.join();
        if (!waited_) settle();
    }

    /// Throws OutOfHostMemory if it cannot start; nothing is in flight then.
    void start() {
        const std::size_t workers = pieces_.empty() ? 0 : way_->start(*this);
        at_once_ = workers == 0 && !stopped_.load();
        if (workers == 0) return;
        crew_.start(workers, [this] {
            try {
                way_->work(*this);
            } catch (...) {
                cancel();
                throw;
            }
        });
    }

    Status query(bool& done) noexcept override {
        done = crew_.done();
        for (std::size_t i = 0; done && i < moved_.size(); ++i) {
            if (!mark(i).get()) continue;
            if (const Status status = driver_.query(mark(i).get(), done); !status.ok()) return status;
        }
        return {};
    }
    Status wait() override {
        if (!waited_) {
            crew_.join();
            settle();
            failure_ = crew_.failure();
            waited_ = true;
        }
        if (failure_) std::rethrow_exception(failure_);
        {
            const std::lock_guard lock{mutex_};
            if (!status_.ok()) return status_;
            if (any_in(moved_, [&](const Moved& each) { return each.state < wanted_; }))
                return {StatusKind::other, 0, "the transfer was canceled"};
        }
        for (Companion* each = companion_.get(); each != nullptr; each = each->next.get()) each->arrived();
        return {};
    }
    Status follow(StreamRef stream, Range range) noexcept override {
        return each_of(range, on_stream, [&](EventRef mark) { return driver_.follow(stream, mark); });
    }
    Status wait_for(Range range) noexcept override {
        return each_of(range, wanted_, [&](EventRef mark) { return driver_.wait(mark); });
    }
    /// Lives as long as a transfer, and longer than its way.
    struct Companion {
        Companion& operator=(Companion&&) = delete;
        virtual ~Companion() = default;
        /// Called whenever it is waited for and all bytes have arrived.
        virtual void arrived() {}

        UniquePtr<Companion> next;
    };
    void accompany(UniquePtr<Companion> companion) noexcept {
        companion->next = std::move(companion_);
        companion_ = std::move(companion);
    }
    [[nodiscard]] std::size_t bytes() const noexcept { return progress_.total(); }
    [[nodiscard]] bool enqueued() const noexcept override { return at_once_; }
    void cancel() noexcept override {
        const std::lock_guard lock{mutex_};
        stopped_ = true;
        changed_.notify_all();
    }

    // For the way.

    [[nodiscard]] const Vector<Piece>& pieces() const noexcept { return pieces_; }
    /// Lets the way cut the pieces in another way, before any is taken.
    [[nodiscard]] Vector<Piece> give_pieces() noexcept { return std::move(pieces_); }
    void take_pieces(Vector<Piece> pieces) {
        moved_ = Vector<Moved>(pieces.size());
        pieces_ = std::move(pieces);
    }
    /// Sets `i` to the next piece for this thread. Returns false if there is none, or if the transfer has ended.
    bool take(std::size_t& i) noexcept { return (i = next_++) < pieces_.size() && !stopped_.load(); }
    [[nodiscard]] bool all_taken() const noexcept { return stopped_.load() || next_.load() >= pieces_.size(); }
    /// Marks the end of a piece's copies, if they go to and from its pages directly.
    [[nodiscard]] OwnedEvent& mark(std::size_t i) noexcept { return moved_[i].mark; }
    /// The copies of a piece, and its mark, are on their stream.
    void under_way(std::size_t i) { note(i, on_stream); }
    void arrived(std::size_t i) {
        if (!mark(i).get()) progress_.add(pieces_[i].bytes());
        note(i, here);
    }
    void fail(const Status& status) noexcept {
        const std::lock_guard lock{mutex_};
        if (!stopped_.exchange(true)) status_ = status;
        changed_.notify_all();
    }
    /// After a failure: waits until nothing is in flight. If that fails too, marks the pages of a piece as unsettled.
    void drain(std::size_t i) noexcept {
        if (!drained(driver_).ok()) pieces_[i].pages->unsettle();
    }

private:
    enum State : char { to_come, on_stream, here };
    struct Moved {
        OwnedEvent mark;
        State state = to_come; // guarded by mutex_
    };

    void note(std::size_t i, State state) {
        const std::lock_guard lock{mutex_};
        moved_[i].state = state;
        changed_.notify_all();
    }
    /// Calls `act(mark)` for every piece with bytes of `range`, as soon as its state is `wanted`, if it has a mark.
    /// Stops at the first failure and returns it.
    Status each_of(Range range, State wanted, FunctionRef<Status(EventRef)> act) noexcept {
        crew_.help();
        for (std::size_t i = 0; i < pieces_.size(); ++i) {
            if (!pieces_[i].holds(range)) continue;
            {
                std::unique_lock lock{mutex_};
                const State& state = moved_[i].state;
                changed_.wait(lock, [&] { return state >= wanted || stopped_.load() || crew_.done(); });
                if (state < wanted && !status_.ok()) return status_;
                if (state < wanted) return {StatusKind::other, 0, "the transfer failed before these bytes arrived"};
            }
            if (!mark(i).get()) continue;
            if (const Status status = act(mark(i).get()); !status.ok()) return status;
        }
        return {};
    }
    void settle() noexcept {
        for (std::size_t i = 0; i < moved_.size(); ++i) {
            if (!mark(i).get()) continue;
            const Status status = driver_.wait(mark(i).get());
            if (!status.ok()) {
                drain(i);
                const std::lock_guard lock{mutex_};
                if (status_.ok()) status_ = status;
            }
            progress_.add(pieces_[i].bytes());
        }
    }

    UniquePtr<Companion> companion_; // first: destroyed last
    AnyDriver driver_;
    UniquePtr<Way> way_;
    Vector<Piece> pieces_;
    Vector<Moved> moved_; // of each piece
    Progress progress_;
    State wanted_; // of each piece, at the end
    std::atomic<std::size_t> next_{0};
    std::atomic<bool> stopped_{false};
    bool at_once_ = false; // `start` enqueued everything
    bool waited_ = false;
    std::exception_ptr failure_;
    std::mutex mutex_; // guards the members below
    std::condition_variable changed_;
    Status status_;
    Crew crew_; // last: joined before the other members are destroyed
};

/// How a transfer moves its pieces, whichever way.
struct Moving {
    const AnyDriver& driver;
    Direction direction;
    const CrewOptions& crew;
    PieceObserver* observer; ///< null: none
    const ProgressSink& progress;
    const std::function<Status(Range)>& before_write; ///< LiveSet::before_write
};

class LaneWay : public Transfer::Way {
protected:
    LaneWay(const Moving& how, bool to_peer)
        : lane_{how.driver, how.direction, to_peer}, observer_{how.observer}, before_write_{how.before_write} {}

    [[nodiscard]] bool out() const noexcept { return lane_.direction() == Direction::out; }
    /// Shows a piece to the observer. `data`: where the byte at location `origin` is.
    void show(const Piece& piece, const std::byte* data, std::uint64_t origin) const {
        if (observer_ == nullptr) return;
        const auto see = out() ? &PieceObserver::saved : &PieceObserver::restoring;
        for (const Unit& unit : piece.units) (observer_->*see)(unit, data + (unit.location - origin));
    }
    /// May throw what `before_write` throws.
    [[nodiscard]] Status may_write(const Piece& piece) const {
        if (!before_write_) return {};
        return piece.each_copy([&](const Unit& unit) { return before_write_(Range{unit.device, unit.bytes}); });
    }
    [[nodiscard]] static std::byte* data_of(const Piece& piece) noexcept {
        return reinterpret_cast<std::byte*>(piece.pages->address()); // NOLINT(performance-no-int-to-ptr)
    }

    CopyLane lane_;
    PieceObserver* observer_;

private:
    std::function<Status(Range)> before_write_;
};

class DirectWay final : public LaneWay {
public:
    DirectWay(const Moving& how, ByteStore* store, const KernelCopyOptions& kernel_copies, bool to_peer)
        : LaneWay{how, to_peer}, store_{store}, kernel_copies_{kernel_copies}, may_probe_{!how.before_write} {}

    std::size_t start(Transfer& transfer) override {
        bool ready = observer_ == nullptr; // an observer needs threads
        for (const Piece& piece : transfer.pieces()) ready = ready && piece.pages->ready(piece.location(), true);
        if (!ready) {
            readies_kernel_ =
                observer_ == nullptr && out() && may_go_by_kernel(bytes_of(transfer.pieces()), kernel_copies_);
            return transfer.pieces().size();
        }
        Status status;
        for (std::size_t i = send_ahead(transfer, status); i < transfer.pieces().size() && status.ok(); ++i)
            status = enqueue(transfer, i);
        if (!status.ok()) transfer.fail(status);
        return 0;
    }
    void work(Transfer& transfer) override {
        if (readies_kernel_.exchange(false)) (void)lane_.driver().copy_by_kernel(0, 0, 0, {});
        std::size_t under_way =
            transfer.pieces().size(); // the last that this thread enqueued; shown after the next one
        for (std::size_t i = 0; transfer.take(i);) {
            const Piece& piece = transfer.pieces()[i];
            Status status = piece.pages->prepare(piece.location(), true);
            if (!status.ok() && piece.pages->ready(piece.location(), false)) {
                status = {}; // usable, but not pinned
                if (store_ != nullptr) store_->not_pinned();
            }
            if (status.ok() && !out()) show(piece, data_of(piece), piece.pages->address());
            if (status.ok()) status = enqueue(transfer, i);
            if (!status.ok()) return transfer.fail(status);
            if (out()) show_saved(transfer, std::exchange(under_way, i));
        }
        show_saved(transfer, under_way);
    }

private:
    /// Limit of the probe. It exceeds what a copy engine that is also clearing memory copies in one turn.
    static constexpr std::size_t most_ahead = 64_MiB;
    static constexpr std::size_t parts_ahead = 4;

    /// Enqueues the first bytes as a probe, if the copies are to be watched. Returns how many pieces it enqueued.
    std::size_t send_ahead(Transfer& transfer, Status& status) {
        const std::size_t bytes = bytes_of(transfer.pieces());
        if (!may_go_by_kernel(bytes, kernel_copies_) || !may_probe_ || !lane_.to_be_watched()) return 0;
        const std::size_t ahead = std::min(most_ahead, bytes / parts_ahead);
        const std::size_t step = std::max<std::size_t>(align_down(ahead / parts_ahead, 4096), 4096);
        const std::size_t count = cut_first(transfer, ahead, step);
        Vector<CopyLane::Sent> sent;
        sent.reserve(count);
        for (std::size_t i = 0; i < count && status.ok(); ++i) {
            status = enqueue(transfer, i);
            sent.push_back({transfer.mark(i).get(), transfer.pieces()[i].bytes()});
        }
        if (status.ok()) status = lane_.watch(sent, kernel_copies_);
        return count;
    }
    /// Cuts the first pieces into parts of at most `step` bytes, until the parts hold `bytes` bytes. Returns their
    /// number.
    static std::size_t cut_first(Transfer& transfer, std::size_t bytes, std::size_t step) {
        Vector<Piece> parts;
        std::size_t count = 0; // of parts that begin before `bytes`
        std::size_t taken = 0;
        for (Piece& piece : transfer.give_pieces()) {
            if (taken >= bytes) {
                parts.push_back(std::move(piece));
                continue;
            }
            for (Piece& part :
                 cut_into_pieces(std::move(piece.units), step, [](const Unit&, const Unit&) { return false; })) {
                if (taken < bytes) ++count;
                taken += part.bytes();
                part.pages = piece.pages;
                parts.push_back(std::move(part));
            }
        }
        transfer.take_pieces(std::move(parts));
        return count;
    }
    /// May throw what `before_write` throws.
    Status enqueue(Transfer& transfer, std::size_t i) const {
        const Piece& piece = transfer.pieces()[i];
        Status status = may_write(piece);
        if (!status.ok()) return status;
        status = lane_.enqueue(piece, data_of(piece), piece.pages->address(), transfer.mark(i));
        if (status.ok())
            transfer.under_way(i);
        else
            transfer.drain(i);
        return status;
    }
    void show_saved(Transfer& transfer, std::size_t i) const {
        if (observer_ == nullptr || i == transfer.pieces().size()) return;
        if (const Status status = lane_.driver().wait(transfer.mark(i).get()); !status.ok())
            return transfer.fail(status);
        const Piece& piece = transfer.pieces()[i];
        show(piece, data_of(piece), piece.pages->address());
        transfer.arrived(i);
    }

    ByteStore* store_;
    KernelCopyOptions kernel_copies_;
    bool may_probe_; // in an exchange the first bytes may have to wait for other pages to be saved
    std::atomic<bool> readies_kernel_{false}; // one thread of the crew loads the kernel, for later transfers
};

/// A transfer of pieces that have pages, which copies reach directly: pinned host pages, or pages of a peer. The
/// locations of their units are addresses in these pages. If all pages are ready, enqueues all copies at once; no
/// thread is needed. Otherwise threads make the pages ready cell by cell and enqueue each cell's copies as they go:
/// copies of earlier cells run, and are shown to the observer, while later cells are being pinned.
///
/// `kernel_copies`: when copies use a kernel. `store`: learns of host pages that cannot be pinned, may be null.
/// `to_peer`: see CopyLane.
inline UniquePtr<Transfer> direct_transfer(const Moving& how, Vector<Piece> pieces, ByteStore* store = nullptr,
                                           const KernelCopyOptions& kernel_copies = {}, bool to_peer = false) {
    const bool shown = how.observer != nullptr && how.direction == Direction::out;
    auto way = UniquePtr<DirectWay>::make(how, store, kernel_copies, to_peer);
    return UniquePtr<Transfer>::make(how.driver, std::move(pieces), how.crew, how.progress, std::move(way), shown);
}

/// Returns the most bytes that one of these pieces needs in a buffer, in steps, so that a slightly larger one fits too.
inline std::size_t most_bytes(const Vector<Piece>& pieces, std::size_t alignment) noexcept {
    std::size_t most = 0;
    for (const Piece& piece : pieces) {
        if (piece.pages != nullptr) continue;
        most = std::max<std::size_t>(most, align_up(piece.end(), alignment) - align_down(piece.location(), alignment));
    }
    return align_up(most, 64_KiB);
}

class StagedWay final : public LaneWay {
public:
    StagedWay(const Moving& how, std::size_t most, const ByteStore& store, std::shared_ptr<Ring> ring,
              const std::string& whose)
        : LaneWay{how, false}, store_{&store}, ring_{std::move(ring)}, error_prefix_{whose}, most_bytes_{most} {}

    std::size_t start(Transfer& transfer) override {
        if (!out()) ring_->settle(error_prefix_); // here: the crew must not wait for the device
        return std::min(ring_->pairs(), transfer.pieces().size());
    }
    void work(Transfer& transfer) override {
        Ring::Loan loan{*ring_};
        std::array<InFlight, 2> in_flight;
        const auto take_buffer = [&](std::size_t which) {
            if (in_flight[which].buffer != nullptr) return true;
            const unsigned one = which == 0 ? 1U : 0U;
            movers_ += one;
            try {
                in_flight[which].buffer = &loan.buffer(which, most_bytes_, error_prefix_);
            } catch (const OutOfHostMemory&) { // those who have a buffer, or may still get one, do the work
                if (movers_.fetch_sub(one) == one) throw;
            }
            return in_flight[which].buffer != nullptr;
        };
        try {
            if (!take_buffer(0)) return;
            std::size_t other = ring_->each(transfer.pieces().size()) - 1;
            std::size_t turn = 0;
            for (std::size_t i = 0; transfer.take(i); turn ^= other) {
                if (!take_buffer(turn)) turn = other = 0;
                finish(in_flight[turn], transfer);
                begin(in_flight[turn], transfer.pieces()[i]);
                in_flight[turn].piece = i;
            }
            finish(in_flight[turn], transfer);
            finish(in_flight[turn ^ 1U], transfer);
        } catch (...) {
            for (InFlight& moving : in_flight) {
                if (moving.busy && !lane_.driver().wait(moving.mark.get()).ok())
                    drain(moving, transfer.pieces()[moving.piece]);
            }
            throw;
        }
    }

private:
    /// One buffer and the piece in flight to or from it.
    struct InFlight {
        PinnedBuffer* buffer = nullptr;
        OwnedEvent mark;
        std::size_t piece = 0;
        bool busy = false;
    };

    void begin(InFlight& moving, const Piece& piece) const {
        const bool direct = piece.pages != nullptr;
        std::byte* const data = direct ? data_of(piece) : moving.buffer->data();
        const std::uint64_t first = direct ? piece.pages->address() : origin(piece);
        if (direct) {
            const Status pinned = piece.pages->prepare(piece.location(), true);
            if (!pinned.ok()) check_of(piece, piece.pages->prepare(piece.location(), false), "allocate host pages");
        } else if (!out()) {
            each_run(piece, data, [&](std::byte* at, std::uint64_t location, std::size_t bytes) {
                check_of(piece, store_->get(at, location, bytes), "read bytes from the backup");
            });
        }
        if (!out()) {
            show(piece, data, first);
            check_of(piece, may_write(piece), "wait for the save of the previous bytes");
        }
        const Status enqueued = lane_.enqueue(piece, data, first, moving.mark);
        if (!enqueued.ok()) drain(moving, piece);
        check_of(piece, enqueued, "copy bytes");
        moving.busy = true;
    }
    void finish(InFlight& moving, Transfer& transfer) const {
        if (!moving.busy) return;
        const Piece& piece = transfer.pieces()[moving.piece];
        check_of(piece, lane_.driver().wait(moving.mark.get()), "wait for a copy");
        moving.busy = false;
        if (out()) {
            std::byte* const data = moving.buffer->data();
            show(piece, data, origin(piece));
            for (const Unit& unit : piece.units) { // zero the padding, so that it is always the same
                const std::uint64_t end = unit.location + unit.bytes;
                std::memset(data + (first_of(unit) - origin(piece)), 0, unit.location - first_of(unit));
                std::memset(data + (end - origin(piece)), 0, align_up(end, store_->alignment()) - end);
            }
            each_run(piece, data, [&](std::byte* at, std::uint64_t location, std::size_t bytes) {
                check_of(piece, store_->put(at, location, bytes), "write bytes to the backup");
            });
        }
        transfer.arrived(moving.piece);
    }
    /// After a failure: waits until nothing is in flight, because the buffer may be reused. If that fails too, marks
    /// the buffer or the piece's pages as unsettled.
    void drain(InFlight& moving, const Piece& piece) const noexcept {
        if (drained(lane_.driver()).ok()) return;
        piece.pages != nullptr ? piece.pages->unsettle() : moving.buffer->unsettle();
    }
    void check_of(const Piece& piece, const Status& status, const Attempt& attempt) const {
        if (status.ok()) return;
        raise_of(status, attempt,
                 {error_prefix_, in_bytes(piece.bytes()), " from ", in_hex(piece.units.front().device), " onward"},
                 piece.bytes());
    }
    [[nodiscard]] std::uint64_t first_of(const Unit& unit) const noexcept {
        return align_down(unit.location, store_->alignment());
    }
    [[nodiscard]] std::uint64_t origin(const Piece& piece) const noexcept { return first_of(piece.units.front()); }
    /// Calls `act(buffer, location, bytes)` for each run of adjacent units in the store. Runs are whole multiples of
    /// the store's alignment: a block's padding belongs to it.
    template <class Act>
    void each_run(const Piece& piece, std::byte* data, Act&& act) const {
        for (std::size_t i = 0; i < piece.units.size();) {
            const std::uint64_t begin = first_of(piece.units[i]);
            std::uint64_t end = begin;
            for (; i < piece.units.size() && first_of(piece.units[i]) == end; ++i) {
                end = align_up(piece.units[i].location + piece.units[i].bytes, store_->alignment());
            }
            act(data + (begin - origin(piece)), begin, static_cast<std::size_t>(end - begin));
        }
    }

    const ByteStore* store_;
    std::shared_ptr<Ring> ring_;
    std::string error_prefix_;
    std::size_t most_bytes_;          ///< of a buffer
    std::atomic<unsigned> movers_{0}; ///< threads that have a buffer, or are getting one
};

/// A transfer through a few pinned buffers, of pieces that lie in cells of `ring->buffer_bytes()`. Copies into the
/// device reach pieces that have pages directly. The store must outlive it. `whose` is for error messages.
inline UniquePtr<Transfer> staged_transfer(const Moving& how, Vector<Piece> pieces, const ByteStore& store,
                                           std::shared_ptr<Ring> ring, const std::string& whose = {}) {
    auto way = UniquePtr<StagedWay>::make(how, most_bytes(pieces, store.alignment()), store, std::move(ring), whose);
    return UniquePtr<Transfer>::make(how.driver, std::move(pieces), how.crew, how.progress, std::move(way));
}

} // namespace memsaver::inline v0_3::detail
