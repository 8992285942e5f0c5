// A policy whose copies complete when the test allows it: each block is copied on its own stream, which a host machine
// holds until then. Shows what a user would write to test an asynchronous backup. Independent of arenas.
#pragma once

#include "support/machines.hpp"

namespace test {
using namespace memsaver;
using namespace memsaver::detail;

enum class Way : unsigned char { out, back };

/// Control and observations for the test. Thread-safe.
struct ManualCopies {
    struct Piece {
        Way way;
        LiveBlock block;
        std::optional<HostDriver> host;
        StreamRef stream{};
    };

    /// Whether later copies wait for `finish`; only on a host machine.
    std::atomic<bool> held{true};
    /// Whether a save or restore throws instead of enqueuing.
    std::atomic<bool> throws{false};
    /// Whether tickets return a failure once they have been waited for.
    std::atomic<bool> fails{false};

    /// Releases the copies in flight: all, or only those of `block`.
    void finish(const void* block = nullptr) {
        const std::lock_guard lock{mutex_}; // the streams live as long as their pieces are listed
        for (const Piece* piece : pieces_) {
            if (block == nullptr || piece->block.address == reinterpret_cast<Address>(block)) let_go(*piece);
        }
    }
    /// Returns all blocks that were ever copied in this direction, in order.
    [[nodiscard]] std::vector<LiveBlock> seen(Way way) const {
        const std::lock_guard lock{mutex_};
        return way == Way::out ? seen_out_ : seen_back_;
    }
    [[nodiscard]] std::vector<std::uint64_t> forgotten() const {
        const std::lock_guard lock{mutex_};
        return forgotten_;
    }

    // --- For slots ---

    void add(const Piece& piece) {
        const std::lock_guard lock{mutex_};
        pieces_.push_back(&piece);
        (piece.way == Way::out ? seen_out_ : seen_back_).push_back(piece.block);
    }
    void remove(const Piece& piece) noexcept {
        const std::lock_guard lock{mutex_};
        std::erase(pieces_, &piece);
        let_go(piece);
    }
    void forget(std::uint64_t serial) {
        const std::lock_guard lock{mutex_};
        forgotten_.push_back(serial);
    }

private:
    static void let_go(const Piece& piece) {
        if (piece.host) (void)piece.host->let_go(piece.stream);
    }

    mutable std::mutex mutex_;
    std::vector<const Piece*> pieces_;
    std::vector<LiveBlock> seen_out_;
    std::vector<LiveBlock> seen_back_;
    std::vector<std::uint64_t> forgotten_;
};

/// See BackupSlot. Holds no lock during `live.blocks()` or a copy.
struct ManualSlot {
    ManualSlot(AnyDriver driver, std::shared_ptr<ManualCopies> copies)
        : driver_{std::move(driver)}, copies_{std::move(copies)} {}

    void prepare(const LiveSet&) {}
    Ticket save(const LiveSet& live) { return start(Way::out, live); }
    Ticket restore(const LiveSet& live) { return start(Way::back, live); }
    void resumed() noexcept {
        const std::lock_guard lock{mutex_};
        kept_.clear();
    }
    void forget(std::uint64_t serial) noexcept {
        copies_->forget(serial);
        const std::lock_guard lock{mutex_};
        kept_.erase(serial);
        forgotten_.insert(serial);
    }
    static void invalidate() noexcept {}
    [[nodiscard]] std::size_t backed_up_bytes() const noexcept {
        const std::lock_guard lock{mutex_};
        std::size_t bytes = 0;
        for (const auto& [serial, kept] : kept_) bytes += kept->size();
        return bytes;
    }

private:
    using Bytes = std::shared_ptr<std::vector<unsigned char>>;

