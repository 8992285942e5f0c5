// The observable behavior of backups with any policy, and specifics of host memory.
#include "backup/backup_support.hpp"
#include "backup/compressed_support.hpp"
#include "memsaver/backup/verified.hpp"
#include "support/each_of.hpp"
#include "support/sampling.hpp"
#include "support/vanished.hpp"

namespace backup_host_backup_test {
using namespace test;

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

/// Blocks with bytes in a tag, once with each policy of a list.
struct OnPolicy : OnSaver {
    explicit OnPolicy(const std::vector<NamedPolicy>& all)
        : keeper{each_of(all)}, arena{saver.arena("weights", keeper.policy)}, blocks{machine.driver, arena, odd_sizes} {
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
/// Each policy that saves once, and no blocks yet.
struct OnUnsaved : OnSaver {
    const AnyPolicy once = each_of(OnPolicy::named("once")).policy;
};

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

TEST_CASE_FIXTURE(OnUnsaved,
                  "once: after a pause that failed without a change everything is saved again" * on_machines) {
    Filled block{machine.driver, saver.arena("loading", once), 4_MiB};
    (void)arena_in_vanished_directory(saver, "cold").allocate(2_MiB); // another tag's bytes cannot be saved
    CHECK_THROWS_AS((void)saver.pause(), Error);
    CHECK(row_of(saver, "loading").state == "active");
    block.write(2); // it was never paused: the program continues loading
    CHECK(saver.pause("loading").saved_bytes == 4_MiB);
    (void)saver.resume("loading");
    CHECK(block.whole());
    CHECK(saver.pause("loading").saved_bytes == 0);
    (void)saver.resume("loading");
}

TEST_CASE_FIXTURE(OnUnsaved, "once: bytes of pages that are not released are saved all the same" * on_machines) {
    const Arena arena = saver.arena("loading", once);
    const Filled first{machine.driver, arena, 2_MiB, 1};
    const Filled second{machine.driver, arena, 2_MiB, 2};
    machine.driver.fail({.call = Call::unmap, .nth = 2});
    CHECK_THROWS_AS((void)saver.pause(), Error);
    REQUIRE(arena.usage().state == "paused");
    CHECK(saver.pause().saved_bytes == 0);
    (void)saver.resume();
    CHECK((first.whole() && second.whole()));
    CHECK(saver.pause().saved_bytes == 0);
    (void)saver.resume();
}

TEST_CASE_FIXTURE(OnUnsaved, "once: a pause with other bytes is followed by one that saves everything" * on_machines) {
    Filled block{machine.driver, saver.arena("weights", once), 4_MiB};
    machine.driver.fail({.call = Call::unmap});
    CHECK_THROWS_AS((void)saver.pause("weights", {.bytes = Discard{}}), Error);
    CHECK(saver.pause().saved_bytes == 0); // paused already
    (void)saver.resume();
    block.write(7); // the new weights
    CHECK(saver.pause().saved_bytes == 4_MiB);
    (void)saver.resume();
    CHECK(block.whole());
    CHECK(saver.pause().saved_bytes == 0);
}

TEST_CASE_FIXTURE(OnSaver, "check: a forgotten invalidate is reported, and all stays active" * on_machines) {
    std::vector<AnyPolicy> policies;
    const auto add = [&](auto how) {
        how.refresh = Refresh::once;
        how.check = true;
        policies.emplace_back(how);
    };
    add(HostBackup{.threads = 2});
    add(pageable());
    add(in_file());
    if (no_codec().empty())
        policies.emplace_back(compressed(HostBackup{.refresh = Refresh::once, .check = true, .threads = 2}));
    if (!on_cuda()) add(PeerBackup{HostDriver{256_MiB, {.device = 1}}});
    const AnyPolicy policy = each_of(policies);
    Blocks blocks{machine.driver, saver.arena("frozen", policy), odd_sizes};
    blocks.write(1);
    pause_and_resume(saver, "frozen");
    const Filled other{machine.driver, saver.arena("other", policy), 9_MiB}; // leaves its bytes in the buffers
    pause_and_resume(saver, "other");
    CHECK(saver.pause("frozen").saved_bytes == 0); // unchanged, including odd tails
    (void)saver.resume("frozen");
    struct Place {
        std::size_t block, offset;
    };
    for (const auto [which, offset] : {Place{1, 2_MiB}, Place{5, 0}}) { // a last and a first byte
        auto* const changed = static_cast<std::byte*>(blocks.at(which)) + offset;
        write_bytes(machine.driver, changed,
                    {static_cast<unsigned char>(read_bytes(machine.driver, changed, 1)[0] ^ 1)});
        check_says<Misuse>("since their only save, for example at " + format_address(address_of(changed)) +
                               ", in a block of " + format_bytes(align_up(odd_sizes[which], 256)) + " at " +
                               format_address(address_of(blocks.at(which))) + "; call invalidate(\"frozen\")",
                           [&] { (void)saver.pause("frozen"); });
        CHECK(row_of(saver, "frozen").state == "active");
        pause_and_resume(saver, "frozen"); // saves everything again
    }
    blocks.write(2);
    saver.invalidate("frozen");
    CHECK(saver.pause("frozen").saved_bytes == odd_bytes);
    (void)saver.resume("frozen");
    CHECK(blocks.whole());
}

TEST_CASE_FIXTURE(OnSome, "prepare: the first pause then allocates no host memory" * on_machines) {
    std::thread{[&] { saver.prepare("weights"); }}.join();
    CHECK(row_of(saver, "weights").state == "active");
    CHECK(row_of(saver, "weights").backed_up_bytes == 0);
    CHECK(blocks.whole());
    const auto taken = [&] {
        std::uint64_t calls = 0;
        for (const Call call : {Call::map_host, Call::pin_host, Call::open_file, Call::allocate_file})
            calls += machine.driver.calls(call);
        const bool pinned = keeper.name.starts_with("pinned"); // others are populated as bytes come
        return calls + (pinned ? machine.driver.calls(Call::populate_host) : 0);
    };
    const auto before = taken();
    CHECK(before > 0);
    CHECK(saver.pause("weights").saved_bytes == odd_bytes);
    // Compressed bytes may need more than 0.7 of the bytes.
    if (!contains(keeper.name, "compressed")) CHECK(taken() == before);
    (void)saver.resume("weights");
    CHECK(blocks.whole());
    saver.prepare("weights"); // again, with nothing to do
    (void)saver.pause("weights");
    saver.prepare("weights");
    (void)saver.resume("weights");
    CHECK(blocks.whole());
    CHECK_THROWS_AS(saver.prepare("nobody"), Misuse);
}

TEST_CASE_FIXTURE(OnHostSaver, "prepare: leaves the host memory of other tags alone, which may be being written") {
    std::vector<void*> blocks; // the last two share a mapping
    for (const char* tag : {"a", "b", "c", "d"})
        blocks.push_back(saver.arena(tag, HostBackup{.storage = Storage::pageable}).allocate(256_KiB));
    (void)saver.pause({"a", "b", "c"});
    const BackupView saved = saver.backup_view(blocks[2], 256_KiB);
    bool touched = false;
    machine.driver.on_call([&](const CallRecord& made) {
        const auto* const begin = static_cast<const std::byte*>(made.host);
        touched = touched || (made.call == Call::populate_host && begin < saved.data() + saved.size_bytes &&
                              saved.data() < begin + made.bytes);
    });
    saver.prepare("d");
    machine.driver.on_call({});
    CHECK_FALSE(touched);
}

TEST_CASE("a limit on pins: none, a little, and enough") {
    const std::size_t limit = each_of({std::size_t{0}, 66_MiB, 1_GiB});
    const Checked machine{HostDriver{1_GiB, {.pin_limit = limit}}};
    const HostDriver host = host_of(machine.driver);
    {
        Told told;
        MemorySaver saver{machine.driver, {.events = told.sink()}};
        Blocks blocks{
            machine.driver, saver.arena("weights", HostBackup{.threads = 2}), {limit == 66_MiB ? 70_MiB : 3_MiB, 6912}};
        for (std::uint64_t cycle = 0; cycle < 2; ++cycle) {
            blocks.write(cycle);
            if (cycle == 1) saver.prepare("weights");
            pause_and_resume(saver, "weights");
            CHECK(blocks.whole());
            CHECK(host.counts().pinned_bytes <= limit);
        }
        const auto events = told.of(EventKind::fell_back);
        CHECK(events.size() == (limit == 1_GiB ? 0 : 1));
        for (const Event& event : events) CHECK((event.tag == "weights" && contains(event.text, "pinned")));
    }
    CHECK(host.counts().pinned_bytes == 0);
}

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
        for (const char* tag : {"first", "second"}) CHECK(row_of(saver, tag).state == "active");
        CHECK((first.whole() && second.whole()));
        (void)saver.pause("first"); // it keeps the pages that its first attempt touched
        (void)saver.resume("first");
        CHECK(first.whole());
    }
    CHECK_MESSAGE(driver.everything_given_back(), driver.leaks());
}

TEST_CASE_FIXTURE(OnSome,
                  "backup_view: bytes while paused, later if they are kept, or why there are none" * on_machines) {
    void* const block = arena.allocate(2_MiB + 17);
    void* const other = arena.allocate(6912);
    write_pattern(machine.driver, block, 2_MiB + 17, 5);
    write_pattern(machine.driver, other, 6912, 6);
    check_says<Misuse>("no complete backup", [&] { (void)saver.backup_view(block, 1); });
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
    check_says<Misuse>("past the end", [&] { (void)saver.backup_view(block, 4_MiB); });
    check_says<Misuse>("no tag", [&] { (void)saver.backup_view(&saver, 1); });
    (void)saver.resume("weights");
    CHECK(same(whole, bytes.data())); // the view owns its bytes
    if (keeper.name.find("given back") == std::string::npos) {
        CHECK(same(saver.backup_view(block, 2_MiB + 17), bytes.data()));
    } else {
        CHECK_THROWS_AS((void)saver.backup_view(block, 1), Misuse);
    }
    saver.deallocate(other);
    check_says<Misuse>("no live block", [&] { (void)saver.backup_view(other, 1); });
}

/// An engine that runs each task synchronously.
struct AtOnce final : Executor {
    void submit(std::function<void()> task) override { task(); }
};

TEST_CASE_FIXTURE(OnSaver,
                  "several tags are restored in the caller's order, after all memory was created" * on_machines) {
    // Separate threads would start in that order, but run as the system schedules them.
    const HostBackup policy{.threads = 1, .executor = std::make_shared<AtOnce>()};
    std::map<char, Blocks<MachineDriver>> tags;
    for (const char* tag : {"a", "b", "c"}) {
        auto& blocks =
            tags.try_emplace(*tag, machine.driver, saver.arena(tag, policy), std::vector{1_MiB}).first->second;
        blocks.write(static_cast<std::uint64_t>(*tag));
    }
    (void)saver.pause();
    std::string names; // a block may take two copies, if its host memory crosses a cell boundary
    machine.driver.on_call([&](const CallRecord& call) {
        if (call.call == Call::create || call.call == Call::map) CHECK(names.empty());
        if (call.call != Call::copy_to_device) return;
        for (const auto& [name, blocks] : tags) {
            const bool here = call.address - address_of(blocks.at(0)) < 1_MiB;
            if (here && (names.empty() || names.back() != name)) names += name;
        }
    });
    (void)saver.resume({"c", "a", "b"});
    machine.driver.on_call({});
    CHECK(names == "cab");
    for (const auto& [name, blocks] : tags) CHECK(blocks.whole());
}
} // namespace backup_host_backup_test
