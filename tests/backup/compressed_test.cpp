// Compressed backups: bytes are restored exactly, need less memory, and are intact after any failure.
#include "backup/backup_support.hpp"
#include "backup/compressed_support.hpp"
#include "backup/transfer_support.hpp"
#include "memsaver/backup/verified.hpp"
#include "support/each_of.hpp"

namespace backup_compressed_test {
using namespace test;

/// Returns bytes of which a third is new.
std::vector<unsigned char> thin(std::size_t count, std::uint64_t seed) {
    std::vector<unsigned char> bytes = pattern(count, seed);
    for (std::size_t at = 8; at < count; at += 24) std::memset(&bytes[at], 0x3C, std::min<std::size_t>(16, count - at));
    return bytes;
}

/// Returns bytes without repetitions.
std::vector<unsigned char> noise(std::size_t count, std::uint64_t seed) {
    std::vector<unsigned char> bytes(align_up(count, sizeof seed));
    for (std::size_t at = 0; at < count; at += sizeof seed) {
        seed += 0x9E3779B97F4A7C15U;
        std::uint64_t word = (seed ^ (seed >> 30U)) * 0xBF58476D1CE4E5B9U;
        word ^= word >> 27U;
        std::memcpy(&bytes[at], &word, sizeof word);
    }
    bytes.resize(count);
    return bytes;
}

/// The machine's own codec, with rows of metadata.
struct WatchedCodec final : Codec {
    explicit WatchedCodec(const AnyDriver& driver) : codec_{codec_for(driver, Coding::halves)} {}
    Status measure(std::size_t bytes, std::size_t chunks, Sizes& sizes) const noexcept override {
        return codec_->measure(bytes, chunks, sizes);
    }
    std::size_t row_bytes(std::size_t chunks) const noexcept override { return 64 * chunks; }
    Status encode(const Place& place, std::span<const Range> plain, std::span<Range> coded,
                  std::span<std::uint32_t> sums) const noexcept override {
        if (place.rows != nullptr) {
            std::memset(place.rows, 0x55, row_bytes(plain.size()));
            ++with_rows;
        }
        return codec_->encode(place, plain, coded, sums);
    }
    Status decode(const Place& place, std::span<const Range> coded, std::span<const std::uint32_t> expected,
                  std::span<std::uint32_t> sums, std::span<const Range> plain) const noexcept override {
        return codec_->decode(place, coded, expected, sums, plain);
    }

    mutable std::atomic<std::size_t> with_rows{0}; ///< calls

private:
    std::shared_ptr<const Codec> codec_;
};

/// Records where bytes are kept.
struct Seen final : PieceObserver {
    void saved(const Unit& unit, const std::byte*) override {
        const std::lock_guard lock{mutex};
        units.push_back(unit);
    }
    void restoring(const Unit&, const std::byte*) override {}

    std::mutex mutex;
    detail::Vector<Unit> units;
};

/// Compressed<P> with access to its internals.
template <class P>
struct Watched {
    struct Parts {
        std::shared_ptr<WatchedCodec> codec;
        std::shared_ptr<BackupStore> inside;
        std::shared_ptr<Seen> seen = std::make_shared<Seen>();
    };
    P policy{};
    std::shared_ptr<Parts> parts = std::make_shared<Parts>();

