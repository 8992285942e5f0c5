// Tags that one process publishes and others map: in processes that are killed and stopped.
#include "memsaver/share/share.hpp"
#include "share/share_support.hpp"
#include "support/each_of.hpp"
#include "support/machines.hpp"

namespace share_publish_test {
using namespace test;
using namespace process_test;
using namespace share_support;

/// A process with a model to publish: two blocks, and one elsewhere of which readers get copies.
struct Engine {
    explicit Engine(const Place& place) : Engine{place, place.device()} {}
    Engine(const Place& place, const AnyDriver& device)
        : share{place.join({.name = "engine", .answer_within = 1s}, device)}, saver{share.driver()} {
        first = block("weights", 3 * page, 1);
        second = block("weights", page + 300, 2);
        scales = block("state", 1000, 3);
    }
    void* block(const char* tag, std::size_t bytes, int value) {
        void* const made = saver.arena(tag, HostBackup{}).allocate(bytes);
        std::memset(made, value, bytes);
        return made;
    }
    [[nodiscard]] PublishOptions options(std::string version = {}) const {
        return {std::move(version),
                {{"first", first, 3 * page},
                 {"second", second, page + 300},
                 {"scales", scales, 1000, PublishAccess::copied}}};
    }
    std::uint64_t publish(std::string version = {}) {
        return share.publish("model", saver, "weights", options(std::move(version)));
    }
    /// Writes what a byte of "second" is.
    [[nodiscard]] bool may_write(void* at) const {
        static const char two = 2; // the copy may come later
        return share.driver().copy_to_device(detail::as_address(at), &two, 1, {}).ok();
    }

    Share share;
    MemorySaver<> saver;
    void* first = nullptr;
    void* second = nullptr;
    void* scales = nullptr;
};

/// A process that attaches.
struct Reader {
    explicit Reader(const Place& place, ShareOptions options = {.name = "reader"})
        : Reader{place, place.device(), std::move(options)} {}
    Reader(const Place& place, const AnyDriver& device, ShareOptions options = {.name = "reader"})
        : share{place.join(std::move(options), device)}, saver{share.driver()} {}
    [[nodiscard]] Attached attach(const AttachOptions& options = {}) { return share.attach("model", saver, options); }

