// The observable behavior of backups with any policy, and specifics of host memory.
#include "backup/backup_support.hpp"
#include "backup/compressed_support.hpp"
#include "memsaver/backup/verified.hpp"
#include "support/each_of.hpp"
#include "support/sampling.hpp"

#include <deque>
#include <future>

namespace backup_host_backup_test {
using namespace test;

/// Returns Refresh::once policies for each kind of storage, with one more option set by `set`.
template <class Set>
std::vector<AnyPolicy> policies_once(const Set& set) {
    std::vector<AnyPolicy> policies;
    const auto add = [&](auto how) {
        how.refresh = Refresh::once;
        set(how);
        policies.emplace_back(how);
    };
    add(HostBackup{.threads = 2});
    add(pageable());
    add(in_file());
    return policies;
}

/// Blocks with new bytes, and a check that they are unchanged.
template <class D>
struct Blocks {
    Blocks(const D& driver, const Arena& arena, const std::vector<std::size_t>& sizes) : driver_{driver} {
        for (const std::size_t bytes : sizes) add(arena, bytes);
    }
    void add(const Arena& arena, std::size_t bytes) { blocks_.push_back({arena.allocate(bytes), bytes, 0}); }
    void write(std::uint64_t seed) {
        for (Block& block : blocks_) {
            block.seed = ++seed * 1000;
            write_pattern(driver_, block.at, block.bytes, block.seed);
        }
    }
    [[nodiscard]] bool whole() const {
        return std::all_of(blocks_.begin(), blocks_.end(),
                           [&](const Block& block) { return has_pattern(driver_, block.at, block.bytes, block.seed); });
    }
    void* drop(std::size_t i) {
        void* const at = blocks_[i].at;
        blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(i));
        return at;
    }
    [[nodiscard]] void* at(std::size_t i) const { return blocks_[i].at; }

private:
    struct Block {
        void* at;
        std::size_t bytes;
        std::uint64_t seed;
    };
    D driver_;
    std::vector<Block> blocks_;
};

/// Every third policy, other ones for each commit; all with MEMSAVER_SWEEP_STEP=1.
std::vector<NamedPolicy> some_keepers() {
    const std::vector<NamedPolicy> all = keepers();
    std::vector<NamedPolicy> some;
    for (std::size_t i = sampling().first(3); i < all.size(); i += sampling().stride(3)) some.push_back(all[i]);
    return some;
}