    [[nodiscard]] std::string_view name() const noexcept { return "watched"; }
    [[nodiscard]] StoredSlot open(const AnyDriver& driver) const {
        parts->codec = std::make_shared<WatchedCodec>(driver);
        return policy.open(driver, parts->seen,
                           AroundStore{[&](std::shared_ptr<BackupStore> inside, const StoreOptions& options) {
                               parts->inside = inside;
                               return std::make_shared<CodedStore>(driver, std::move(inside), options,
                                                                   CodedOptions{parts->codec, 2_MiB, 2});
                           }});
    }
    /// Flips a bit of the i-th chunk's backup; a second call restores it.
    void damage(std::size_t i) const {
        const Unit unit = parts->seen->units[i];
        BackupStore::Reached host;
        REQUIRE(parts->inside->reach(unit.location, unit.bytes, host).ok());
        if (host.at != nullptr) {
            host.at[unit.bytes / 2] ^= std::byte{0x10};
            return;
        }
        const std::size_t whole = align_up(unit.bytes, parts->inside->alignment());
        std::vector<std::byte> memory(whole + 4096);
        void* start = memory.data();
        std::size_t space = memory.size();
        auto* const bytes = static_cast<std::byte*>(std::align(4096, whole, start, space));
        REQUIRE(parts->inside->get(bytes, unit.location, whole).ok());
        bytes[unit.bytes / 2] ^= std::byte{0x10};
        REQUIRE(parts->inside->put(bytes, unit.location, whole).ok());
    }
    friend bool operator==(const Watched& a, const Watched& b) { return a.parts == b.parts; }
};

/// A tag "packed" with a block of 8 MiB that a codec makes smaller. Cases begin with: if (no_codec_here()) return;
struct OnPacked : OnTold {
    void write(std::uint64_t seed) {
        if (!block) block.emplace(machine.driver, arena(), 8_MiB, seed, thin);
        block->write(seed);
    }
    Arena arena() { return saver.arena("packed", compressed(HostBackup{.threads = 2})); }
    std::size_t mapped() { return row_of(saver, "packed").mapped_bytes; }