    Share share;
    MemorySaver<> saver;
};

/// Whether its bytes are those that an engine publishes.
bool right(const Attached& model) {
    return succeeds<PublicationDamaged>([&] { model.verify(); }) && all_are(model.at("first").data, 1, 3 * page) &&
           all_are(model.at("second").data, 2, page + 300) && all_are(model.at("scales").data, 3, 1000);
}

/// Does something at the next call of a kind.
void at_next(const FaultyDriver<HostDriver>& device, Call call, const std::function<void()>& act) {
    device.on_call([call, act, over = std::make_shared<std::atomic<bool>>(false)](const CallRecord& made) {
        if (made.call == call && !over->exchange(true)) act();
    });
}

/// A process that has published the model, and stays. Before the test itself has a share: with the thread sanitizer a
/// process that has threads cannot fork one that makes some.
Ready publisher_process(const Place& place) {
    return Ready{[&] {
        Engine engine{place};
        (void)engine.publish();
        stay();
    }};
}

/// A process that has attached the model, of which the bytes are right, and stays.
Ready reader_process(const Place& place) {
    return Ready{[&] {
        Reader reader{place};
        const Attached model = reader.attach();
        stay(right(model) ? 'r' : 'n');
    }};
}

/// Becomes memsaver-keeper, whose output is what a child says.
int become_keeper(const std::string& folder, const char* option = nullptr) {
    (void)::dup2(STDERR_FILENO, STDOUT_FILENO);
    const char* const last = option == nullptr ? nullptr : folder.c_str();
    (void)::execl(MEMSAVER_KEEPER, "memsaver-keeper", option == nullptr ? folder.c_str() : option, last, nullptr);
    return 7;
}

/// A socket for what a service tells systemd: sd_notify(3), sd_listen_fds(3).
struct Notified : InFolder {
    Notified() {
        address.sun_family = AF_UNIX;
        path.copy(address.sun_path, sizeof address.sun_path - 1);
        REQUIRE(::bind(notify.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    }
    const std::string path = place.folder + "/notify";
    const detail::ShareFd notify = owned(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
};

// What most cases begin with.
struct WithEngine : InFolder {
    Engine engine{place};
    detail::Keeper asking{folder, 3s}; ///< as another member would
};

/// An engine whose device does things at calls.
struct WithWatched : InFolder {
    const FaultyDriver<HostDriver> machine{place.device()};
    Engine engine{place, machine};
};

struct Published : WithEngine {
    Published() { (void)engine.publish(); }
};

struct WithModel : Published {
    Reader reader{place};
    const Attached model = reader.attach();
};

/// Whether the device is as it was before anybody used it, soon.
bool whole_soon(const Place& place) {
    return soon([&] { return free_bytes(place) == 64 * page; });
}

TEST_CASE("publish: the hash function is XXH64") {
    CHECK(detail::xxh64("", 0) == 0xEF46DB3751D8E999);
    CHECK(detail::xxh64("a", 1) == 0xD24EC4F1A98C6E5B);
    CHECK(detail::xxh64("abc", 3) == 0x44BC2CF5AD770999);
    const std::string text = "Nobody inspects the spammish repetition";
    CHECK(detail::xxh64(text.data(), text.size()) == 0xFBCEA83C8A378BF1);
}

TEST_CASE("publish: a model outlives its publisher as long as any process has it, and late readers get it from those") {
    const Place place;
    Ready publisher = publisher_process(place);
    Ready first = reader_process(place);
    publisher.kill_now();
    Ready second = reader_process(place);
    first.kill_now();
    CHECK(soon([&] { return free_bytes(place) == (64 - 4 - 1 - 1) * page; })); // with the reader's copies
    {
        Reader reader{place};
        const Attached model = reader.attach();
        CHECK(right(model));
        second.kill_now();
        CHECK(right(model));
    }
    CHECK(whole_soon(place));
    Reader late{place};
    check_says<Unavailable>("nothing is in this share", [&] { (void)late.attach(); });
}

TEST_CASE_FIXTURE(Published, "publish: readers share the pages, and each has copies of its own") {
    const std::size_t before = free_bytes(place);
    Reader one{place};
    Reader two{place};
    const Attached a = one.attach();
    const Attached b = two.attach();
    CHECK(before - free_bytes(place) <= 2 * 2 * page); // what was copied, a page each, perhaps one more
    std::memset(a.at("scales").writable(), 7, 1000);
    CHECK(all_are(engine.scales, 3, 1000));
    std::memset(engine.scales, 8, 1000);
    CHECK(all_are(b.at("scales").data, 3, 1000));
    b.verify();
}

TEST_CASE_FIXTURE(WithModel, "publish: a reader's pause takes its mapping away, and keeps what it wrote") {
    std::memset(model.at("scales").writable(), 7, 1000);
    const void* const address = model.at("first").data;
    for (int round = 0; round < 3; ++round) {
        (void)reader.saver.pause(model.tag());
        CHECK(reader.saver.bytes_to_resume(model.tag()) != 0);
        CHECK_THROWS_AS(model.verify(), Misuse);
        (void)reader.saver.resume(model.tag());
        CHECK(model.at("first").data == address);
        CHECK(all_are(model.at("first").data, 1, 3 * page));
        CHECK(all_are(model.at("scales").data, 7, 1000));
        model.verify();
    }
    CHECK(row_of(reader.saver, model.tag()).policy == "published");
    reader.saver.set_margin(64 * page); // shared pages take no memory
    (void)reader.saver.pause(model.tag());
    (void)reader.saver.resume(model.tag());
    reader.saver.drop(model.tag());
    CHECK(right(reader.attach()));
}

TEST_CASE_FIXTURE(Published, "publish: a reader's tag does what tags do") {
    Reader reader{place};
    MemorySaver<>& saver = reader.saver;
    const Attached model = reader.attach();
    const std::string& tag = model.tag();
    auto* const scales = static_cast<unsigned char*>(model.at("scales").writable());
    void* const other = saver.arena("other", HostBackup{}).allocate(5 * page);
    std::memset(other, 8, 5 * page);
    (void)saver.pause(tag);
    (void)saver.exchange("other", tag);
    CHECK(right(model));
    *scales = 5;
    (void)saver.exchange(tag, "other");
    CHECK(all_are(other, 8, 5 * page));
    {
        const Use use = saver.use(tag);
        CHECK(*scales == 5);
        CHECK(all_are(model.at("first").data, 1, 3 * page));
    }
    CHECK(saver.reclaim(64 * page).bytes() != 0);
    CHECK(saver.bytes_to_resume(tag) != 0);
    saver.resume_async(tag).wait();
    CHECK(*scales == 5);
    model.verify();
    saver.prepare(tag);
    saver.invalidate(tag);
    (void)saver.trim(tag);
    (void)saver.pause(tag, {.bytes = HostBackup{}}); // saves all of it, which it need not
    (void)saver.resume(tag);
    CHECK(*scales == 5);
    model.verify();
    (void)saver.pause(tag, {.bytes = FileBackup{.directory = "/tmp"}});
    (void)saver.resume(tag);
    CHECK(*scales == 5);
    (void)saver.pause(tag, {.bytes = Discard{.poison = 0xEE}}); // loses the copies, and only those
    (void)saver.resume(tag);
    CHECK(*scales == 0xEE);
    *scales = 5;
    model.verify();
    CHECK_THROWS_AS((void)saver.arena(tag).allocate(page), Misuse);
    (void)saver.pause();
    CHECK(static_cast<unsigned char>(*saver.backup_view(scales, 1).data()) == 5);
    const unsigned char six = 6;
    saver.write_backup(scales, &six, 1);
    (void)saver.resume();
    CHECK(*scales == 6);
    saver.forget_backup("other");
    model.verify();
}

TEST_CASE_FIXTURE(WithEngine, "publish: versions stand side by side") {
    const std::uint64_t old = engine.publish("1");
    CHECK(contains(text_of<Misuse>([&] { (void)engine.publish("1"); }), "is published already"));
    Engine next{place};
    std::memset(next.first, 9, 3 * page);
    const std::uint64_t fresh = next.publish("2");
    CHECK(old != fresh);
    Reader reader{place};
    const Attached first = reader.attach({.version = "1"});
    const Attached second = reader.attach();
    CHECK(first.tag() == "model@1");
    CHECK(second.tag() == "model@2");
    CHECK(all_are(first.at("first").data, 1, 3 * page));
    CHECK(all_are(second.at("first").data, 9, 3 * page));
    CHECK(first.hash() == old);
    CHECK(second.hash() == fresh);
    reader.saver.drop("model@1");
    CHECK(right(reader.attach({.version = "1", .hash = old})));
    CHECK(contains(text_of<Unavailable>([&] { (void)reader.attach({.version = "3"}); }), "model@1"));
    CHECK(contains(text_of<Unavailable>([&] { (void)reader.attach({.hash = old}); }), "has the hash"));
    CHECK_THROWS_AS((void)reader.attach({.version = "1"}), Misuse); // has it already
}

TEST_CASE_FIXTURE(WithEngine, "publish: the version that was published last is attached, whatever the clock says") {
    const auto made = publication_of("model");
    made->facts.version[0] = '1';
    made->facts.made = std::numeric_limits<std::int64_t>::max() - 1; // in the year 2262
    asking.keep(made);
    (void)engine.publish("2");
    Reader reader{place};
    CHECK(reader.attach().tag() == "model@2");
}

TEST_CASE_FIXTURE(WithWatched, "publish: the version whose publication ends last is attached, whichever began first") {
    Engine quick{place};
    at_next(machine, Call::copy_to_host, [&] { (void)quick.publish("quick"); });
    (void)engine.publish("slow");
    Reader reader{place};
    CHECK(reader.attach().tag() == "model@slow");
}

TEST_CASE_FIXTURE(WithEngine, "publish: names in any alphabet are found, and those of no bytes too") {
    PublishOptions options = engine.options();
    for (const char* const name : {"\xc3\xa9t\xc3\xa9", "zeta", "\xe5\xb1\x82", "a"})
        options.names.push_back({name, engine.first, 10});
    options.names.push_back({"no bytes", nullptr, 0});
    options.names.push_back({"no bytes to write", nullptr, 0, PublishAccess::copied});
    (void)engine.share.publish("model", engine.saver, "weights", options);
    Reader reader{place};
    const Attached model = reader.attach();
    for (const PublishedRange& each : options.names) CHECK(model.at(each.name).bytes == each.bytes);
    for (const AttachedRange& each : model.ranges()) CHECK(model.at(each.name).data == each.data);
    CHECK_NOTHROW(model.verify());
}

TEST_CASE_FIXTURE(WithEngine, "publish: the hash is of names and bytes, wherever they lie") {
    Engine same{place};
    const std::uint64_t hash = engine.publish("1");
    CHECK(hash == same.publish("2"));
    Engine again{place};
    PublishOptions options = again.options("3");
    std::reverse(options.names.begin(), options.names.end());
    CHECK(hash == again.share.publish("model", again.saver, "weights", options));
}

TEST_CASE_FIXTURE(WithWatched, "publish: a tag is not paused while ranges in it are copied for readers") {
    std::thread pausing;
    at_next(machine, Call::copy_to_host, [&] {
        pausing = std::thread{[&] { (void)engine.saver.pause("state"); }};
        std::this_thread::sleep_for(100ms);
    });
    CHECK_NOTHROW((void)engine.publish());
    pausing.join();
    Reader reader{place};
    CHECK(right(reader.attach()));
    engine.share.withdraw("model");
    std::thread resuming{[&] { // many times: neither waits for the other for ever
        for (int i = 0; i < 50; ++i) {
            (void)engine.saver.resume({"state", "weights"});
            (void)engine.saver.pause({"state", "weights"});
        }
    }};
    for (int i = 0; i < 50; ++i) {
        if (succeeds<Misuse>([&] { (void)engine.publish(std::to_string(i)); })) // unless it is paused
            engine.share.withdraw("model");
    }
    resuming.join();
}

TEST_CASE_FIXTURE(InFolder, "publish: a keeper that does not take a publication is reported") {
    const detail::ShareFd silent = folder.listen("keeper-silent");
    const Share share{place.device(), {.answer_within = 100ms, .folder = place.folder}};
    std::string told;
    MemorySaver<> saver{share.driver(), {.events = [&](const Event& event) { told += event.text + '\n'; }}};
    void* const block = saver.arena("weights").allocate(page);
    (void)share.publish("model", saver, "weights", {.names = {{"w", block, page}}});
    CHECK_MESSAGE(contains(told, "has not taken it"), told);
    check_says<Unavailable>("do not answer", [&] { (void)share.attach("other", saver); });
}

TEST_CASE_FIXTURE(WithWatched, "publish: many copied ranges are hashed together") {
    PublishOptions options = engine.options();
    for (int i = 0; i < 20; ++i) {
        const std::string name = "more " + std::to_string(i);
        options.names.push_back({name, engine.block("state", 100, i), 100, PublishAccess::copied});
    }
    const std::uint64_t before = machine.calls(Call::map_host);
    (void)engine.share.publish("model", engine.saver, "weights", options);
    CHECK(machine.calls(Call::map_host) - before < 5);
    Reader reader{place};
    const Attached model = reader.attach();
    CHECK(all_are(model.at("more 19").data, 19, 100));
    const std::vector<AttachedRange> ranges = model.ranges();
    REQUIRE(ranges.size() == 23);
    CHECK(ranges.front().name == "first");
    CHECK(ranges.front().bytes == 3 * page);
    CHECK(ranges.back().name == "second");
    CHECK(ranges.back().data == model.at("second").data);
}

TEST_CASE("publish: large ranges are hashed on several threads, and found wrong in each place") {
    const std::size_t bytes = 70_MiB;
    const HostDriver device{256_MiB};
    MemorySaver<> saver{device};
    auto* const block = static_cast<unsigned char*>(saver.arena("a").allocate(bytes));
    for (std::size_t i = 0; i < bytes; i += 4096) block[i] = static_cast<unsigned char>(i >> 12);
    const std::vector<Range> ranges{{detail::as_address(block), bytes - 100}, {detail::as_address(block) + 300, 20}};
    const auto right = detail::hashes_of(device, ranges);
    std::vector<std::uint64_t> pieces;
    for (std::size_t i = 0; i < bytes - 100; i += 64_KiB)
        pieces.push_back(detail::xxh64(block + i, std::min(std::size_t{64_KiB}, bytes - 100 - i)));
    CHECK(right[0] == detail::xxh64(pieces.data(), pieces.size() * sizeof(std::uint64_t)));
    for (const std::size_t at : {std::size_t{0}, bytes / 2 + 7, bytes - 101}) {
        block[at] ^= 1;
        CHECK(detail::hashes_of(device, ranges)[0] != right[0]);
        block[at] ^= 1;
    }
    block[bytes - 100] ^= 1; // behind its end
    CHECK(detail::hashes_of(device, ranges) == right);
}

TEST_CASE("publish: a kernel of the device makes the same hashes, and the host if there is none") {
    const std::size_t bytes = 4_MiB;
    const FaultyDriver device{HostDriver{64_MiB}};
    detail::OwnedPages pages;
    REQUIRE(pages.open(device, bytes).ok());
    {
        const detail::Window written{device, pages.get().handle, bytes, Rights::read_write};
        auto* const block = reinterpret_cast<unsigned char*>(written.address());
        for (std::size_t i = 0; i < bytes; ++i) block[i] = static_cast<unsigned char>(i * i >> 3);
    }
    const detail::Window window{device, pages.get().handle, bytes, Rights::read}; // as published pages are
    const Address at = window.address();
    const std::vector<Range> ranges{
        {at, bytes}, {at + 16, 200'000}, {at + 8, 200'000}, {at, 65'535}, {at + 32, 65'536}};
    const auto right = detail::hashes_of(device, ranges, bytes * 2);
    CHECK(device.calls(Call::run_kernel) == 0);
    CHECK(detail::hashes_of(device, ranges, 0) == right);
    CHECK(device.calls(Call::run_kernel) == 3); // not from an address that is no multiple of 16, nor less than 64 KiB
    device.fail({.call = Call::run_kernel, .lasting = Lasting::onwards, .kind = StatusKind::unsupported});
    CHECK(detail::hashes_of(device, ranges, 0) == right);
    device.heal();
    for (const Call call : {Call::run_kernel, Call::open_stream, Call::record, Call::wait}) {
        CAPTURE(call_name(call));
        device.fail({.call = call});
        CHECK_THROWS_AS((void)detail::hashes_of(device, ranges, 0), DriverError);
        device.heal();
    }
    device.fail({.call = Call::pin_host, .lasting = Lasting::onwards}); // no kernel reaches the buffer
    CHECK(detail::hashes_of(device, ranges, 0) == right);
}

TEST_CASE_FIXTURE(WithEngine, "publish: the published pages are read-only") {
    SUBCASE("a write ends the process, as on a device it ends the context") {
        Child writer{[&] {
            (void)std::signal(SIGSEGV, SIG_DFL); // not doctest's
            Engine mine{place};
            (void)mine.publish("mine");
            std::memset(mine.first, 9, 1);
        }};
        CHECK(writer.wait() != 0);
    }
    SUBCASE("so they are if a copied range of no bytes lies in them") {
        auto* const first = static_cast<char*>(engine.saver.arena("more", HostBackup{}).allocate(page));
        (void)engine.share.publish("more", engine.saver, "more",
                                   {.names = {{"w", first, page}, {"none", first + 256, 0, PublishAccess::copied}}});
        CHECK_FALSE(engine.may_write(first));
    }
    SUBCASE("so they are if a range in them was copied for an earlier version") {
        PublishOptions options = engine.options("1");
        options.names[1].access = PublishAccess::copied;
        (void)engine.share.publish("model", engine.saver, "weights", options);
        CHECK(engine.may_write(engine.second));
        (void)engine.publish("2");
        CHECK_FALSE(engine.may_write(engine.second));
    }
}

TEST_CASE_FIXTURE(WithModel, "publish: the published pages are given to nobody else") {
    Arena weights = engine.saver.arena("weights");
    SUBCASE("new blocks come from other pages, also after frees") {
        weights.deallocate(engine.second, already_idle);
        for (int i = 0; i < 8; ++i) std::memset(weights.allocate(page), 9, page);
        std::memset(weights.allocate(300), 9, 300);
    }
    SUBCASE("a pause and a resume bring back pages of the publisher's own") {
        pause_and_resume(engine.saver, "weights");
        CHECK(all_are(engine.first, 1, 3 * page));
        std::memset(engine.first, 9, 3 * page);
        std::memset(weights.allocate(page), 9, page);
    }
    SUBCASE("an exchange hands over none of them") {
        void* const other = engine.block("other", 3 * page, 5);
        engine.saver.pause("other");
        engine.saver.exchange("weights", "other");
        std::memset(other, 6, 3 * page);
        CHECK(right(model));
        engine.saver.exchange("other", "weights");
        CHECK(all_are(engine.first, 1, 3 * page));
    }
    SUBCASE("nor does it count on them") {
        const AnyDriver& driver = engine.share.driver();
        const std::size_t needed = align_down(memory_of(driver).free_bytes / 2, page);
        engine.block("other", needed, 5);
        engine.saver.pause("other");
        engine.block("rest", memory_of(driver).free_bytes - needed + page, 6);
        CHECK_THROWS_AS(engine.saver.exchange("weights", "other"), OutOfMemory);
        CHECK(weights.usage().state == "active"); // nothing has changed
    }
    SUBCASE("the tag can be published again, under another name") {
        CHECK(engine.share.publish("other", engine.saver, "weights", engine.options()) != 0);
        CHECK(right(reader.share.attach("other", reader.saver)));
    }
    CHECK(right(model));
}

TEST_CASE("publish: published pages that their publisher releases are not granted to waiting members") {
    const Place place;
    const auto join = [&](const char* name) { return place.join({.name = name, .trusted = true}); };
    const Share share = join("waits");
    MemorySaver<> waits{share.driver()};
    auto* const big = waits.arena("big", HostBackup{}).allocate(30 * page);
    std::memset(big, 4, 30 * page);
    (void)waits.pause();
    Engine engine{place};
    (void)engine.publish();
    Reader reader{place};
    const Attached model = reader.attach();
    (void)engine.block("own", 30 * page, 5);
    std::thread waiting{[&] { (void)waits.resume("big", {.room_within = 60s}); }};
    std::this_thread::sleep_for(30ms);
    SUBCASE("in a pause") { (void)engine.saver.pause("weights"); }
    SUBCASE("in a drop") { engine.saver.drop("weights"); }
    std::this_thread::sleep_for(30ms);
    (void)engine.saver.pause();
    waiting.join();
    CHECK(all_are(big, 4, 30 * page));
    std::memset(big, 9, 30 * page);
    CHECK(right(model));
}

TEST_CASE_FIXTURE(WithEngine, "publish: free space reads as zero for others") {
    Arena weights = engine.saver.arena("weights");
    void* const secret = engine.block("weights", 2 * page, 0x55);
    weights.deallocate(secret, already_idle);
    (void)engine.publish();
    Reader reader{place};
    const Attached model = reader.attach();
    const auto* const from = static_cast<const unsigned char*>(model.at("first").data);
    const std::size_t shared = row_of(reader.saver, model.tag()).mapped_bytes - page; // of the copies
    CHECK(shared >= 6 * page);
    CHECK(std::count(from, from + shared, 0x55) == 0);
}

TEST_CASE_FIXTURE(WithEngine, "publish: misuse is refused, and changes nothing") {
    using Spoil = void (*)(PublishOptions&);
    const std::pair<const char*, Spoil> wrong[] = {
        {"has no name", [](PublishOptions& o) { o.names.erase(o.names.begin()); }},
        {"two ranges have the name \"first\"", [](PublishOptions& o) { o.names[1].name = "first"; }},
        {"is not in a live block", [](PublishOptions& o) { o.names[0].bytes = 3 * page + 1000; }},
        {"has no name", [](PublishOptions& o) { o.names[0].bytes = 0; }},
        {"not bytes of live blocks", [](PublishOptions& o) { o.names[2].bytes = 3 * page; }},
        {"longer than 199 bytes", [](PublishOptions& o) { o.names[0].name = std::string(200, 'x'); }},
        {"longer than 63 bytes", [](PublishOptions& o) { o.version = std::string(64, 'x'); }}};
    const auto refused = [&](const char* why, const PublishOptions& options, const std::string& name = "model") {
        check_says<Misuse>(why, [&] { (void)engine.share.publish(name, engine.saver, "weights", options); });
    };
    for (const auto& [why, spoil] : wrong) {
        PublishOptions options = engine.options();
        spoil(options);
        refused(why, options);
    }
    refused("longer than 127 bytes", engine.options(), std::string(128, 'x'));
    CHECK_THROWS_AS((void)engine.share.publish("", engine.saver, "weights", engine.options()), Misuse);
    CHECK_THROWS_AS((void)engine.share.publish("model", engine.saver, "nothing", engine.options()), Misuse);
    (void)engine.saver.arena("empty");
    CHECK_THROWS_AS((void)engine.share.publish("model", engine.saver, "empty", {}), Misuse);
    MemorySaver<> stranger{place.device()};
    CHECK_THROWS_AS((void)engine.share.publish("model", stranger, "weights", {}), Misuse);
    CHECK_THROWS_AS((void)engine.share.attach("model", stranger), Misuse);
    for (const char* const tag : {"weights", "state"}) {
        engine.saver.pause(tag);
        refused("is paused", engine.options());
        engine.saver.resume(tag);
    }
    check_says<Unavailable>("is not published", [&] { engine.share.withdraw("model"); });

    std::memset(engine.first, 1, 3 * page); // as before
    (void)engine.publish();
    Reader reader{place};
    const Attached model = reader.attach();
    CHECK(right(model));
    check_says<Misuse>("is shared", [&] { (void)model.at("first").writable(); });
    check_says<Misuse>("nothing has the name", [&] { (void)model.at("third"); });
    CHECK_THROWS_AS((void)reader.share.publish("again", reader.saver, model.tag(), {}), Misuse);
}

TEST_CASE_FIXTURE(InFolder, "publish: two publishers of one name") {
    Engine one{place};
    Engine two{place};
    (void)one.publish();
    CHECK(contains(text_of<Misuse>([&] { (void)two.publish(); }), "is published already"));
    one.share.withdraw("model");
    (void)two.publish();
    const std::string full = "model@2";
    const detail::ShareFd lock = folder.lock(detail::xxh64(full.data(), full.size())); // as if it were publishing
    CHECK(contains(text_of<Misuse>([&] { (void)one.publish("2"); }), "another process is publishing"));
    (void)one.publish("3");
}

TEST_CASE_FIXTURE(OnPlace, "publish: a withdrawal frees the pages once the last reader has gone") {
    {
        std::optional<Engine> engine{std::in_place, place};
        (void)engine->publish("1");
        Reader reader{place};
        const Attached model = reader.attach();
        reader.share.withdraw("model"); // anybody may
        check_says<Unavailable>("not published", [&] { (void)reader.attach(); });
        engine.reset();
        CHECK(right(model));
        (void)reader.saver.pause(model.tag());
        (void)reader.saver.resume(model.tag());
        CHECK(right(model));
        reader.saver.drop(model.tag());
        CHECK(free_bytes(place) == 64 * page);
        check_says<Misuse>("was dropped", [&] { model.verify(); });
        Engine again{place};
        (void)again.publish("1");
        CHECK(right(reader.attach()));
    }
    CHECK(free_bytes(place) == 64 * page);
}

TEST_CASE_FIXTURE(WithModel, "publish: a reader whose saver is closed has no pages any more") {
    engine.share.withdraw("model");
    engine.saver.close();
    reader.saver.close();
    CHECK(free_bytes(place) == 64 * page);
}

TEST_CASE_FIXTURE(Published, "publish: what is withdrawn while a reader attaches is not published again by it") {
    const FaultyDriver<HostDriver> machine{place.device()};
    Reader reader{place, machine};
    at_next(machine, Call::import_pages, [&] { engine.share.withdraw("model"); });
    const Attached model = reader.attach();
    CHECK(right(model));
    CHECK_THROWS_AS((void)engine.share.attach("model", engine.saver), Unavailable);
    Engine other{place}; // the withdrawal of another one does not count
    (void)other.publish();
    (void)other.share.publish("other", other.saver, "state", {.names = {{"scales", other.scales, 1000}}});
    reader.saver.drop(model.tag());
    at_next(machine, Call::import_pages, [&] { other.share.withdraw("other"); });
    (void)reader.attach();
    CHECK(asking.list().size() == 1);
    other.share.withdraw("model");
    CHECK(asking.list().empty());
}

TEST_CASE_FIXTURE(Published, "publish: who has connected to a keeper and says nothing keeps nobody waiting") {
    detail::Vector<detail::ShareFd> silent;
    for (const std::string& keeper : folder.names("keep"))
        for (int i = 0; i < 40; ++i) silent.push_back(folder.connect(keeper.c_str()));
    REQUIRE(silent.size() == 40);
    CHECK(detail::Keeper{folder, 20s}.list().size() == 1); // the publisher waits a second for each
}

TEST_CASE_FIXTURE(InFolder, "publish: keepers that are stopped are passed by, and hear of a withdrawal later") {
    const Ready publisher = publisher_process(place);
    std::vector<std::unique_ptr<Ready>> stopped;
    for (int i = 0; i < 12; ++i) stopped.emplace_back(new Ready{reader_process(place)});
    for (const auto& each : stopped) share_support::stop(place, *each);
    Reader reader{place, {.answer_within = 400ms}};
    const auto before = std::chrono::steady_clock::now();
    CHECK(right(reader.attach()));
    reader.share.withdraw("model");
    CHECK(std::chrono::steady_clock::now() - before < 8s); // all at once, for 0.4 s each time
    CHECK_THROWS_AS((void)reader.share.attach("model", reader.saver), Error);
    for (const auto& each : stopped) each->kill(SIGCONT);
    const detail::Keeper asking{folder, 200ms};
    CHECK(soon([&] { return asking.list().empty(); }));
    for (const auto& each : stopped) each->kill(SIGKILL);
    publisher.kill(SIGKILL);
}

TEST_CASE_FIXTURE(InFolder, "publish: a withdrawal of which a stopped keeper cannot even hear later is refused") {
    const detail::ShareFd stopped = folder.listen("keeps-stopped");
    std::vector<detail::ShareFd> asking;
    const auto ask = [&] {
        asking.push_back(folder.connect("keeps-stopped"));
        return static_cast<bool>(asking.back());
    };
    const detail::Keeper keeper{folder, 20ms};
    keeper.withdraw("model"); // waits there
    while (ask()) REQUIRE(asking.size() < 1000);
    CHECK(contains(text_of<Unavailable>([&] { keeper.withdraw("model"); }), "can be told no more"));
    detail::Vector<std::string> silent;
    CHECK(keeper.list(&silent).empty());
    CHECK(silent.size() == 1);
}

TEST_CASE_FIXTURE(Published, "publish: who gets a publication during a withdrawal keeps it unless it is that one") {
    const bool that = either("that one", "another one");
    detail::Keeper keeper{folder, 3s};
    keeper.open();
    const std::uint64_t heard = keeper.heard();
    const detail::Keeper::Kept kept = keeper.get(asking.list()[0].id);
    asking.withdraw(that ? "model" : "another");
    keeper.keep_got(kept, heard);
    CHECK(keeper.keeps(*kept) != that);
}

TEST_CASE_FIXTURE(WithModel, "publish: bytes that somebody wrote are found") {
    model.verify();
    const detail::Keeper::Kept kept = asking.get(asking.list()[0].id);
    const HostDriver device = place.device();
    PageHandle pages;
    REQUIRE(device.import_pages(kept->descriptors[1].get(), pages).ok());
    const std::size_t bytes = detail::Manifest::read(*kept).parts[0];
    Address address = 0;
    REQUIRE(device.reserve(bytes, page, address).ok());
    REQUIRE(device.map(address, bytes, pages).ok());
    REQUIRE(device.allow_access(address, bytes).ok()); // nothing stops it
    *static_cast<unsigned char*>(detail::pointer_of(address + 5)) ^= 1;
    CHECK(contains(text_of<PublicationDamaged>([&] { model.verify(); }), "\"first\""));
    CHECK(device.unmap(address, bytes).ok());
    CHECK(device.release(pages).ok());
    CHECK(device.unreserve(address, bytes).ok());
}

TEST_CASE_FIXTURE(OnPlace, "publish: what a reader maps makes no room, and needs none") {
    Engine engine{place};
    (void)engine.share.publish("model", engine.saver, "weights",
                               {.names = {{"first", engine.first, 3 * page}, {"second", engine.second, page + 300}}});
    Reader reader{place};
    const Attached model = reader.attach();
    auto* const own = reader.saver.arena("own", HostBackup{}).allocate(8 * page);
    std::memset(own, 7, 8 * page);
    (void)reader.saver.use(model.tag()); // both are idle now, this one for longer
    (void)reader.saver.use("own");
    CHECK(reader.saver.reclaim(4 * page).bytes() == 8 * page);
    CHECK(reader.saver.arena("own").usage().state == "paused");
    CHECK(all_are(model.at("first").data, 1, 3 * page));

    (void)reader.saver.use("own");
    CHECK(reader.saver.pause(model.tag()).released_bytes == 0);
    CHECK(reader.saver.bytes_to_resume(model.tag()) == 0);
    const std::size_t free = free_bytes(place);
    void* const rest = engine.saver.arena("rest").allocate(free); // there is no room
    {
        const Use use = reader.saver.use(model.tag());
        CHECK(all_are(model.at("first").data, 1, 3 * page));
        CHECK(reader.saver.arena("own").usage().state == "active");
    }
    engine.saver.deallocate(rest);
}

TEST_CASE_FIXTURE(OnPlace, "publish: what is published makes no room unless a hook of its pause withdraws it") {
    Engine engine{place};
    (void)engine.publish();
    const std::size_t held = engine.saver.arena("weights").usage().mapped_bytes;
    (void)engine.block("own", 8 * page, 7);
    (void)engine.saver.use("weights"); // is idle for longer
    (void)engine.saver.use("own");
    Hook hook;
    SUBCASE("the next one does") {
        CHECK(engine.saver.reclaim(page).bytes() == 8 * page);
        CHECK(engine.saver.arena("own").usage().state == "paused");
    }
    SUBCASE("withdrawn") {
        hook = engine.saver.before_pause([&](const PauseEvent&) { engine.share.withdraw("model"); });
        CHECK(engine.saver.reclaim(page).bytes() == held);
        CHECK(engine.saver.arena("own").usage().state == "active");
    }
    CHECK(engine.saver.arena("weights").usage().state == "paused");
}

TEST_CASE_FIXTURE(OnPlace,
                  "publish: a process that may not write a file as large as the manifest is told so, and not ended") {
    Child publisher{[&] {
        Engine own{place};
        {
            const Limit small{RLIMIT_FSIZE, 500};
            say(contains(text_of<Error>([&] { (void)own.publish(); }), "RLIMIT_FSIZE") ? 'y' : 'n');
        }
        std::memset(own.first, 1, 3 * page); // is its own
        (void)own.publish();
    }};
    CHECK(publisher.outcome() == "y0");
}

TEST_CASE("publish: a process without descriptors says so, its tag stays its own" * doctest::skip(test::sanitized)) {
    const Place place;
    Engine engine{place};
    (void)engine.publish();
    const auto limited = [&](auto act) {
        Child child{[&] {
            Engine own{place};
            const int next = ::dup(0);
            (void)::close(next);
            int failures = 0;
            bool good = false;
            for (int more = 0; !good; ++more) { // each point at which there are no more
                try {
                    const Limit few{RLIMIT_NOFILE, static_cast<std::size_t>(next + more)};
                    act(own);
                    good = true;
                } catch (const Error& error) {
                    failures += 1;
                    for (const char* const wrong : {"not published", "withdrawn", "another process"})
                        if (contains(error.what(), wrong)) failures = -1000;
                }
                std::memset(own.first, 1, good ? 0 : 3 * page);
            }
            say(failures > 3 ? 'y' : 'n');
        }};
        CHECK(child.outcome() == "y0");
    };
    limited([](Engine& own) { (void)own.publish("mine"); });
    limited([](Engine& own) { (void)own.share.attach("model", own.saver); });
    limited([&](Engine& /*own*/) {
        const Share late{place.device(), {.answer_within = 20ms, .folder = place.folder}};
    });
}

TEST_CASE_FIXTURE(OnPlace, "publish: memsaver-keeper keeps what is and what will be published, until it is withdrawn") {
    std::optional<Engine> engine{std::in_place, place};
    (void)engine->publish("1");
    Ready keeper{[&] { return become_keeper(place.folder); }, 'm'}; // its line
    (void)engine->publish("2");
    Child list{[&] { return become_keeper(place.folder, "--list"); }};
    const std::string listed = list.rest();
    CHECK_MESSAGE(contains(listed, "model@1\t"), listed);
    CHECK_MESSAGE(contains(listed, "model@2\t"), listed);
    CHECK(list.wait() == 0);
    engine.reset();
    {
        Reader reader{place};
        const Attached one = reader.attach({.version = "1"});
        CHECK(right(one));
        CHECK(right(reader.attach({.version = "2"})));
    }
    CHECK(free_bytes(place) <= 59 * page);
    {
        Reader reader{place};
        CHECK(right(reader.attach()));
        reader.share.withdraw("model");
    }
    CHECK(whole_soon(place));
    Engine another{place};
    (void)another.publish("3");
    keeper.kill(SIGTERM);
    CHECK(keeper.wait() == 0);
    Child refused{[] { return become_keeper("/no/such/folder"); }};
    CHECK(contains(refused.rest(), "cannot use the folder"));
    CHECK(refused.wait() == 1);
}

TEST_CASE_FIXTURE(Notified, "publish: memsaver-keeper as a service leaves what it keeps with systemd") {
    std::map<std::string, int> stored; // no ShareFd, which a child does not have
    int ready = 0;
    const auto hear_until = [&](auto holds) {
        CHECK(soon([&] {
            std::array<char, 300> text{};
            alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
            detail::Vector<detail::ShareFd> came;
            for (int flags = 0; detail::receive_with_descriptors(notify.get(), {text.data(), text.size() - 1},
                                                                 control.data(), control.size(), came, flags) > 0;
                 text.fill('\0'), came.clear()) {
                const std::string said = text.data();
                const std::string name = said.substr(std::min(said.find("FDNAME=") + 7, said.size()));
                if (said == "READY=1") ready += 1;
                if (contains(said, "FDSTORE=1\nFDPOLL=0\n") && came.size() == 1)
                    CHECK(stored.emplace(name, ::fcntl(came.front().get(), F_DUPFD_CLOEXEC, 0)).second);
                else if (contains(said, "FDSTOREREMOVE=1\n") && stored.contains(name))
                    (void)::close(stored.extract(name).mapped());
            }
            return holds();
        }));
    };
    const auto start = [&] {
        return Child{[&] {
            std::string names;
            std::vector<int> passed;
            for (const auto& [name, descriptor] : stored) {
                names += (names.empty() ? "" : ":") + name;
                passed.push_back(::fcntl(descriptor, F_DUPFD_CLOEXEC, 100));
            }
            for (std::size_t i = 0; i < passed.size(); ++i) (void)::dup2(passed[i], 3 + static_cast<int>(i));
            (void)::setenv("NOTIFY_SOCKET", path.c_str(), 1);
            (void)::setenv("LISTEN_PID", std::to_string(::getpid()).c_str(), 1);
            (void)::setenv("LISTEN_FDNAMES", names.c_str(), 1);
            return become_keeper(place.folder);
        }};
    };
    std::size_t all = 0; // that are stored for a publication
    {
        Child keeper = start();
        hear_until([&] { return ready == 1; });
        Engine engine{place};
        (void)engine.publish("1");
        all = detail::Keeper{folder, 3s}.list()[0].descriptors + 1;
        hear_until([&] { return stored.size() == all; });
        engine.share.withdraw("model");
        hear_until([&] { return stored.empty(); });
        (void)engine.publish("2");
        hear_until([&] { return stored.size() == all; });
        keeper.kill_now();
    }
    CHECK(free_bytes(place) <= 60 * page);
    stored.emplace("0-1", ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0)); // of one that is not whole
    for (const auto& [name, descriptor] : std::map{stored})            // and one under another's name
        if (!name.starts_with("0-"))
            stored.emplace("7" + name.substr(name.find('-')), ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
    {
        Child keeper = start();
        hear_until([&] { return ready == 2; });
        CHECK(stored.size() == all);
        for (auto& [name, descriptor] : stored) (void)::close(std::exchange(descriptor, -1));
        {
            Reader reader{place};
            CHECK(right(reader.attach({.version = "2"})));
            reader.share.withdraw("model");
            hear_until([&] { return stored.empty(); });
        }
        CHECK(whole_soon(place));
        keeper.kill(SIGTERM);
        CHECK(keeper.wait() == 0);
    }
}

TEST_CASE_FIXTURE(InFolder, "publish: memsaver-keeper lives on when nobody can hear what it says") {
    Child keeper{[&] {
        int gone[2];
        if (::pipe(gone) != 0 || ::dup2(gone[1], STDERR_FILENO) < 0 || ::close(gone[0]) != 0) return 8;
        (void)::close(gone[1]);
        (void)::setenv("NOTIFY_SOCKET", "/nowhere", 1); // it says that
        return become_keeper(place.folder);
    }};
    CHECK(soon([&] { return !folder.names("keeper").empty(); }));
    std::this_thread::sleep_for(50ms);
    keeper.kill(SIGTERM);
    CHECK(keeper.wait() == 0);
}

TEST_CASE_FIXTURE(Notified, "publish: memsaver-keeper does not wait for a systemd that hears nothing") {
    const detail::ShareFd full = owned(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    REQUIRE(::connect(full.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    while (::send(full.get(), "x", 1, 0) == 1) {
    }
    Child keeper{[&] {
        (void)::setenv("NOTIFY_SOCKET", path.c_str(), 1);
        return become_keeper(place.folder);
    }};
    CHECK(keeper.next() == 'm'); // after a second
    keeper.kill(SIGTERM);
    CHECK(keeper.wait() == 0);
}

TEST_CASE_FIXTURE(OnPlace, "publish: a forked child has nothing that its parent published or attached") {
    {
        Engine engine{place};
        (void)engine.publish();
        Reader reader{place};
        const Attached model = reader.attach();
        Child child{[&] {
            const bool none = process_test::refused([&] { engine.share.withdraw("model"); }) &&
                              process_test::refused([&] { (void)reader.attach(); }) &&
                              process_test::refused([&] { model.verify(); });
            say(none ? 'y' : 'n');
        }};
        CHECK(child.outcome() == "y0");
    }
    CHECK(free_bytes(place) == 64 * page);
}

TEST_CASE_FIXTURE(Published, "publish: what strangers publish, and does not hold what it says, is ignored") {
    for (int kind = 0; kind < 8; ++kind) {
        CAPTURE(kind);
        const auto made = publication_of("noise", static_cast<std::uint64_t>(kind) + 1);
        made->facts.made = kind;
        detail::Manifest manifest;
        const bool sound = kind == 4 || kind == 7; // but its descriptor names no pages
        if (kind == 3 || sound) manifest.parts = {page};
        manifest.rows.emplace_back();
        manifest.rows[0].name[0] = 'a';
        manifest.rows[0].bytes = sound ? page : page + 1;
        if (kind == 6) manifest.parts = {std::uint64_t{1} << 63U, std::uint64_t{1} << 63U}; // overflows
        if (kind == 1 || kind == 5) made->descriptors.push_back(owned(::memfd_create("noise", MFD_CLOEXEC)));
        if (kind == 5) { // as many parts as overflow, too
            detail::ManifestHead head;
            head.parts = std::numeric_limits<std::uint64_t>::max();
            head.copied = 1;
            CHECK(::write(made->descriptors[0].get(), &head, sizeof head) == sizeof head);
        }
        if (kind != 0 && made->descriptors.empty()) made->descriptors.push_back(manifest.write({}));
        for (std::size_t i = 0; i < manifest.parts.size(); ++i)
            made->descriptors.push_back(owned(::memfd_create("noise", MFD_CLOEXEC)));
        made->facts.hash = manifest.hash() + (kind == 7 ? 1 : 0);
        made->facts.descriptors = made->descriptors.size();
        asking.keep(made);
        Reader reader{place};
        if (kind == 4) {
            CHECK_THROWS_AS((void)reader.share.attach("noise", reader.saver), Error);
        } else {
            CHECK_THROWS_AS((void)reader.share.attach("noise", reader.saver), Unavailable);
        }
        CHECK(right(reader.attach()));
        asking.withdraw("noise");
    }
}

TEST_CASE_FIXTURE(OnPlace, "publish: each driver call fails, and the tag is its publisher's as before") {
    struct Fixture {
        explicit Fixture(const Place& place) : driver{place.device()}, engine{place, driver} {}
        FaultyDriver<HostDriver> driver;
        Engine engine;
    };
    const auto verify = [&](Fixture& f, const SweepPoint& point) {
        INFO(point.text());
        Engine& engine = f.engine;
        if (point.error) {
            if (point.failure.lasting == Lasting::onwards) { // it could not make them writable again, and said so
                pause_and_resume(engine.saver, "weights");
            }
            std::memset(engine.first, 1, 3 * page); // still its own
            std::memset(engine.second, 2, page + 300);
            Reader reader{place};
            CHECK_THROWS_AS((void)reader.attach(), Unavailable);
            (void)engine.publish();
        }
        Reader reader{place};
        const Attached model = reader.attach();
        CHECK(right(model));
    };
    for (const Lasting lasting : {Lasting::once, Lasting::onwards}) {
        CHECK(sweep(
                  Failure{.lasting = lasting}, [&] { return Fixture{place}; },
                  [](Fixture& f) { (void)f.engine.publish(); }, verify) > 20);
    }
    // After an earlier version, which may have left pages writable for its copies.
    for (const bool copied : {false, true}) {
        const auto again = [&] {
            Fixture f{place};
            PublishOptions options = f.engine.options("1");
            if (copied) options.names[1].access = PublishAccess::copied;
            (void)f.engine.share.publish("model", f.engine.saver, "weights", options);
            return f;
        };
        const auto rights = [&](Fixture& f, const SweepPoint& point) {
            INFO(point.text());
            if (point.injected != 0 && !point.error) return; // said, not thrown
            CHECK(f.engine.may_write(f.engine.second) == (copied && point.error));
        };
        CHECK(sweep(
                  Failure{}, again, [](Fixture& f) { (void)f.engine.publish("2"); }, rights) > 20);
    }
    CHECK(free_bytes(place) == 64 * page);
}

TEST_CASE_FIXTURE(Published, "publish: each driver call of an attach fails, and the next attach works") {
    struct Fixture {
        explicit Fixture(const Place& place) : driver{place.device()}, reader{place, driver} {}
        FaultyDriver<HostDriver> driver;
        Reader reader;
    };
    const auto verify = [](Fixture& f, const SweepPoint& point) {
        INFO(point.text());
        for (const ArenaUsage& row :
             f.reader.saver.usage()) // attached, or in part and not dropped as calls still failed
            if (row.tag == "model") f.reader.saver.drop("model");
        const Attached model = f.reader.attach();
        CHECK(right(model));
    };
    for (const Lasting lasting : {Lasting::once, Lasting::onwards}) {
        CHECK(sweep(
                  Failure{.lasting = lasting}, [&] { return Fixture{place}; },
                  [](Fixture& f) { (void)f.reader.attach(); }, verify) > 15);
    }
    // Likewise a pause and a resume: either it is done, or all is as before, and the next one works.
    for (const int which : {0, 1, 2, 3}) {
        const bool resumes = which % 2 != 0;
        const Lasting lasting = which < 2 ? Lasting::once : Lasting::onwards;
        struct Attaching : Fixture {
            Attaching(const Place& place, bool away) : Fixture{place}, model{reader.attach()} {
                if (away) (void)reader.saver.pause(model.tag());
            }
            Attached model;
        };
        CHECK(sweep(
                  Failure{.lasting = lasting},
                  [&] {
                      return Attaching{place, resumes};
                  },
                  [&](Attaching& f) {
                      (void)(resumes ? f.reader.saver.resume(f.model.tag()) : f.reader.saver.pause(f.model.tag()));
                  },
                  [&](Attaching& f, const SweepPoint& point) {
                      INFO(point.text());
                      (void)f.reader.saver.pause(f.model.tag());
                      (void)f.reader.saver.resume(f.model.tag());
                      CHECK(right(f.model));
                  }) > 3);
    }
}

TEST_CASE_FIXTURE(InFolder, "publish: of publishers that are killed no socket stays, nor a page") {
    for (int round = 0; round < 10; ++round) {
        publisher_process(place).kill_now();
    }
    CHECK(whole_soon(place));
    CHECK(folder.names("keep").size() <= 1); // of the last one
}

TEST_CASE_FIXTURE(WithEngine, "publish: one version is withdrawn without the others") {
    Engine other{place};
    (void)engine.publish("1");
    (void)other.publish("2");
    REQUIRE(asking.list().size() == 2);
    const detail::PublicationFacts gone = asking.list()[0];
    asking.withdraw("model", gone.id);
    REQUIRE(asking.list().size() == 1);
    CHECK(asking.list()[0].id != gone.id);
}
} // namespace share_publish_test
