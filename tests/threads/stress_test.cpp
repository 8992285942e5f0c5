// Many threads run every operation in arbitrary order, bounded by counts, not by time. For the thread sanitizer, and
// for order-independent invariants: live blocks do not overlap, saved bytes are restored, and usage is correct at the
// end.
#include "graph/graph_support.hpp"
#include "support/manual_backup.hpp"
#include "support/played.hpp"

#include <shared_mutex>

namespace threads_stress_test {
using namespace test;
using D = MachineDriver;
using Saver = MemorySaver<D>;

/// All live blocks of all threads.
struct LiveBlocks {
    void add(void* block, std::size_t bytes) {
        const std::lock_guard lock{mutex_};
        CHECK(blocks_.add(address_of(block), {.bytes = bytes})); // overlaps no live one
    }
    /// Call before freeing the block: afterwards another thread may get its address.
    void remove(void* block) {
        const std::lock_guard lock{mutex_};
        blocks_.erase(address_of(block));
    }
    [[nodiscard]] std::size_t count() {
        const std::lock_guard lock{mutex_};
        return blocks_.size();
    }

private:
    std::mutex mutex_;
    PlayedBlocks blocks_;
};

/// State shared by all threads.
struct Shared {
    static constexpr const char* places[] = {"a", "b", "c"};

    Saver& saver;
    WorkspacePool& pool;
    std::vector<std::pair<void*, std::size_t>> kept; ///< blocks with a pattern that never changes
    LiveBlocks live{};
    /// Threads that launch a graph lock it shared, threads that pause the graphs' tag lock it exclusively: a program
    /// must not submit work on memory being paused.
    std::shared_mutex launching{};
    std::atomic<void*> at[std::size(places)]{}; ///< addresses of the pool's workspaces
    std::atomic<int> hooks_run{0}, captures{0}, launches{0}, views{0}, gates{0};
};

/// One thread's work: a sequence of random operations, from a seed.
struct Worker {
    Worker(Shared& shared, std::uint64_t seed) : shared_{shared}, random_{seed} {}

    void work(int operations) {
        REQUIRE(saver_.driver().open_stream(stream_).ok());
        for (int i = 0; i < operations; ++i) one();
        coming_ = {};
        drop_graph();
        while (!blocks_.empty()) free_one();
        CHECK(saver_.driver().close_stream(stream_).ok());
    }

private:
    /// The first two have policies that keep nothing; the last is the graphs'.
    static constexpr const char* tags[] = {"discarded", "zero", "kept", "saved", "file", "workspaces", "graphs"};
    static constexpr std::size_t not_graphs = std::size(tags) - 1;

    std::size_t any(std::size_t below) { return std::uniform_int_distribution<std::size_t>{0, below - 1}(random_); }
    const char* any_tag() { return tags[any(not_graphs)]; }
    const char* any_kept_tag() { return tags[2 + any(3)]; }