// More than a ring's buffer, and as much: every byte is compared after each resume, so that more would only take
// longer.
const std::vector<std::size_t> odd_sizes{6912, 2_MiB + 1, 1, 100'000, 2_MiB, 6912, 256_KiB - 255};
constexpr std::size_t odd_bytes = 6912 + (2_MiB + 256) + 256 + 100'096 + 2_MiB + 6912 + 256_KiB; // in units of 256

/// Checks that exactly all bytes are kept; fewer with compression. The host's codec detects the pattern's repetitions,
/// the device's does not.
template <class Saver>
void check_kept(Saver& saver, const std::string& name, std::size_t bytes) {
    const std::size_t kept = row_of(saver, "weights").backed_up_bytes;
    if (name.find("compressed") == std::string::npos) {
        CHECK(kept == bytes);
    } else if (!on_cuda()) {
        CHECK(kept < bytes);
    } else {
        CHECK(kept <= bytes);
    }
}

/// Blocks with bytes in a tag, once with each policy of a list.
struct OnPolicy : OnSaver {
    explicit OnPolicy(const std::vector<NamedPolicy>& all)
        : keeper{each_of(all, [](const NamedPolicy& each) { return each.name; })},
          arena{saver.arena("weights", keeper.policy)}, blocks{machine.driver, arena, odd_sizes} {
        blocks.write(1);
    }
    static std::vector<NamedPolicy> named(const char* part) {
        std::vector<NamedPolicy> some = keepers();
        std::erase_if(some, [&](const NamedPolicy& each) { return each.name.find(part) == std::string::npos; });
        return some;
    }
    /// Pauses and resumes, checks every byte, and returns how many were saved.
    std::size_t cycle() {
        const std::size_t saved = saver.pause("weights").saved_bytes;
        (void)saver.resume("weights");
        CHECK(blocks.whole());
        return saved;
    }

    const NamedPolicy keeper;
    const Arena arena;
    Blocks<MachineDriver> blocks;
};

struct OnSome : OnPolicy {
    OnSome() : OnPolicy{some_keepers()} {}
};
struct OnOnce : OnPolicy {
    OnOnce() : OnPolicy{named("once")} {}
};
struct OnGivenBack : OnPolicy {
    OnGivenBack() : OnPolicy{named("given back")} {}
};

TEST_CASE_FIXTURE(OnSome, "backup: blocks that are freed and allocated while paused" * on_machines) {
    (void)saver.pause("weights");
    const std::size_t kept = row_of(saver, "weights").backed_up_bytes;
    saver.deallocate(blocks.drop(1));
    saver.deallocate(blocks.drop(2));
    const std::size_t left = row_of(saver, "weights").backed_up_bytes;
    // Bytes of stores around another one are freed by the next operation.
    if (keeper.name.find("compressed") == std::string::npos && keeper.name.find("source") == std::string::npos) {
        CHECK(left < kept);
    } else {
        CHECK(left <= kept);
    }
    // Allocated while others are paused, in separate memory, and paused too: both batches are resumed together.
    Blocks later{machine.driver, arena, {2_MiB + 3, 6912, 1_MiB}};
    later.write(7);
    CHECK(later.whole());
    (void)saver.pause("weights");
    Blocks latest{machine.driver, arena, {3_MiB + 3, 100}};
    latest.write(70);
    (void)saver.pause("weights");
    CHECK(machine.driver.handle_bytes() == 0);
    (void)saver.resume("weights");
    CHECK(blocks.whole());
    CHECK(later.whole());
    CHECK(latest.whole());
    saver.deallocate(later.drop(1));
    blocks.add(arena, 777);
    blocks.write(9);
    later.write(90);
    saver.invalidate("weights");
    (void)cycle();
    CHECK(later.whole());
    CHECK(latest.whole());
}

TEST_CASE_FIXTURE(OnSome, "backup: another policy for a single pause" * on_machines) {
    pause_and_resume(saver, "weights");
    CHECK(saver.pause("weights", {.bytes = Zero{}}).saved_bytes == 0);
    (void)saver.resume("weights");
    CHECK(all_are(machine.driver, blocks.at(1), 2_MiB + 1, 0));
    blocks.write(2); // without invalidate: the policy knows that it was not used
    CHECK(cycle() == odd_bytes);
    blocks.write(3);
    (void)saver.pause("weights", {.bytes = HostBackup{}});
    (void)saver.resume("weights");
    CHECK(blocks.whole());
}

TEST_CASE_FIXTURE(OnOnce, "refresh once: later pauses copy only what was allocated since" * on_machines) {
    CHECK(saver.pause("weights").saved_bytes == odd_bytes);
    (void)saver.resume("weights");
    const auto copies = machine.driver.calls(Call::copy_to_host);
    CHECK(saver.pause("weights").saved_bytes == 0);
    CHECK(machine.driver.calls(Call::copy_to_host) == copies);
    CHECK(saver.resume("weights").restored_bytes == odd_bytes);
    CHECK(blocks.whole());
    Blocks added{machine.driver, arena, {6912, 1_MiB}};
    added.write(5);
    CHECK(cycle() == 6912 + 1_MiB);
    CHECK(added.whole());
    // Its bytes changed: everything is saved once more, then nothing again.
    blocks.write(2);
    saver.invalidate("weights");
    CHECK(saver.pause("weights").saved_bytes == odd_bytes + 6912 + 1_MiB);
    // While paused: the only copy is kept, and resumed bytes are saved again at the next pause.
    saver.invalidate("weights");
    (void)saver.resume("weights");
    CHECK(blocks.whole());
    blocks.write(3);
    CHECK(cycle() == odd_bytes + 6912 + 1_MiB);
    CHECK(added.whole());
    CHECK(cycle() == 0);
}

TEST_CASE("refresh once keeps its bytes, retained or not" * on_machines) {
    const auto set = [](auto& how) {
        how.threads = 1; // each has its ring buffers when it first copies bytes
    };
    for (const auto& policy : policies_once(set)) {
        CAPTURE(std::string{policy.name()});
        const Checked machine;
        MemorySaver saver{machine.driver};
        Blocks blocks{machine.driver, saver.arena("frozen", policy), odd_sizes};
        saver.set_retain("frozen", false);
        blocks.write(1);
        CHECK(saver.pause("frozen").saved_bytes == odd_bytes);
        const auto held = machine.driver.host_bytes();
        for (int cycle = 0; cycle < 2; ++cycle) {
            (void)saver.resume("frozen");
            CHECK(blocks.whole());
            CHECK(row_of(saver, "frozen").backed_up_bytes == odd_bytes);
            CHECK(machine.driver.host_bytes() == held);
            CHECK(saver.pause("frozen").saved_bytes == 0);
        }
        (void)saver.resume("frozen");
        CHECK(blocks.whole());
    }
}

TEST_CASE("check: a forgotten invalidate is reported, and all stays active" * on_machines) {
    auto policies = policies_once([](auto& how) { how.check = true; });
    if (no_codec().empty())
        policies.emplace_back(compressed(HostBackup{.refresh = Refresh::once, .check = true, .threads = 2}));
    const HostDriver peer{256_MiB, {.device = 1}};
    if (!on_cuda()) policies.emplace_back(PeerBackup{.peer = peer, .refresh = Refresh::once, .check = true});
    for (const auto& policy : policies) {
        CAPTURE(policy.describe());
        const Checked machine;
        MemorySaver saver{machine.driver};
        Blocks blocks{machine.driver, saver.arena("frozen", policy), odd_sizes};
        blocks.write(1);
        pause_and_resume(saver, "frozen");
        CHECK(saver.pause("frozen").saved_bytes == 0); // unchanged, including odd tails
        (void)saver.resume("frozen");
        write_bytes(machine.driver, static_cast<std::byte*>(blocks.at(1)) + 2_MiB, {0x77});
        const std::string text = text_of<Misuse>([&] { (void)saver.pause("frozen"); });
        CHECK(contains(text, "call invalidate(\"frozen\")"));
        CHECK(contains(text, "for example at " + format_address(address_of(blocks.at(1)) + 2_MiB)));
        CHECK(contains(text, "in a block of 2.00 MiB at " + format_address(address_of(blocks.at(1)))));
        CHECK(row_of(saver, "frozen").state == "active");
        blocks.write(2);
        saver.invalidate("frozen");
        CHECK(saver.pause("frozen").saved_bytes == odd_bytes);
        (void)saver.resume("frozen");
        CHECK(blocks.whole());
    }
}

TEST_CASE_FIXTURE(OnGivenBack, "without retention host memory falls after resume" * on_machines) {
    for (std::uint64_t cycle = 0; cycle < 3; ++cycle) {
        blocks.write(cycle);
        (void)saver.pause("weights");
        CHECK(machine.driver.host_bytes() > 0);
        (void)saver.resume("weights");
        CHECK(machine.driver.host_bytes() == 0);
        CHECK(machine.driver.pinned_bytes() == 0);
        CHECK(machine.driver.outstanding().files == 0);
        CHECK(row_of(saver, "weights").backed_up_bytes == 0);
        CHECK(blocks.whole());
    }
}

TEST_CASE_FIXTURE(OnSome, "prepare: the first pause then allocates no host memory" * on_machines) {
    std::thread ahead{[&] { saver.prepare("weights"); }};
    ahead.join();
    CHECK(row_of(saver, "weights").state == "active");
    CHECK(row_of(saver, "weights").backed_up_bytes == 0);
    CHECK(blocks.whole());
    const auto taken = [&] {
        const bool pinned = keeper.name.rfind("pinned", 0) == 0; // others are populated as bytes come
        return machine.driver.calls(Call::map_host) + machine.driver.calls(Call::pin_host) +
               (pinned ? machine.driver.calls(Call::populate_host) : 0) + machine.driver.calls(Call::open_file) +
               machine.driver.calls(Call::allocate_file);
    };
    const auto before = taken();
    CHECK(before > 0);
    CHECK(saver.pause("weights").saved_bytes == odd_bytes);
    const bool coded = keeper.name.find("compressed") != std::string::npos; // may need more than 0.7 of the bytes
    if (!coded) CHECK(taken() == before);
    (void)saver.resume("weights");
    CHECK(blocks.whole());
    saver.prepare("weights"); // again, with nothing to do
    (void)saver.pause("weights");
    saver.prepare("weights");
    (void)saver.resume("weights");
    CHECK(blocks.whole());
    CHECK_THROWS_AS(saver.prepare("nobody"), Misuse);
}

TEST_CASE("pins refused: slower, reported once, and the bytes are right" * on_machines) {
    for (const bool from_the_first : {true, false}) { // or after some
        for (const auto& keeper : some_keepers()) {
            CAPTURE(keeper.name);
            CAPTURE(from_the_first);
            const Checked machine;
            Told told;
            MemorySaver saver{machine.driver, {.events = told.sink()}};
            Blocks blocks{machine.driver, saver.arena("weights", keeper.policy), odd_sizes};
            machine.driver.fail({.call = Call::pin_host,
                                 .nth = from_the_first ? std::uint64_t{1} : std::uint64_t{2},
                                 .lasting = Lasting::onwards,
                                 .kind = StatusKind::out_of_host_memory});
            for (std::uint64_t cycle = 0; cycle < 2; ++cycle) {
                blocks.write(cycle);
                saver.invalidate("weights");
                pause_and_resume(saver, "weights");
                CHECK(blocks.whole());
            }
            const bool host = keeper.name.rfind("pinned", 0) == 0;
            if (host && from_the_first) CHECK(told.of(EventKind::fell_back).size() == 1);
            CHECK(told.of(EventKind::fell_back).size() <= 1);
            machine.driver.heal();
        }
    }
}

TEST_CASE("a limit on pins: none, a little, and enough") {
    using Driver = MachineDriver;
    for (const std::size_t limit : {std::size_t{0}, 66_MiB, 1_GiB}) {
        CAPTURE(limit);
        const Driver driver{HostDriver{1_GiB, {.pin_limit = limit}}};
        {
            Told told;
            MemorySaver saver{driver, {.events = told.sink()}};
            Blocks blocks{
                driver, saver.arena("weights", HostBackup{.threads = 2}), {limit == 66_MiB ? 70_MiB : 3_MiB, 6912}};
            for (std::uint64_t cycle = 0; cycle < 2; ++cycle) {
                blocks.write(cycle);
                pause_and_resume(saver, "weights");
                CHECK(blocks.whole());
                CHECK(host_of(driver).counts().pinned_bytes <= limit);
            }
            const auto events = told.of(EventKind::fell_back);
            CHECK(events.size() == (limit == 1_GiB ? 0 : 1));
            for (const Event& event : events) {
                CHECK(event.tag == "weights");
                CHECK(contains(event.text, "pinned"));
            }
        }
        check_given_back(driver);
        CHECK(host_of(driver).counts().pinned_bytes == 0);
    }
}

TEST_CASE("pageable, file: pinned memory stays within the ring" * on_quick) {
    HostBackup host = pageable();
    FileBackup file = in_file();
    host.threads = file.threads = 8;
    for (const AnyPolicy& policy : {AnyPolicy{host}, AnyPolicy{file}}) {
        const Checked machine;
        MemorySaver saver{machine.driver};
        Blocks blocks{machine.driver, saver.arena("weights", policy), {20_MiB}};
        std::atomic<std::size_t> most{0};
        machine.driver.on_call([&](const CallRecord& call) {
            if (call.call != Call::copy_to_host && call.call != Call::copy_to_device) return;
            most = std::max(most.load(), machine.driver.pinned_bytes());
        });
        blocks.write(1);
        most = 0;
        pause_and_resume(saver, "weights");
        machine.driver.on_call({});
        CHECK(most > 0);
        CHECK(most <= 8_MiB);
        CHECK(blocks.whole());
    }
}

/// A host with almost no available memory.
struct PoorHost : DeviceAround {
    using DeviceAround::DeviceAround;
    Status host_available(std::size_t& bytes) noexcept override {
        bytes = 3_MiB;
        return {};
    }
};

/// A host with memory for the backup of one tag.
struct HostForOne : DeviceAround {
    HostForOne(AnyDriver inner, std::size_t room) : DeviceAround{std::move(inner)}, room_{room} {}
    Status host_available(std::size_t& bytes) noexcept override {
        bytes = room_ - std::min(room_, touched_.load());
        return {};
    }
    Status populate_host(void* pages, std::size_t bytes) noexcept override {
        const Status status = DeviceAround::populate_host(pages, bytes);
        if (status.ok()) touched_ += bytes;
        return status;
    }

private:
    std::size_t room_;
    std::atomic<std::size_t> touched_{0};
};

TEST_CASE("tags that pause together share a budget of host memory") {
    constexpr std::size_t each = 8_MiB;
    const FaultyDriver driver{HostWith<HostForOne>{HostDriver{256_MiB}, each * 3 / 2}};
    {
        MemorySaver saver{driver};
        Blocks first{driver, saver.arena("first", HostBackup{.threads = 2}), {each}};
        Blocks second{driver, saver.arena("second", HostBackup{.threads = 2}), {each}};
        first.write(1);
        second.write(2);
        CHECK_THROWS_AS((void)saver.pause(), OutOfHostMemory); // each one alone would fit
        CHECK(row_of(saver, "first").state == "active");
        CHECK(row_of(saver, "second").state == "active");
        CHECK(first.whole());
        CHECK(second.whole());
        (void)saver.pause("first"); // it keeps the pages that its first attempt touched
        (void)saver.resume("first");
        CHECK(first.whole());
    }
    CHECK_MESSAGE(driver.everything_given_back(), driver.leaks());
}

TEST_CASE("host memory that the system does not have is not touched") {
    const FaultyDriver driver{HostWith<PoorHost>{256_MiB}};
    {
        MemorySaver saver{driver};
        Blocks blocks{driver, saver.arena("weights", HostBackup{.threads = 2}), odd_sizes};
        blocks.write(1);
        const std::string text = text_of<OutOfHostMemory>([&] { (void)saver.pause("weights"); });
        CHECK(contains(text, "3.00 MiB"));
        CHECK(contains(text, "tag \"weights\""));
        CHECK_THROWS_AS(saver.prepare("weights"), OutOfHostMemory);
        CHECK(driver.calls(Call::map_host) == 0);
        CHECK(row_of(saver, "weights").state == "active");
        CHECK(blocks.whole());
        (void)saver.pause("weights", {.bytes = in_file()});
        (void)saver.resume("weights");
        CHECK(blocks.whole());
    }
    CHECK_MESSAGE(driver.everything_given_back(), driver.leaks());
}

TEST_CASE_FIXTURE(OnSome,
                  "backup_view: bytes while paused, later if they are kept, or why there are none" * on_machines) {
    void* const block = arena.allocate(2_MiB + 17);
    void* const other = arena.allocate(6912);
    write_pattern(machine.driver, block, 2_MiB + 17, 5);
    write_pattern(machine.driver, other, 6912, 6);
    CHECK(contains(text_of<Misuse>([&] { (void)saver.backup_view(block, 1); }), "no complete backup"));
    (void)saver.pause("weights");
    const auto bytes = pattern(2_MiB + 17, 5);
    const auto same = [](const BackupView& view, const unsigned char* from) {
        return std::equal(view.data(), view.data() + view.size_bytes, reinterpret_cast<const std::byte*>(from));
    };
    const BackupView whole = saver.backup_view(block, 2_MiB + 17);
    CHECK(whole.size_bytes == 2_MiB + 17);
    CHECK(same(whole, bytes.data()));
    CHECK(same(saver.backup_view(static_cast<std::byte*>(block) + 1_MiB + 3, 4097), bytes.data() + 1_MiB + 3));
    CHECK(same(saver.backup_view(other, 6912), pattern(6912, 6).data()));
    CHECK(contains(mapping_flags(whole.data()), " dd "));
    CHECK(contains(text_of<Misuse>([&] { (void)saver.backup_view(block, 4_MiB); }), "past the end"));
    CHECK(contains(text_of<Misuse>([&] { (void)saver.backup_view(&saver, 1); }), "no tag"));
    (void)saver.resume("weights");
    CHECK(same(whole, bytes.data())); // the view owns its bytes
    if (keeper.name.find("given back") == std::string::npos) {
        CHECK(same(saver.backup_view(block, 2_MiB + 17), bytes.data()));
    } else {
        CHECK_THROWS_AS((void)saver.backup_view(block, 1), Misuse);
    }
    saver.deallocate(other);
    CHECK(contains(text_of<Misuse>([&] { (void)saver.backup_view(other, 1); }), "no live block"));
}

TEST_CASE_FIXTURE(OnSaver, "backup_view: tags that keep nothing, or nothing of this pause" * on_machines) {
    for (const AnyPolicy& policy : {AnyPolicy{Discard{}}, AnyPolicy{HostBackup{.threads = 2}}}) {
        void* const block = saver.arena(std::string{policy.name()}, policy).allocate(4096);
        (void)saver.pause(std::string{policy.name()}, {.bytes = Discard{}});
        CHECK(contains(text_of<Misuse>([&] { (void)saver.backup_view(block, 1); }), "keeps no bytes"));
    }
}

/// An engine with one thread, which runs the tasks one after the other.
struct OneThread final : Executor {
    ~OneThread() override {
        submit({});
        thread_.join();
    }
    void submit(std::function<void()> task) override {
        const std::lock_guard lock{mutex_};
        tasks_.push_back(std::move(task));
        changed_.notify_all();
    }

private:
    void run() {
        for (;;) {
            std::unique_lock lock{mutex_};
            changed_.wait(lock, [&] { return !tasks_.empty(); });
            const std::function<void()> task = std::move(tasks_.front());
            tasks_.pop_front();
            lock.unlock();
            if (!task) return;
            task();
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> tasks_;
    std::thread thread_{[this] { run(); }};
};

TEST_CASE("an executor's only thread may pause and resume by itself" * on_machines) {
    const auto engine = std::make_shared<OneThread>();
    HostBackup pinned{.executor = engine};
    HostBackup ringed = pageable();
    ringed.executor = engine;
    FileBackup filed = in_file();
    filed.executor = engine;
    using Policy = AnyPolicy;
    for (const Policy& policy : {Policy{pinned}, Policy{ringed}, Policy{filed}, Policy{Verified<HostBackup>{pinned}}}) {
        CAPTURE(std::string{policy.name()});
        const Checked machine;
        MemorySaver saver{machine.driver};
        Blocks blocks{machine.driver, saver.arena("weights", policy), odd_sizes};
        Blocks others{machine.driver, saver.arena("others", policy), odd_sizes};
        for (std::uint64_t cycle = 0; cycle < 2; ++cycle) {
            blocks.write(cycle);
            others.write(cycle + 10);
            std::promise<std::size_t> saved;
            engine->submit([&] {
                saver.prepare("others");
                const std::size_t bytes = saver.pause().saved_bytes;
                (void)saver.resume();
                saved.set_value(bytes);
            });
            CHECK(saved.get_future().get() == 2 * odd_bytes);
            CHECK(blocks.whole());
            CHECK(others.whole());
        }
    }
}

/// An engine that runs each task synchronously.
struct AtOnce final : Executor {
    void submit(std::function<void()> task) override { task(); }
};

TEST_CASE("several tags are restored in the caller's order, after all memory was created" * on_machines) {
    using Driver = MachineDriver;
    const Checked machine;
    MemorySaver saver{machine.driver};
    // Separate threads would start in that order, but run as the system schedules them.
    const HostBackup policy{.threads = 1, .executor = std::make_shared<AtOnce>()};
    Blocks a{machine.driver, saver.arena("a", policy), {1_MiB}};
    Blocks b{machine.driver, saver.arena("b", policy), {1_MiB}};
    Blocks c{machine.driver, saver.arena("c", policy), {1_MiB}};
    a.write(1), b.write(2), c.write(3);
    (void)saver.pause();
    struct Seen {
        std::mutex mutex;
        std::vector<CallRecord> calls;
    };
    const auto seen = std::make_shared<Seen>();
    const Driver& driver = machine.driver;
    driver.on_call([seen](const CallRecord& call) {
        const std::lock_guard lock{seen->mutex};
        seen->calls.push_back(call);
    });
    (void)saver.resume({"c", "a", "b"});
    driver.on_call({});
    std::vector<Address> order;
    for (const CallRecord& call : seen->calls) {
        if (call.call == Call::create || call.call == Call::map) CHECK(order.empty());
        if (call.call == Call::copy_to_device) order.push_back(call.address);
    }
    const auto name_of = [&](Address address) {
        for (const auto& [blocks, name] : {std::pair{&a, 'a'}, std::pair{&b, 'b'}, std::pair{&c, 'c'}}) {
            if (address - address_of(blocks->at(0)) < 1_MiB) return name;
        }
        return '?';
    };
    std::string names; // a block may take two copies, if its host memory crosses a cell boundary
    for (const Address address : order) {
        if (names.empty() || names.back() != name_of(address)) names += name_of(address);
    }
    CHECK(names == "cab");
    CHECK(a.whole());
    CHECK(b.whole());
    CHECK(c.whole());
}

TEST_CASE("two devices side by side, each restored on its own") {
    using Driver = MachineDriver;
    for (const auto& keeper : some_keepers()) {
        CAPTURE(keeper.name);
        const Driver first = driver_of(nasty_machine, 0);
        const Driver second = driver_of(nasty_machine, 1);
        {
            MemorySaver saver{first};
            Blocks a{first, saver.arena("weights", keeper.policy), odd_sizes};
            Blocks b{second, saver.arena("weights", keeper.policy, second), odd_sizes};
            for (std::uint64_t cycle = 0; cycle < 2; ++cycle) {
                a.write(cycle), b.write(50 + cycle);
                saver.invalidate("weights");
                CHECK(saver.pause("weights").saved_bytes == 2 * odd_bytes);
                (void)saver.resume("weights");
                CHECK(a.whole());
                CHECK(b.whole());
            }
        }
        check_given_back(first);
        check_given_back(second);
    }
}

TEST_CASE_FIXTURE(OnSome,
                  "blocks are allocated and freed by other threads while a tag is saved and restored" * on_machines) {
    std::atomic<bool> stop{false};
    std::thread other{[&] {
        std::vector<void*> mine;
        for (std::size_t i = 0; !stop; ++i) {
            mine.push_back(arena.allocate(1 + i * 7919 % 100'000));
            if (mine.size() < 20) continue;
            arena.deallocate(mine[i % 20]);
            mine[i % 20] = mine.back();
            mine.pop_back();
        }
        for (void* const block : mine) arena.deallocate(block);
    }};
    for (int cycle = 0; cycle < 2; ++cycle) {
        saver.prepare("weights");
        pause_and_resume(saver, "weights");
    }
    stop = true;
    other.join();
    CHECK(blocks.whole());
    (void)saver.pause("weights");
    check_kept(saver, keeper.name, odd_bytes); // nothing of the freed memory is kept
    (void)saver.resume("weights");
    CHECK(blocks.whole());
}
} // namespace backup_host_backup_test