    std::optional<Filled<MachineDriver>> block{};
};

TEST_CASE_FIXTURE(OnSaver, "compressed: bytes are restored unchanged, and take less memory" * on_machines) {
    if (no_codec_here()) return;
    const Arena arena = saver.arena("packed", each_of(coded_keepers()).policy);
    std::vector<Filled<MachineDriver>> blocks;
    std::size_t plain = 0;
    for (const std::size_t size : {std::size_t{256}, std::size_t{6912}, 1_MiB, 2_MiB + 512, 256_KiB, 2_MiB}) {
        blocks.emplace_back(machine.driver, arena, size, size, size == 2_MiB + 512 ? noise : thin);
        plain += size;
    }
    for (int cycle = 0; cycle < 2; ++cycle) {
        (void)saver.pause("packed");
        check_books(saver, machine.driver);
        const ArenaUsage row = row_of(saver, "packed");
        CHECK(row.backed_up_bytes > 2_MiB);           // parts that do not compress
        CHECK(row.backed_up_bytes < plain - 256_KiB); // each codec compresses different parts
        for (const auto& block : blocks) {
            const std::size_t offset = block.size() / 3;
            const BackupView view = saver.backup_view(block.data() + offset, 100);
            CHECK(std::memcmp(view.data(), &block.content(block.size(), block.seed)[offset], 100) == 0);
        }
        CHECK(row_of(saver, "packed").mapped_bytes == 0); // a view frees what it allocated
        const std::size_t need = saver.bytes_to_resume("packed");
        CHECK(saver.resume("packed").mapped_bytes == need);
        check_books(saver, machine.driver);
        for (const auto& block : blocks) CHECK(block.whole());
    }
    blocks[1].reset();
    const Filled other{machine.driver, arena, 3_MiB, 77, thin};
    saver.invalidate("packed");
    (void)saver.pause("packed");
    blocks[0].reset();
    (void)saver.resume("packed");
    CHECK(other.whole());
}

TEST_CASE_FIXTURE(OnPacked, "compressed: scratch is allocated ahead, counted, and released" * on_machines) {
    if (no_codec_here()) return;
    void* const same = arena().allocate(8_MiB);
    const std::vector<unsigned char> bytes(8_MiB, 0x3C); // every codec needs less than was prepared: 0.7 of them
    write_bytes(machine.driver, same, bytes);
    const std::size_t before = mapped();
    saver.prepare("packed");
    const std::size_t prepared = mapped();
    CHECK(prepared > before);
    CHECK(prepared <= before + 8_MiB);
    check_books(saver, machine.driver);
    const std::uint64_t maps = machine.driver.calls(Call::map_host);
    CHECK(saver.pause("packed").released_bytes == prepared);
    CHECK(machine.driver.calls(Call::map_host) == maps);
    CHECK(mapped() + machine.driver.handle_bytes() == 0);
    (void)saver.resume("packed");
    CHECK(mapped() > 8_MiB); // kept for the next pause
    (void)saver.trim();
    CHECK(mapped() == 8_MiB);
    check_books(saver, machine.driver);
    CHECK(read_bytes(machine.driver, same, 8_MiB) == bytes);
    (void)saver.pause("packed");
    (void)saver.resume("packed", {.bytes = Discard{}});
    CHECK(mapped() == 8_MiB);
    (void)saver.arena("plain", Discard{}).allocate(8_MiB);
    (void)saver.pause("plain", {.bytes = compressed(HostBackup{})});
    machine.driver.fail({.call = Call::release, .lasting = Lasting::onwards});
    (void)saver.resume("plain"); // the scratch of that pause stays
    CHECK(machine.driver.handle_bytes() > 16_MiB);
    check_books(saver, machine.driver);
    machine.driver.heal();
}

TEST_CASE_FIXTURE(OnPacked,
                  "compressed: prepare and a later save use the host memory of the first save" * on_machines) {
    if (no_codec_here()) return;
    write(1);
    pause_and_resume(saver, "packed");
    const std::size_t once = machine.driver.host_bytes();
    write(2);
    saver.prepare("packed");
    pause_and_resume(saver, "packed");
    CHECK(machine.driver.host_bytes() == once);
    CHECK(block->whole());
    block.reset();
    saver.prepare("packed");
    CHECK(machine.driver.host_bytes() < once);
}

TEST_CASE_FIXTURE(OnSaver, "compressed: what is given back with the backup needs no scratch" * on_machines) {
    if (no_codec_here()) return;
    const Arena arena = saver.arena("packed", compressed(HostBackup{.retain = false, .threads = 2}));
    const Filled block{machine.driver, arena, 1_MiB + 512_KiB, 1, thin};
    std::array<std::size_t, 2> need{};
    for (std::size_t& each : need) {
        saver.pause("packed");
        each = saver.bytes_to_resume("packed");
        saver.resume("packed");
    }
    CHECK(need[1] == need[0]);
}

TEST_CASE_FIXTURE(OnHostSaver, "compressed: bytes that do not shrink take no more host memory than they have") {
    const Filled block{machine.driver, saver.arena("packed", Compressed<HostBackup>{}), 8_MiB, 1, noise}; // one piece
    pause_and_resume(saver, "packed");
    CHECK(saver.usage().host_bytes() < 10_MiB);
    const Filled large{machine.driver, saver.arena("file", Compressed<FileBackup>{in_file()}), 12_MiB, 2, noise};
    pause_and_resume(saver, "file"); // one piece, which is larger than a buffer
    CHECK((block.whole() && large.whole()));
}

TEST_CASE_FIXTURE(OnPacked, "compressed: host memory that cannot be pinned is used all the same" * on_machines) {
    if (no_codec_here()) return;
    write(1);
    pause_and_resume(saver, "packed"); // the buffers that bytes pass through
    write(2);
    (void)arena().allocate(10_MiB);
    machine.driver.fail({.call = Call::pin_host, .lasting = Lasting::onwards, .kind = StatusKind::out_of_host_memory});
    CHECK_NOTHROW(saver.pause("packed"));
    CHECK(machine.driver.injected(Call::pin_host) != 0);
    CHECK_NOTHROW(saver.resume("packed"));
    machine.driver.heal();
    CHECK(block->whole());
}

TEST_CASE_FIXTURE(OnPacked, "compressed: a resume needs no scratch if there is some already" * on_machines) {
    if (no_codec_here()) return;
    write(1);
    saver.pause("packed");
    CHECK(saver.bytes_to_resume("packed") > 8_MiB);
    (void)arena().allocate(8_MiB);
    saver.prepare("packed"); // scratch for the block that is not paused: as much
    CHECK(saver.bytes_to_resume("packed") == 8_MiB);
    CHECK(saver.resume("packed").mapped_bytes == 8_MiB);
    CHECK(block->whole());
}

TEST_CASE_FIXTURE(OnPacked, "compressed: on a full device bytes are saved uncompressed, reported once" * on_machines) {
    if (no_codec_here()) return;
    write(1);
    const auto pause_on_full = [&] {
        machine.driver.fail({.call = Call::create, .kind = StatusKind::out_of_memory});
        (void)saver.pause("packed");
        CHECK(saver.bytes_to_resume("packed") == 8_MiB);
    };
    const auto saved = [&] { return row_of(saver, "packed").backed_up_bytes; };
    for (int cycle = 0; cycle < 2; ++cycle) {
        pause_on_full();
        CHECK(saved() == 8_MiB);
        (void)saver.resume("packed");
        CHECK(block->whole());
    }
    REQUIRE(told.texts(EventKind::fell_back).size() == 1);
    CHECK(contains(told.texts(EventKind::fell_back)[0], "saved uncompressed"));
    (void)saver.pause("packed");
    CHECK(saved() < 6_MiB);
    (void)saver.resume("packed");
    CHECK(block->whole());
    (void)saver.trim("packed");
    pause_on_full(); // no room for what was coded before
}

TEST_CASE("compressed: a resume that has room for its pages alone is out of memory, and changes nothing") {
    const Checked machine{HostDriver{16_MiB}};
    MemorySaver saver{machine.driver};
    const Filled block{machine.driver, saver.arena("packed", compressed(HostBackup{.threads = 2})), 8_MiB, 1, thin};
    (void)saver.pause("packed");
    const std::size_t need = saver.bytes_to_resume("packed");
    REQUIRE(need > 8_MiB);
    REQUIRE(need <= 16_MiB);
    {
        const Buffer<char> rest{saver.arena("other"), 8_MiB};
        const auto error = thrown<OutOfMemory>([&] { (void)saver.resume("packed"); });
        CHECK(error.needed_bytes() == need);
        CHECK(contains(error.what(), "needs " + format_bytes(need) + ", 8.00 MiB are free"));
        CHECK(row_of(saver, "packed").state == "paused");
        CHECK(row_of(saver, "packed").mapped_bytes == 0);
    }
    (void)saver.resume("packed");
    CHECK(block.whole());
    check_books(saver, machine.driver);
}

TEST_CASE("compressed: damaged bytes are found, and the tag stays paused" * on_machines) {
    if (no_codec_here()) return;
    const auto run = [](auto policy) {
        const Checked machine;
        MemorySaver saver{machine.driver};
        const Arena arena = saver.arena("packed", policy);
        const Filled block{machine.driver, arena, 4_MiB, 1, thin};
        (void)saver.pause("packed");
        REQUIRE(policy.parts->seen->units.size() == 4);
        CHECK(policy.parts->codec->with_rows == 2); // two pieces of two chunks
        for (const std::size_t i : {std::size_t{0}, std::size_t{3}}) {
            policy.damage(i);
            check_says<BackupDamaged>("tag \"packed\"", [&] { (void)saver.resume("packed"); });
            CHECK(row_of(saver, "packed").state == "paused");
            CHECK_THROWS_AS((void)saver.backup_view(block.data(), 4_MiB), BackupDamaged);
            CHECK(row_of(saver, "packed").mapped_bytes == 0);
            policy.damage(i);
        }
        (void)saver.resume("packed");
        CHECK(block.whole());
    };
    run(Watched<HostBackup>{{.threads = 2}});
    run(Watched<HostBackup>{pageable()});
    run(Watched<FileBackup>{in_file()});
}

TEST_CASE("compressed: a comparison finds damaged bytes, and may have no host memory" * on_machines) {
    if (no_codec_here()) return;
    const Checked machine;
    MemorySaver saver{machine.driver};
    const Watched<HostBackup> policy{{.refresh = Refresh::once, .check = true, .threads = 2}};
    const Arena arena = saver.arena("packed", policy);
    const Filled block{machine.driver, arena, 4_MiB, 1, thin};
    pause_and_resume(saver, "packed");
    policy.damage(3);
    check_says<BackupDamaged>("tag \"packed\"", [&] { (void)saver.pause("packed"); });
    policy.damage(3);
    for (const unsigned nth : {1U, 3U, 5U}) {
        machine.driver.fail({.call = Call::map_host, .nth = nth, .kind = StatusKind::out_of_host_memory});
        (void)succeeds<OutOfHostMemory>([&] { (void)saver.pause("packed"); });
        machine.driver.heal();
        saver.resume("packed");
        CHECK(block.whole());
    }
    CHECK(saver.pause("packed").saved_bytes == 0);
}

TEST_CASE_FIXTURE(OnHostSaver, "compressed: memory for one buffer is enough") {
    const Filled block{machine.driver, saver.arena("packed", compressed(in_file())), 8_MiB, 1, thin};
    const std::uint64_t before = machine.driver.calls(Call::map_host);
    const auto both_asked = [&] { return machine.driver.calls(Call::map_host) >= before + 2; };
    machine.driver.on_call([&](const CallRecord& call) { // one thread copies while the other one asks for its buffer
        if (call.call != Call::copy_to_host && call.call != Call::copy_many) return;
        for (int i = 0; i < 10'000 && !both_asked(); ++i) std::this_thread::sleep_for(1ms);
    });
    machine.driver.fail(
        {.call = Call::map_host, .nth = 2, .lasting = Lasting::onwards, .kind = StatusKind::out_of_host_memory});
    (void)saver.pause("packed");
    machine.driver.on_call({});
    (void)saver.resume("packed");
    CHECK(both_asked());
    machine.driver.heal();
    CHECK(block.whole());
}

TEST_CASE_FIXTURE(OnHostSaver,
                  "compressed: threads that restore bytes do not wait for the device because of an earlier failure") {
    if (no_codec_here()) return;
    const Filled block{machine.driver, saver.arena("tag", compressed(in_file())), 2000}; // too small to be compressed
    saver.pause("tag");
    machine.driver.fail({.call = Call::copy_to_device});
    // Work may still use the memory that it lent.
    machine.driver.fail({.call = Call::drain, .lasting = Lasting::onwards});
    CHECK_THROWS_AS(saver.resume("tag"), Error);
    machine.driver.heal();
    std::atomic<int> drains{0};
    const std::thread::id here = std::this_thread::get_id();
    machine.driver.on_call([&](const CallRecord& made) {
        if (made.call == Call::drain && std::this_thread::get_id() != here) drains += 1;
    });
    saver.resume("tag");
    machine.driver.on_call({});
    CHECK(drains == 0); // a stream that waits for these bytes at a gate would wait forever
    CHECK(block.whole());
}

TEST_CASE("compressed: memory that copies may still reach is not released") {
    const AnyPolicy policy = each_of({AnyPolicy{compressed(HostBackup{})}, AnyPolicy{compressed(in_file())}});
    constexpr std::size_t bytes = 1_MiB; // one piece: no thread has memory that it does not use
    const transfer_test::Faulty driver = transfer_test::late_machine();
    const transfer_test::PlainBytes<> memory{driver, bytes};
    memory.write(1);
    const auto slot = policy.open(driver);
    const LiveSet live{{{memory.address(), bytes}}, [at = memory.address()] {
                           return std::vector<LiveBlock>{{at, bytes, 1}};
                       }};
    for (const Call call : {Call::wait, Call::drain}) driver.fail({.call = call, .lasting = Lasting::onwards});
    CHECK_THROWS_AS((void)slot->save(live).wait(), Error);
    const auto released = [&] {
        std::uint64_t calls = 0;
        for (const Call call : {Call::unmap, Call::release, Call::unpin_host, Call::unmap_host})
            calls += driver.calls(call);
        return calls;
    };
    CHECK_FALSE(slot->close().ok());
    CHECK(released() == 0);
    driver.heal();
    CHECK(slot->close().ok());
    CHECK(driver.host_bytes() + driver.handle_bytes() == 0);
}

TEST_CASE_FIXTURE(OnHost, "compressed: where many copies cannot be made at once they are made one at a time") {
    const Call fails = each_of({Call::copy_many, Call::copy_to_host, Call::copy_to_device});
    machine.driver.fail({.call = Call::copy_many, .lasting = Lasting::onwards, .kind = StatusKind::unsupported});
    MemorySaver saver{machine.driver};
    const Arena arena = saver.arena("packed", compressed(HostBackup{.threads = 2}));
    std::vector<Filled<MachineDriver>> blocks;
    for (std::uint64_t i = 0; i < 8; ++i) blocks.emplace_back(machine.driver, arena, 300'000, i, thin);
    const auto fail_in = [&](Call call, const std::function<void()>& act) { // the second of the copies of a piece
        if (call != fails) return;
        machine.driver.fail({.call = call, .nth = 2, .kind = StatusKind::other});
        CHECK_THROWS_AS(act(), DriverError);
    };
    const std::uint64_t before = machine.driver.calls(Call::copy_to_host);
    fail_in(Call::copy_to_host, [&] { (void)saver.pause("packed"); });
    (void)saver.pause("packed");
    CHECK(machine.driver.calls(Call::copy_to_host) >= before + blocks.size());
    fail_in(Call::copy_to_device, [&] { (void)saver.resume("packed"); });
    (void)saver.resume("packed");
    for (const auto& block : blocks) CHECK(block.whole());
    CHECK(machine.driver.calls(Call::copy_many) >= 2);
}

/// Host pages are adjacent, in allocation order. The machine refuses a copy that does not stay within one pin.
struct SideBySide : DeviceAround {
    using DeviceAround::DeviceAround;
    ~SideBySide() override { (void)::munmap(begin, size); }

    Status map_host(std::size_t bytes, void*& pages) noexcept override {
        pages = begin + used.fetch_add(bytes);
        return {};
    }
    Status unmap_host(void*, std::size_t) noexcept override { return {}; }

    static constexpr std::size_t size = 4_GiB;
    static constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    std::byte* begin = static_cast<std::byte*>(::mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, -1, 0));
    std::atomic<std::size_t> used{0};
};

TEST_CASE("compressed: bytes are moved out of one region of host memory at a time") {
    const HostWith<SideBySide> driver{256_MiB};
    MemorySaver saver{driver};
    const HostBackup host{.threads = 1};
    const Arena arena = saver.arena("tag", Compressed<HostBackup>{.policy = host, .piece_bytes = 2_MiB, .pieces = 1});
    Filled first{driver, arena, 1_MiB, 2, noise};
    const Filled rest{driver, arena, 4_MiB, 1, noise};
    saver.pause("tag");
    first.reset(); // so that the pieces of a restore differ from those of the save
    saver.resume("tag");
    CHECK(rest.whole());
}

TEST_CASE("HostBackup: bytes are moved out of one region of host memory at a time") {
    const HostWith<SideBySide> driver{256_MiB};
    MemorySaver saver{driver};
    const Arena arena = saver.arena("tag", HostBackup{.threads = 1});
    Filled first{driver, arena, 1_MiB, 3, noise};
    pause_and_resume(saver, "tag"); // the first region
    const Filled second{driver, arena, 1_MiB, 2, noise};
    REQUIRE(second.data() == first.data() + 1_MiB); // both are adjacent, there and here
    first.write(1);
    pause_and_resume(saver, "tag");
    CHECK((first.whole() && second.whole()));
}

TEST_CASE("compressed: the error for a missing library says how to get it") {
    struct Blind : DeviceAround {
        using DeviceAround::DeviceAround;
        [[nodiscard]] Features features() const noexcept override { return {}; }
    };
    MemorySaver saver{HostWith<Blind>{64_MiB}};
    CHECK(
        contains(text_of<Unavailable>([&] { (void)saver.arena("a", Compressed<HostBackup>{}); }), "no codec supports"));
    REQUIRE(::setenv("MEMSAVER_NVCOMP", "/nowhere/libnvcomp.so.6", 1) == 0);
    CHECK(contains(NvcompLibrary::load().problem, "/nowhere/libnvcomp.so.6"));
    const std::string how = text_of<Unavailable>([] { const NvcompCodec codec{HostDriver{64_MiB}, Coding::halves}; });
    CHECK(contains(how, "pip install nvidia-libnvcomp-cu13"));
    CHECK(contains(how, "MEMSAVER_NVCOMP"));
    REQUIRE(::unsetenv("MEMSAVER_NVCOMP") == 0);
}

TEST_CASE("compressed: options and names") {
    const Compressed<HostBackup> policy{};
    CHECK(policy == Compressed<HostBackup>{});
    CHECK(policy != Compressed<HostBackup>{.coding = Coding::bytes});
    CHECK(AnyPolicy{policy}.name() == "compressed");
    CHECK(contains(AnyPolicy{policy}.describe(), "of host, pinned"));
    CHECK(contains(AnyPolicy{policy}.describe(), "coded as halves"));
    static_assert(Backup<Compressed<FileBackup>> && Backup<Verified<Compressed<HostBackup>>> &&
                  Backup<Compressed<Verified<FileBackup>>>);
}

TEST_CASE("compressed: the host's codec restores any words, and finds and survives damage") {
    const HostDriver driver{64_MiB};
    const HostCodec codec{driver};
    OwnedStream stream;
    OwnedEvent mark;
    REQUIRE(stream.open(driver).ok());
    REQUIRE(mark.open(driver, stream.get()).ok());
    const Codec::Place place{stream.get(), mark.get(), {}};
    constexpr std::size_t words = 160; // two and a half groups
    const auto at = [](std::vector<std::uint64_t>& some, std::size_t bytes) {
        return Range{reinterpret_cast<Address>(some.data()), bytes};
    };
    for (const std::uint64_t step : {0U, 1U, 3U, 200U}) { // the same word all along, new ones, runs of three, zeros
        std::vector<std::uint64_t> plain(words);
        for (std::size_t i = 0; i < words; ++i) plain[i] = step == 0 ? 7 : i / step;
        Codec::Sizes sizes;
        REQUIRE(codec.measure(words * 8, 1, sizes).ok());
        std::vector<std::uint64_t> coded(sizes.coded / 8 + 1, 99); // and a word behind it
        Range from = at(plain, words * 8);
        Range to = at(coded, sizes.coded);
        std::uint32_t sum = 0;
        REQUIRE(codec.encode(place, {&from, 1}, {&to, 1}, {&sum, 1}).ok());
        CHECK(to.bytes <= sizes.coded);
        CHECK(to.bytes >= 3 * 8);
        CHECK(coded.back() == 99);
        std::vector<std::uint64_t> back(words + 1, 99);
        const Range here = at(back, words * 8);
        const auto decode = [&](const Range& what, std::uint32_t expected) {
            std::uint32_t found = 0;
            const Status status = codec.decode(place, {&what, 1}, {&expected, 1}, {&found, 1}, {&here, 1});
            CHECK(back.back() == 99);
            return status.ok() && found == expected;
        };
        CHECK(decode(to, sum));
        CHECK(std::equal(plain.begin(), plain.end(), back.begin()));
        CHECK(!decode(to, sum + 1));
        for (std::size_t i = 0; i < to.bytes / 8; ++i) { // with a valid checksum, but other words
            coded[i] = ~coded[i];
            CHECK(!decode(to, sum));
            (void)decode(to, HostCodec::checksum(coded.data(), to.bytes));
            coded[i] = ~coded[i];
        }
        const Range cut = at(coded, to.bytes - 8);
        (void)decode(cut, HostCodec::checksum(coded.data(), cut.bytes));
        CHECK(decode(to, sum));
    }
}

TEST_CASE("the host codec's checksum sees every change of one half of a word") {
    std::vector<std::uint32_t> sums(1U << 18U); // so many would collide in a sum that only mixes well
    for (const unsigned shift : {0U, 32U}) {
        for (std::size_t i = 0; i < sums.size(); ++i) {
            const std::array<std::uint64_t, 3> words{7, std::uint64_t{i} << shift, 0};
            sums[i] = HostCodec::checksum(words.data(), sizeof words);
        }
        std::sort(sums.begin(), sums.end());
        CHECK(std::adjacent_find(sums.begin(), sums.end()) == sums.end());
    }
}
} // namespace backup_compressed_test