    void one() {
        const std::size_t what = any(100);
        if (what < 36) return allocate_one();
        if (what < 64) return free_one();
        if (what < 68) return unless_captured([&] { pause_some(); });
        if (what < 70) return unless_captured([&] { exchange_some(); });
        if (what < 73) return resume_streamed();
        if (what < 76) return (void)(any(3) == 0 ? saver_.resume() : saver_.resume(tags[any(std::size(tags))]));
        if (what < 78) return unless_captured([&] { (void)(any(2) == 0 ? saver_.trim() : saver_.trim(any_tag())); });
        if (what < 80) return saver_.invalidate(any_kept_tag());
        if (what < 82) return (void)saver_.usage();
        if (what < 83) return (void)saver_.bytes_to_resume();
        if (what < 85) return saver_.prepare(any_kept_tag());
        if (what < 88) return look();
        if (what < 91) return capture_one();
        if (what < 93) return launch();
        if (what < 96) return workspace();
        if (what < 98) return own_pool();
        hook();
    }
    void exchange_some() {
        const char* const out = any_tag();
        const char* const in = any_tag();
        if (out != in) (void)saver_.exchange(out, in);
    }
    /// Work waits only for the bytes that it needs. It does not read them, because others may pause them concurrently.
    void resume_streamed() {
        const auto [block, bytes] = any_kept();
        const Gate gate = saver_.gate(block, bytes);
        const Tags tags_of = any(2) == 0 ? Tags::all() : Tags{"kept", "saved", "file"};
        coming_ = saver_.resume_async(tags_of, {.first = {{block, bytes}}});
        gate.before(stream_);
        if (any(2) == 0) any_kept_gate().before(stream_);
        if (any(3) == 0) coming_.wait();
        ++shared_.gates;
    }
    std::pair<void*, std::size_t> any_kept() { return shared_.kept[any(shared_.kept.size())]; }
    Gate any_kept_gate() {
        const auto [block, bytes] = any_kept();
        return saver_.gate(block, bytes);
    }
    /// Runs `act`, which is refused if it would break a capture of any thread.
    template <class Act>
    static void unless_captured(Act&& act) {
        try {
            act();
        } catch (const Misuse& error) {
            if (!contains(error.what(), "is being captured")) throw;
        }
    }
    /// Runs `act`, which may be refused because the memory is paused or being paused.
    template <class Act>
    static bool unless_paused(Act&& act) {
        try {
            act();
            return true;
        } catch (const Misuse& error) {
            if (!contains(error.what(), "paused")) throw;
            return false;
        }
    }

