// Many threads, every operation, no order among them: bounded by counts, not by time. For the thread sanitizer, and for
// what holds whatever the order is: no two live blocks overlap, saved bytes come back, the books are right in the end.
#include "support/bytes.hpp"
#include "support/gate.hpp"
#include "support/machines.hpp"
#include "support/manual_backup.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace test;

namespace {

#define MEMSAVER_TEST_HOSTS test::HostMachine2G, test::NastyHostMachine

using D = FaultyDriver<HostDriver>;
using Saver = MemorySaver<D>;

/// All live blocks of all threads. Counts those that were handed out though they overlapped one that lived.
class LiveBlocks {
public:
    void add(void* block, std::size_t bytes) {
        const Address begin = address_of(block);
        const std::lock_guard lock{mutex_};
        const auto next = blocks_.lower_bound(begin);
        if (next != blocks_.end() && next->first < begin + bytes) ++overlaps_;
        if (next != blocks_.begin() && std::prev(next)->second > begin) ++overlaps_;
        blocks_[begin] = begin + bytes;
    }
    /// Before it is given up: afterwards somebody else may have the address already.
    void remove(void* block) {
        const std::lock_guard lock{mutex_};
        blocks_.erase(address_of(block));
    }
    [[nodiscard]] std::size_t count() {
        const std::lock_guard lock{mutex_};
        return blocks_.size();
    }
    [[nodiscard]] std::size_t overlaps() {
        const std::lock_guard lock{mutex_};
        return overlaps_;
    }

private:
    std::mutex mutex_;
    std::map<Address, Address> blocks_;
    std::size_t overlaps_ = 0;
};

/// What one thread does: a row of random operations, from a seed.
class Worker {
public:
    Worker(Saver& saver, std::vector<std::string> tags, LiveBlocks& live, std::uint64_t seed)
        : saver_{saver}, tags_{std::move(tags)}, live_{live}, random_{seed} {}

    void work(int operations) {
        REQUIRE(saver_.driver().open_stream(stream_).ok());
        for (int i = 0; i < operations; ++i) one();
        while (!blocks_.empty()) free_one();
        CHECK(saver_.driver().close_stream(stream_).ok());
    }

private:
    std::size_t any(std::size_t below) { return std::uniform_int_distribution<std::size_t>{0, below - 1}(random_); }
    const std::string& any_tag() { return tags_[any(tags_.size())]; }