    /// The copy of one block. Its ticket waits before it is destroyed, unless a later block's copy could not be
    /// started.
    struct Travel {
        Travel(const AnyDriver& on, std::shared_ptr<ManualCopies> all, Way way, const LiveBlock& block,
               Bytes to_or_from)
            : driver{on}, copies{std::move(all)}, bytes{std::move(to_or_from)}, piece{way, block, host_inside(on)} {
            check(stream.open(driver), "open a stream");
            check(event.open(driver, stream.get()), "open an event");
            piece.stream = stream.get();
            if (copies->held) check(piece.host.value().hold(piece.stream), "hold a stream");
            check(way == Way::out ? driver.copy_to_host(bytes->data(), block.address, block.bytes, piece.stream)
                                  : driver.copy_to_device(block.address, bytes->data(), block.bytes, piece.stream),
                  "copy bytes");
            check(driver.record(event.get(), piece.stream), "record an event");
            copies->add(piece);
        }
        ~Travel() {
            copies->remove(piece);
            (void)driver.wait(event.get());
        }

        AnyDriver driver;
        std::shared_ptr<ManualCopies> copies;
        Bytes bytes;
        OwnedStream stream;
        OwnedEvent event;
        ManualCopies::Piece piece;
    };

    struct Work final : Ticket::Work {
        explicit Work(std::shared_ptr<ManualCopies> all) : copies{std::move(all)} {}
        Status query(bool& done) noexcept override {
            done = true;
            for (const auto& travel : travels) {
                bool passed = false;
                if (const Status status = travel->driver.query(travel->event.get(), passed); !status.ok())
                    return status;
                done = done && passed;
            }
            return {};
        }
        Status wait() noexcept override {
            Status first;
            for (const auto& travel : travels) {
                const Status status = travel->driver.wait(travel->event.get());
                if (first.ok()) first = status;
            }
            if (first.ok() && copies->fails) return {StatusKind::other, -77, "the test wants it to fail"};
            return first;
        }
        Status follow(StreamRef stream, Range range) noexcept override {
            for (const auto& travel : travels) {
                const LiveBlock& block = travel->piece.block;
                if (block.address >= range.end() || range.address >= block.address + block.bytes) continue;
                const Status status = travel->driver.follow(stream, travel->event.get());
                if (!status.ok()) return status;
            }
            return {};
        }

        std::shared_ptr<ManualCopies> copies;
        std::vector<std::unique_ptr<Travel>> travels;
    };

    Ticket start(Way way, const LiveSet& live) {
        if (copies_->throws) throw DriverError{"the test wants it to throw"};
        auto work = std::make_unique<Work>(copies_);
        std::size_t bytes = 0;
        for (const LiveBlock& block : live.blocks()) {
            const Bytes to_or_from = bytes_of(block, way);
            if (to_or_from == nullptr) continue; // freed since it was listed
            work->travels.push_back(std::make_unique<Travel>(driver_, copies_, way, block, to_or_from));
            bytes += block.bytes;
        }
        return Ticket{std::move(work), bytes};
    }
    Bytes bytes_of(const LiveBlock& block, Way way) {
        const std::lock_guard lock{mutex_};
        if (forgotten_.contains(block.serial)) return {};
        if (way == Way::out) return kept_[block.serial] = std::make_shared<std::vector<unsigned char>>(block.bytes);
        const auto kept = kept_.find(block.serial);
        if (kept == kept_.end()) throw DriverError{"a block to be restored was never saved"};
        return kept->second;
    }

    AnyDriver driver_;
    std::shared_ptr<ManualCopies> copies_;
    mutable std::mutex mutex_;
    std::map<std::uint64_t, Bytes> kept_;
    std::set<std::uint64_t> forgotten_;
};

/// The policy: a plain, comparable aggregate.
struct ManualBackup {
    std::shared_ptr<ManualCopies> copies = std::make_shared<ManualCopies>();

    [[nodiscard]] std::string_view name() const noexcept { return "manual"; }

    [[nodiscard]] ManualSlot open(const AnyDriver& driver) const { return {driver, copies}; }

    friend bool operator==(const ManualBackup&, const ManualBackup&) = default;
};

static_assert(Backup<ManualBackup>);
} // namespace test