    void allocate_one() {
        constexpr std::size_t most[] = {300, 300, 5'000, 80'000, 900'000, 1'500'000};
        const std::size_t bytes = 1 + any(most[any(std::size(most))]);
        void* block = nullptr;
        switch (any(8)) {
        case 0:
        case 1: {
            const auto region = saver_.region(any_tag());
            block = saver_.allocate(bytes);
            break;
        }
        case 2: {
            const auto out = saver_.outside();
            block = saver_.allocate(bytes);
            break;
        }
        default: block = saver_.arena(any_tag()).allocate(bytes, std::size_t{256} << any(4));
        }
        shared_.live.add(block, bytes);
        blocks_.push_back(block);
    }
    void free_one() {
        if (blocks_.empty()) return;
        std::swap(blocks_[any(blocks_.size())], blocks_.back());
        void* const block = blocks_.back();
        blocks_.pop_back();
        give_up(block);
    }
    void give_up(void* block) {
        shared_.live.remove(block);
        switch (any(3)) {
        case 0: return saver_.deallocate(block);
        case 1: return saver_.deallocate(block, stream_);
        default: return saver_.deallocate(block, already_idle);
        }
    }
    void pause_some() {
        PauseOptions options;
        if (any(3) == 0) options.timeout = std::chrono::microseconds{any(200)};
        try {
            if (any(5) == 0) { // the graphs' tag, or all
                const std::unique_lock no_launches{shared_.launching};
                return (void)(any(2) == 0 ? saver_.pause("graphs", options) : saver_.pause(options));
            }
            if (any(3) == 0) options.order = after(stream_);
            // Blocks whose bytes are compared at the end must not get `bytes` for one pause.
            if (any(3) == 0) options.bytes = Zero{};
            (void)saver_.pause(options.bytes ? tags[any(2)] : any_tag(), options);
        } catch (const NotIdle&) { // the timeout expired
        }
    }

    void look() {
        const auto [block, bytes] = any_kept();
        try {
            const BackupView view = saver_.backup_view(block, bytes);
            CHECK(view.data() != nullptr); // the bytes are not read: the next pause may be writing them
            ++shared_.views;
        } catch (const Misuse&) { // no backup at the moment
        }
    }

    void capture_one() {
        drop_graph();
        const Gate gate = any_kept_gate();
        graph_ = capture(saver_, "graphs", stream_, [&] {
            if (any(2) == 0) gate.before(stream_);
            captured_ = saver_.allocate(5000);
            shared_.live.add(captured_, 5000);
            const Buffer<unsigned char> scratch{saver_.arena("graphs"), 1 + any(70'000)};
            fill_on(saver_.driver(), scratch.data(), scratch.size(), 1, stream_);
            fill_on(saver_.driver(), captured_, 5000, 2, stream_);
        });
        ++shared_.captures;
    }
    void launch() {
        if (!graph_) return;
        const std::shared_lock no_pause{shared_.launching};
        (void)saver_.resume("graphs");
        if (any(3) == 0) graph_.update(stream_, [&] { fill_on(saver_.driver(), captured_, 5000, 3, stream_); });
        graph_.launch(stream_);
        ++shared_.launches;
    }
    void drop_graph() {
        graph_.reset();
        if (captured_ == nullptr) return;
        shared_.live.remove(captured_); // launches may still be in flight
        any(2) == 0 ? saver_.deallocate(captured_) : saver_.deallocate(captured_, stream_);
        captured_ = nullptr;
    }

    void workspace() {
        const std::size_t which = any(std::size(Shared::places));
        (void)unless_paused([&] {
            void* const here = shared_.pool.get(Shared::places[which], 1 + any(700'000));
            void* const before = shared_.at[which].exchange(here);
            CHECK((before == nullptr || before == here));
        });
    }
    void own_pool() {
        WorkspacePool pool{saver_.arena("workspaces"), {.cap = 1_MiB}};
        void* const small = pool.get("a", 1 + any(300));
        (void)unless_paused([&] {
            void* const large = pool.get("a", 1 + any(700'000));
            CHECK(small == large);
        });
    }
    void hook() {
        // Not `this`: another thread may be running the hook when the worker ends.
        const auto run = [&shared = shared_, tag = any_tag()](auto&) {
            ++shared.hooks_run;
            shared.saver.deallocate(shared.saver.arena(tag).allocate(300), already_idle);
        };
        switch (any(4)) {
        case 0: hook_ = saver_.before_pause(run); break;
        case 1: hook_ = saver_.after_pause(run); break;
        case 2: hook_ = saver_.after_resume(run); break;
        default: hook_ = {};
        }
    }

    Shared& shared_;
    Saver& saver_{shared_.saver};
    std::mt19937_64 random_;
    StreamRef stream_;
    std::vector<void*> blocks_;
    Graph graph_;
    Arrival coming_;
    void* captured_ = nullptr; // the block that the graph writes to
    Hook hook_;
};

TEST_CASE("every operation on many threads and several tags" * on_hosts) {
    constexpr std::size_t threads = 16;
    constexpr int operations = 80;
    for (const std::uint64_t seed : {std::uint64_t{1}, std::uint64_t{2}}) {
        CAPTURE(seed);
        const Checked machine;
        Saver saver{machine.driver};
        const ManualBackup policy;
        policy.copies->held = false;
        (void)saver.arena("discarded");
        (void)saver.arena("zero", Zero{});
        const Arena arena = saver.arena("kept", policy);
        const Arena saved = saver.arena("saved", HostBackup{.threads = 2});
        const Arena file = saver.arena("file", FileBackup{.directory = "/tmp", .threads = 2, .ring_bytes = 8_MiB});
        (void)saver.arena("graphs", HostBackup{.threads = 1});
        std::optional<WorkspacePool> pool{std::in_place, saver.arena("workspaces", HostBackup{.threads = 1}),
                                          WorkspacePoolOptions{.cap = 1_MiB}};
        Shared shared{.saver = saver, .pool = *pool, .kept = {}};
        for (const std::size_t bytes : {std::size_t{400}, std::size_t{70'000}, std::size_t{3'000'000}}) {
            for (const Arena& from : {arena, saved, file}) {
                void* const block = shared.kept.emplace_back(from.allocate(bytes), bytes).first;
                write_pattern(machine.driver, block, bytes, bytes);
                shared.live.add(block, bytes);
            }
        }
        {
            Threads working{threads, [&](std::size_t t) { Worker{shared, seed * 1000 + t}.work(operations); }};
            CHECK_NOTHROW(working.join());
        }
        CHECK(shared.live.count() == shared.kept.size());
        for (const auto* const times :
             {&shared.hooks_run, &shared.captures, &shared.launches, &shared.views, &shared.gates})
            CHECK(*times > 0);
        (void)saver.resume();
        for (const auto& [block, bytes] : shared.kept) CHECK(has_pattern(machine.driver, block, bytes, bytes));
        check_books(saver, machine.driver);
        pool.reset();
        std::size_t blocks = 0;
        for (const ArenaUsage& row : saver.usage()) blocks += row.blocks;
        CHECK(blocks == shared.kept.size());

        // No freed memory is lost: only the memory of the kept blocks is left.
        (void)saver.trim();
        for (const char* tag : {"discarded", "zero", "workspaces", "graphs"})
            CHECK_MESSAGE(row_of(saver, tag).mapped_bytes == 0, tag);
        for (const auto& [block, bytes] : shared.kept) saver.deallocate(block);
        (void)saver.trim();
        CHECK(machine.driver.handle_bytes() + machine.driver.plain_bytes() == 0);
    }
}

TEST_CASE_FIXTURE(OnMachine, "closing while others are at work: they get Misuse, and nothing is left" * on_hosts) {
    Saver saver{machine.driver};
    const Arena arena = saver.arena("closed", Zero{});
    std::atomic<int> started{0};
    Threads working{8, [&](std::size_t t) {
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
                    }};
    while (started < 8) std::this_thread::yield();
    saver.close();
    CHECK_NOTHROW(working.join());
    CHECK(machine.driver.handle_bytes() == 0);
    CHECK(machine.driver.reserved_bytes() == 0);
}

constexpr std::size_t block_bytes = 2_MiB;
constexpr int rounds = 8;

TEST_CASE_FIXTURE(OnMachine, "saving ahead while threads allocate, free, invalidate and pause" * on_hosts) {
    MemorySaver saver{machine.driver};
    const Arena arena = saver.arena("frozen", HostBackup{.refresh = Refresh::once});
    const Filled frozen{machine.driver, arena, block_bytes};
    for (int round = 0; round < rounds; ++round) {
        const Arrival saved = saver.save("frozen");
        Threads others{3, [&](std::size_t which) {
                           for (int i = 0; which == 0 && i < 20; ++i) saver.deallocate(arena.allocate(10'000));
                           if (which == 1 && round % 2 == 0) saver.invalidate("frozen");
                           if (which == 1) (void)saver.save("frozen").report();
                           if (which == 2) (void)saved.done();
                           if (which == 2) saved.wait(frozen.data(), block_bytes);
                       }};
        if (round % 2 == 1) saved.wait();
        others.join();
        pause_and_resume(saver, "frozen");
        CHECK(frozen.whole());
    }
}

TEST_CASE_FIXTURE(OnMachine, "a saver is closed while threads wait for arriving bytes" * on_hosts) {
    for (int round = 0; round < rounds; ++round) {
        MemorySaver saver{machine.driver};
        const AnyPolicy policy = round % 2 == 0 ? HostBackup{} : HostBackup{.storage = Storage::pageable, .threads = 1};
        const Buffer<unsigned char> block{saver.arena("tag", policy), 4 * block_bytes};
        saver.pause("tag");
        const Arrival coming = saver.resume_async("tag");
        Threads threads{3, [&](std::size_t i) {
                            try {
                                if (i == 0) coming.wait();
                                if (i == 1) coming.wait(block.data() + block_bytes, block_bytes);
                                if (i == 2) (void)coming.report();
                            } catch (const Error&) { // closed, or held back
                            }
                        }};
        saver.close();
        threads.join();
        CHECK(coming.done());
    }
}
} // namespace threads_stress_test