    void one() {
        const std::size_t what = any(100);
        if (what < 45) return allocate_one();
        if (what < 80) return free_one();
        if (what < 86) return pause_some();
        if (what < 92) return (void)(any(3) == 0 ? saver_.resume() : saver_.resume(any_tag()));
        if (what < 94) return (void)(any(2) == 0 ? saver_.trim() : saver_.trim(any_tag()));
        if (what < 96) return saver_.invalidate(any_tag());
        if (what < 98) return (void)saver_.usage();
        (void)saver_.bytes_to_resume();
    }
    void allocate_one() {
        constexpr std::size_t most[] = {300, 300, 5'000, 80'000, 900'000, 1'500'000};
        const std::size_t bytes = 1 + any(most[any(std::size(most))]);
        void* block = nullptr;
        if (any(4) == 0) {
            const auto region = saver_.region(any_tag());
            block = saver_.allocate(bytes);
        } else {
            block = saver_.arena(any_tag()).allocate(bytes, std::size_t{256} << any(4));
        }
        live_.add(block, bytes);
        blocks_.push_back(block);
    }
    void free_one() {
        if (blocks_.empty()) return;
        std::swap(blocks_[any(blocks_.size())], blocks_.back());
        void* const block = blocks_.back();
        blocks_.pop_back();
        live_.remove(block);
        switch (any(3)) {
        case 0: return saver_.deallocate(block);
        case 1: return saver_.deallocate(block, stream_);
        default: return saver_.deallocate(block, already_idle);
        }
    }
    void pause_some() {
        PauseOptions<D> options;
        if (any(3) == 0) options.order = after(stream_);
        if (any(3) == 0) options.bytes = Zero{};
        if (any(3) == 0) options.timeout = std::chrono::microseconds{any(200)};
        // `bytes` this once is not for those whose bytes are compared in the end.
        try {
            if (options.bytes) {
                (void)saver_.pause(tags_[any(2)], options);
            } else if (any(4) == 0) {
                (void)saver_.pause(options);
            } else {
                (void)saver_.pause(any_tag(), options);
            }
        } catch (const NotIdle&) { // that is what a timeout is for
        }
    }

    Saver& saver_;
    std::vector<std::string> tags_;
    LiveBlocks& live_;
    std::mt19937_64 random_;
    StreamRef stream_;
    std::vector<void*> blocks_;
};

} // namespace

TEST_CASE_TEMPLATE("every operation on many threads and several tags", M, MEMSAVER_TEST_HOSTS) {
    constexpr std::size_t threads = 16;
    constexpr int operations = 80;
    for (const std::uint64_t seed : {std::uint64_t{1}}) {
        CAPTURE(seed);
        const Checked<M> machine;
        Saver saver{machine.driver};
        const ManualBackup policy;
        policy.copies->held = false;
        (void)saver.arena("discarded");
        (void)saver.arena("zero", Zero{});
        const Arena arena = saver.arena("kept", policy);
        const Arena saved = saver.arena("saved", HostBackup{.threads = 2});
        std::vector<std::pair<void*, std::size_t>> kept;
        for (const std::size_t bytes : {std::size_t{400}, std::size_t{70'000}, std::size_t{3'000'000}}) {
            for (const Arena& from : {arena, saved}) {
                kept.emplace_back(from.allocate(bytes), bytes);
                write_pattern(machine.driver, kept.back().first, bytes, bytes);
            }
        }
        LiveBlocks live;
        for (const auto& [block, bytes] : kept) live.add(block, bytes);
        {
            std::vector<std::unique_ptr<Worker>> workers;
            std::vector<std::unique_ptr<Doing>> doing;
            for (std::uint64_t t = 0; t < threads; ++t) {
                const std::vector<std::string> tags{"discarded", "zero", "kept", "saved"};
                workers.push_back(std::make_unique<Worker>(saver, tags, live, seed * 1000 + t));
                doing.push_back(std::make_unique<Doing>([worker = workers.back().get()] { worker->work(operations); }));
            }
            for (const auto& thread : doing) CHECK_NOTHROW(thread->join());
        }
        CHECK(live.overlaps() == 0);
        CHECK(live.count() == kept.size());
        (void)saver.resume();
        for (const auto& [block, bytes] : kept) CHECK(has_pattern(machine.driver, block, bytes, bytes));
        check_books(saver, machine.driver);
        std::size_t blocks = 0;
        for (const ArenaUsage& row : saver.usage()) blocks += row.blocks;
        CHECK(blocks == kept.size());

        // Nothing of what was freed is lost: what is left is what the kept blocks lie in.
        (void)saver.trim();
        CHECK(row_of(saver, "discarded").mapped_bytes == 0);
        CHECK(row_of(saver, "zero").mapped_bytes == 0);
        for (const auto& [block, bytes] : kept) saver.deallocate(block);
        (void)saver.trim();
        CHECK(machine.driver.handle_bytes() == 0);
    }
}

TEST_CASE_TEMPLATE("blocks that one thread allocates and another frees", M, MEMSAVER_TEST_HOSTS) {
    constexpr int pairs = 5;
    constexpr int blocks = 300;
    const Checked<M> machine;
    Saver saver{machine.driver};
    const Arena arena = saver.arena("handed over", Zero{});
    std::vector<std::unique_ptr<Doing>> doing;
    std::vector<std::atomic<void*>> slots(pairs);
    for (auto& slot : slots) slot = nullptr;
    for (std::size_t p = 0; p < pairs; ++p) {
        doing.push_back(std::make_unique<Doing>([&, p] {
            for (int i = 0; i < blocks; ++i) {
                void* const block = arena.allocate(i % 7 == 0 ? 200'000 : 300);
                for (void* none = nullptr; !slots[p].compare_exchange_weak(none, block); none = nullptr) {
                    std::this_thread::yield();
                }
            }
        }));
        doing.push_back(std::make_unique<Doing>([&, p] {
            for (int i = 0; i < blocks;) {
                void* const block = slots[p].exchange(nullptr);
                if (block == nullptr) {
                    std::this_thread::yield();
                    continue;
                }
                if (i % 2 == 0) saver.deallocate(block);
                if (i % 2 == 1) saver.deallocate(block, already_idle);
                ++i;
            }
        }));
    }
    for (int i = 0; i < 20; ++i) {
        (void)saver.pause();
        (void)saver.resume();
    }
    for (const auto& thread : doing) CHECK_NOTHROW(thread->join());
    CHECK(arena.usage().blocks == 0);
    (void)saver.resume();
    (void)saver.trim();
    CHECK(machine.driver.handle_bytes() == 0);
}

TEST_CASE_TEMPLATE("closing while others are at work: they are told so, and nothing is left", M, MEMSAVER_TEST_HOSTS) {
    const Checked<M> machine;
    Saver saver{machine.driver};
    const Arena arena = saver.arena("closed", Zero{});
    std::vector<std::unique_ptr<Doing>> doing;
    std::atomic<int> started{0};
    for (int t = 0; t < 8; ++t) {
        doing.push_back(std::make_unique<Doing>([&, t] {
            ++started;
            try {
                for (;;) {
                    void* const block = arena.allocate(t % 2 == 0 ? 500 : 300'000);
                    if (t == 0) (void)saver.pause();
                    if (t == 1) (void)saver.resume();
                    saver.deallocate(block);
                }
            } catch (const Misuse&) { // closed
            }
        }));
    }
    while (started < 8) std::this_thread::yield();
    saver.close();
    for (const auto& thread : doing) CHECK_NOTHROW(thread->join());
    CHECK(machine.driver.handle_bytes() == 0);
    CHECK(machine.driver.reserved_bytes() == 0);
}
