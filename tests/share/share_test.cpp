// Several members on one device: in one process, and in processes that are killed and stopped.
#include "memsaver/share/share.hpp"
#include "share/share_support.hpp"
#include "support/each_of.hpp"
#include "support/machines.hpp"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

namespace share_share_test {
using namespace test;
using namespace process_test;
using namespace share_support;

/// Two members.
struct OnPair : OnPlace {
    Member a{place, {.name = "one"}};
    Member b{place, {.name = "two"}};
};

/// Publishes a tag with one block of a page.
std::uint64_t publish(const Share& share, MemorySaver<>& saver, void* block) {
    return share.publish("model", saver, "weights", {.names = {{"w", block, page}}});
}

/// Plain memory is always the same block. `freed` runs when it can be had again, before the call that frees it returns.
struct OneBlock final : DeviceAround {
    using DeviceAround::DeviceAround;
    Status allocate_plain(std::size_t /*bytes*/, Address& address) noexcept override {
        address = Address{1} << 40U;
        return {};
    }
    Status free_plain(Address /*address*/) noexcept override {
        if (auto act = std::exchange(freed, {})) act();
        return {};
    }

    std::function<void()> freed;
};

/// Takes long to create pages, and plain memory.
FaultyDriver<HostDriver> slow(HostDriver device) {
    const FaultyDriver<HostDriver> driver{std::move(device)};
    driver.on_call([](const CallRecord& made) {
        if (made.call == Call::create_shared || made.call == Call::allocate_plain) std::this_thread::sleep_for(60ms);
    });
    return driver;
}

/// Takes long to return a descriptor of pages.
struct SlowExport final : DeviceAround {
    using DeviceAround::DeviceAround;
    Status export_pages(PageHandle pages, int& descriptor) noexcept override {
        const Status status = DeviceAround::export_pages(pages, descriptor);
        exported = true;
        std::this_thread::sleep_for(100ms);
        return status;
    }

    std::atomic<bool> exported{false};
};

/// Whether this process has a file of a machine open twice: a simulated device keeps one descriptor of each.
bool has_pages_twice() {
    std::set<std::string> found;
    for (const auto& [descriptor, target] : descriptors())
        if (contains(target, "/dev/shm/memsaver-") && contains(target, "/p") && !found.insert(target).second)
            return true;
    return false;
}

/// Gives this process a view of its own of the file systems, with a disk of little room at `folder`. False if the
/// machine does not let it.
bool mount_small_disk(const std::string& folder) {
    const auto put = [](const char* path, const std::string& text) { std::ofstream{path} << text; };
    const auto same = [](unsigned number) { return std::to_string(number) + ' ' + std::to_string(number) + " 1"; };
    const std::string user = same(::geteuid());
    const std::string group = same(::getegid());
    if (::unshare(CLONE_NEWNS) != 0) {
        if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
        put("/proc/self/uid_map", user);
        put("/proc/self/setgroups", "deny");
        put("/proc/self/gid_map", group);
    }
    return ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           ::mount("none", folder.c_str(), "tmpfs", 0, "mode=0700,nr_inodes=10") == 0;
}

std::optional<Share> until_exit; // NOLINT(cert-err58-cpp): ends with the program

/// Waits until the share's table has so many rows.
bool come_to(const Share& share, std::size_t members) {
    return soon([&] { return share.members().size() == members; });
}

std::string table_of(const std::vector<ShareMember>& members) {
    std::string text;
    for (const ShareMember& each : members) text += printed(each) + '\n';
    return text;
}

/// Whether there is room for an allocation, now.
bool served(MemorySaver<>& saver, const char* tag, std::size_t bytes) {
    return succeeds<OutOfMemory>([&] { (void)saver.arena(tag).allocate(bytes); });
}

std::size_t mapped(MemorySaver<>& saver, const char* tag) { return row_of(saver, tag).mapped_bytes; }

TEST_CASE_FIXTURE(OnPair,
                  "share: a member without room gets memory that is idle elsewhere, and both restore their bytes") {
    const Lending lent_a = a.lend();
    const Lending lent_b = b.lend();
    void* const weights_a = fill(a, "weights", 40 * page, 1);
    void* const weights_b = fill(b, "weights", 40 * page, 2); // evicts a's
    CHECK(soon([&] { return mapped(a, "weights") == 0; }));   // its pages went before its pause had ended
    a.resume("weights");
    CHECK(soon([&] { return mapped(b, "weights") == 0; }));
    CHECK(all_are(weights_a, 1, 40 * page));
    b.resume("weights");
    CHECK(all_are(weights_b, 2, 40 * page));
}

TEST_CASE_FIXTURE(OnPlace, "share: no kernel copies, which would take turns with other members' kernels") {
    const FaultyDriver<HostDriver> device{place.device()};
    const Share share{device, {.folder = place.folder}};
    for (const bool shared : {false, true}) {
        CAPTURE(shared);
        MemorySaver<> saver{shared ? share.driver() : AnyDriver{device}};
        const HostBackup kept{.threads = 2, .kernel_copies = {.after = 1ns, .least_bytes = 1}};
        void* const block = saver.arena("weights", kept).allocate(4 * page);
        std::memset(block, 5, 4 * page);
        const std::uint64_t before = device.calls(Call::copy_by_kernel);
        for (int i = 0; i < 3; ++i) pause_and_resume(saver);
        CHECK(all_are(block, 5, 4 * page));
        CHECK((device.calls(Call::copy_by_kernel) == before) == shared);
    }
}

TEST_CASE_FIXTURE(OnPair, "share: who has used its memory since it took some is not taken for idle") {
    Member c{place, {.name = "three"}};
    const Lending lent_a = a.lend();
    const Lending lent_b = b.lend();
    void* const in_a = fill(a, "weights", 20 * page, 1);
    (void)fill(b, "weights", 20 * page, 2);
    REQUIRE(soon([&] { // both are heard
        const auto members = c.share.members();
        return std::count_if(members.begin(), members.end(), [](const auto& m) { return m.held_bytes != 0; }) == 2;
    }));
    std::this_thread::sleep_for(100ms); // more than a message takes
    { const Use use = a.use("weights"); }
    std::this_thread::sleep_for(5ms);
    (void)c.arena("big").allocate(30 * page);
    CHECK(mapped(a, "weights") == 20 * page);
    CHECK(soon([&] { return mapped(b, "weights") == 0; })); // its pages went before its pause had ended
    (void)c.arena("big").allocate(20 * page);               // there is no other one
    CHECK(soon([&] { return mapped(a, "weights") == 0; }));
    c.drop("big");
    a.resume();
    CHECK(all_are(in_a, 1, 20 * page));
}

TEST_CASE_FIXTURE(OnPlace, "share: memory in use, below the floor or of a saver that is not lent stays where it is") {
    Member a{place, {.name = "one", .floor = 20 * page}};
    Member b{place, {.name = "two"}};
    (void)fill(a, "first", 20 * page, 1);
    (void)fill(a, "second", 20 * page, 2);
    const auto b_lacks = [&] {
        check_says<OutOfMemory>("no member of the share gives so much",
                                [&] { (void)b.arena("big").allocate(30 * page); });
    };
    b_lacks();
    std::optional<Lending> lent{a.lend()};
    {
        const Use first = a.use("first");
        const Use second = a.use("second");
        b_lacks();
    }
    lent.reset();
    b_lacks();
    CHECK(mapped(a, "first") + mapped(a, "second") == 40 * page);
    lent.emplace(a.lend());
    (void)b.arena("big").allocate(30 * page);
    CHECK(soon([&] { return mapped(a, "first") + mapped(a, "second") == 20 * page; })); // its floor
    CHECK_THROWS_AS((void)b.arena("more").allocate(30 * page), OutOfMemory);
}

TEST_CASE_FIXTURE(OnPlace, "share: a tag that reaches below the floor of its member stays") {
    Member a{place, {.name = "one", .floor = 20 * page}};
    Member b{place, {.name = "two"}};
    (void)fill(a, "large", 32 * page, 1);
    (void)fill(a, "small", 8 * page, 2);
    const Lending lent = a.lend();
    CHECK(!served(b, "big", 40 * page));
    CHECK(served(b, "big", 30 * page));
    CHECK(mapped(a, "large") == 32 * page);
    CHECK(soon([&] { return mapped(a, "small") == 0; }));
}

TEST_CASE_FIXTURE(OnPlace, "share: a ceiling bounds what one member takes, whatever is free") {
    Member saver{place, {.name = "small", .ceiling = 10 * page}};
    void* const block = saver.arena("a").allocate(8 * page);
    check_says<OutOfMemory>("ceiling", [&] { (void)saver.arena("b").allocate(4 * page); });
    saver.deallocate(block);
    (void)saver.arena("b").allocate(10 * page); // its own unused memory is released first
}

TEST_CASE_FIXTURE(OnPlace, "share: threads that allocate at the same time stay below the ceiling of their member") {
    const Share share{slow(place.device()), {.ceiling = 10 * page, .folder = place.folder}};
    std::atomic<int> taken{0};
    Threads{4,
            [&](std::size_t i) {
                PageHandle pages;
                Address plain = 0;
                const Status status = i % 2 == 0 ? share.driver().create(4 * page, pages)
                                                 : share.driver().allocate_plain(4 * page, plain);
                taken += status.ok() ? 1 : 0;
            }}
        .join();
    CHECK(taken == 2);
    CHECK(share.members().at(0).held_bytes == 8 * page);
}

TEST_CASE_FIXTURE(OnPlace, "share: a grant that is used slowly stays") {
    bool kept = false;
    for (int attempt = 0; attempt < 5 && !kept; ++attempt) { // a busy host may stall this process for too long
        const Share share{slow(place.device()), {.folder = place.folder}};
        Member saver{place, {.name = "other", .priority = 1}};
        REQUIRE(share.driver().ask_for_room(50 * page, 0).ok());
        std::thread waiting{[&] { (void)saver.share.driver().ask_for_room(60 * page, 3'000'000'000); }}; // comes first
        CHECK(soon([&] { return share.members().at(1).waiting_bytes + share.members().at(0).waiting_bytes != 0; }));
        std::vector<PageHandle> all(5);
        kept = true;
        for (PageHandle& pages : all) kept = share.driver().create(10 * page, pages).ok() && kept; // 60 ms each
        kept = kept && share.members().at(0).held_bytes + share.members().at(1).held_bytes == 50 * page;
        waiting.join();
        for (const PageHandle pages : all) (void)share.driver().release(pages);
    }
    CHECK(kept);
}

TEST_CASE_FIXTURE(OnPlace, "share: members are listed, printed, and named where memory is lacking") {
    Member a{place, {.name = "one", .priority = 3, .floor = 2 * page, .ceiling = 60 * page}};
    const Share two = place.join({.name = "two"});
    (void)a.arena("x").allocate(5 * page);
    const Lending lent = a.lend();
    const std::vector<ShareMember> members = two.members();
    REQUIRE(members.size() == 2);
    const ShareMember& first = members[0].name == "one" ? members[0] : members[1];
    CHECK(first.process == ::getpid());
    CHECK(first.held_bytes >= 5 * page);
    CHECK(first.lends);
    const std::string text = printed(first);
    CHECK_MESSAGE(contains(text, "held, priority 3, floor 128.00 KiB, ceiling 3.75 MiB, lends"), text);
    MemorySaver<> b{two.driver()};
    const std::string lacking = text_of<OutOfMemory>([&] { (void)b.arena("y").allocate(63 * page); });
    CHECK_MESSAGE(contains(lacking, "members of the share: "), lacking);
    CHECK_MESSAGE(contains(lacking, "one "), lacking);
}

TEST_CASE_FIXTURE(OnPlace, "share: memsaver-top shows the members, and is none") {
    const auto shown = [](const std::string& folder, int code) {
        Child top{[&] {
            (void)::dup2(STDERR_FILENO, STDOUT_FILENO);
            (void)::execl(MEMSAVER_TOP, "memsaver-top", "--once", folder.c_str(), nullptr);
            return 7;
        }};
        const std::string text = top.rest();
        CHECK_MESSAGE(top.wait() == code, text);
        return text;
    };
    CHECK(contains(shown(place.folder + "/none", 1), "no such folder"));
    CHECK(contains(shown(place.folder, 1), "no members"));
    {
        Member a{place, {.name = "one\033[m", .priority = 3, .floor = 2 * page}};
        Member b{place, {.name = "two"}};
        void* const block = a.arena("weights").allocate(3 * page);
        (void)a.share.publish("model", a, "weights", {.names = {{"w", block, 3 * page}}});
        (void)b.arena("cache", HostBackup{}).allocate(40 * page);
        b.pause();
        (void)a.arena("own").allocate(30 * page);
        std::thread waiting{[&] { b.resume("cache", {.room_within = 60s}); }};
        std::string text;
        CHECK(soon([&] { return contains(text = shown(place.folder, 0), "2.50 MiB"); })); // what it waits for
        CHECK_MESSAGE(contains(text, "one?[m "), text);
        CHECK_MESSAGE(contains(text, " IDLE "), text);
        CHECK_MESSAGE(contains(text, "192.00 KiB"), text); // is published
        CHECK_MESSAGE(contains(text, std::to_string(::getpid())), text);
        const auto row = [&](const std::string& name) {
            for (const ShareMember& each : a.share.members())
                if (each.name == name) return each;
            return ShareMember{};
        };
        CHECK(a.share.members().size() == 2);
        CHECK(row("one\033[m").published_bytes == 3 * page);
        CHECK(row("two").waiting_bytes == 40 * page);
        a.share.withdraw("model");
        CHECK(soon([&] { return row("one\033[m").published_bytes == 0; }));
        a.drop("own");
        waiting.join();
    }
    CHECK(contains(shown(place.folder, 1), "no members"));
}

TEST_CASE_FIXTURE(OnPlace, "share: plain memory is covered like all other") {
    const Share share = place.join({.ceiling = 10 * page});
    const AnyDriver& driver = share.driver();
    Address plain = 0;
    CHECK(driver.allocate_plain(11 * page, plain).kind == StatusKind::out_of_memory);
    REQUIRE(driver.allocate_plain(9 * page, plain).ok());
    PageHandle pages;
    CHECK(driver.create(2 * page, pages).kind == StatusKind::out_of_memory);
    CHECK(share.members().at(0).held_bytes == 9 * page);
    REQUIRE(driver.free_plain(plain).ok());
    REQUIRE(driver.create(2 * page, pages).ok());
    CHECK(driver.release(pages).ok());
    CHECK(share.members().at(0).held_bytes == 0);
}

TEST_CASE_FIXTURE(OnPlace, "share: memory whose handle is reused while it is freed is counted right") {
    const auto machine = std::make_shared<OneBlock>(place.device());
    const Share share{AnyDriver{machine}, {.folder = place.folder}};
    const AnyDriver& driver = share.driver();
    Address first = 0;
    Address again = 0;
    REQUIRE(driver.allocate_plain(2 * page, first).ok());
    machine->freed = [&] { CHECK(driver.allocate_plain(3 * page, again).ok()); };
    CHECK(driver.free_plain(first).ok());
    REQUIRE(again == first);
    CHECK(share.members().at(0).held_bytes == 3 * page);
    CHECK(driver.free_plain(again).ok());
    CHECK(share.members().at(0).held_bytes == 0);
}

TEST_CASE_FIXTURE(OnPlace, "share: impossible options, devices, folders and savers are refused") {
    CHECK_THROWS_AS((void)place.join({.name = std::string(64, 'x')}), Misuse);
    CHECK_THROWS_AS((void)place.join({.floor = 2, .ceiling = 1}), Misuse);
    for (const std::chrono::milliseconds time : {-1ms, 1h + 1ms, std::chrono::milliseconds::max()})
        CHECK_THROWS_AS((void)place.join({.linger = time}), Misuse);
    CHECK_THROWS_AS((void)place.join({.answer_within = 0ms}), Misuse);
    check_says<Unavailable>("HostDriverOptions::machine", [] { const Share share{HostDriver{}}; });
    const auto refused = [&] { check_says<Unavailable>("only this user may use", [&] { (void)place.join({}); }); };
    REQUIRE(::chmod(place.folder.c_str(), 0750) == 0);
    refused();
    REQUIRE(::chmod(place.folder.c_str(), 0700) == 0);
    if (::geteuid() == 0) {
        REQUIRE(::chown(place.folder.c_str(), 1, 1) == 0);
        refused();
        REQUIRE(::chown(place.folder.c_str(), 0, 0) == 0);
    }
    check_says<Unavailable>("ENOENT", [&] { (void)Share{place.device(), {.folder = "/no/such/one"}}; });
    CHECK_THROWS_AS((Share{place.device(), {.folder = "/proc"}}), Unavailable);
    const Share share = place.join({});
    MemorySaver<> stranger{place.device()};
    CHECK_THROWS_AS((void)share.lend(stranger), Misuse);
    Member others{place, {}};
    check_says<Misuse>("not on the driver of this share", [&] { (void)share.lend(others); });
}

TEST_CASE_FIXTURE(OnPlace, "share: a folder that is full or read-only is refused, and who is in it goes on") {
    Child child{[&] {
        if (!mount_small_disk(place.folder)) return 9;
        std::optional<Share> share{place.join({.answer_within = 1s})};
        MemorySaver<> saver{share->driver()};
        void* const block = saver.arena("weights").allocate(page);
        for (int i = 0; std::ofstream{place.folder + '/' + std::to_string(i)}; ++i) {
        }
        const auto publishes = [&] { (void)publish(*share, saver, block); };
        const auto join = [&] { (void)place.join({.answer_within = 1s}); };
        std::string said = text_of<Unavailable>(publishes);
        std::memset(block, 1, page); // still its own
        join();                      // there is a leader
        saver.drop("weights");
        saver = MemorySaver<>{place.device()};
        share.reset();
        said += text_of<Unavailable>(join);
        if (::mount(nullptr, place.folder.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0) return 8;
        said += text_of<Unavailable>(join);
        (void)saver.arena("alone").allocate(60 * page);
        (void)!::write(STDERR_FILENO, said.data(), said.size());
        return 0;
    }};
    const std::string said = child.rest();
    const int code = child.wait();
    if (code == 9) {
        MESSAGE("skipped: this process may not mount a file system");
        return;
    }
    CHECK_MESSAGE(code == 0, said);
    CHECK_MESSAGE(contains(said, "cannot lock a file in the folder " + place.folder + ": ENOSPC"), said);
    CHECK_MESSAGE(contains(said, "cannot lead in the folder " + place.folder + ": ENOSPC"), said);
    CHECK_MESSAGE(contains(said, "cannot lead in the folder " + place.folder + ": EROFS"), said);
}

TEST_CASE_FIXTURE(OnPlace, "share: a folder in which nothing can be locked is refused") {
    Child child{[&] {
        const HostDriver device = place.device();
        std::array<sock_filter, 6> filter{{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                                           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fcntl, 0, 3),
                                           BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args) + 8),
                                           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, F_OFD_SETLK, 0, 1),
                                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EOPNOTSUPP),
                                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)}};
        const sock_fprog program{filter.size(), filter.data()};
        if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
            ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
            return 9;
        const std::string said = text_of<Unavailable>([&] {
            const Share share{device, {.answer_within = 50ms, .folder = place.folder}};
        });
        return contains(said, "cannot lead in the folder " + place.folder + ": EOPNOTSUPP") ? 0 : 1;
    }};
    const int code = child.wait();
    if (code == 9)
        MESSAGE("skipped: this process may not filter its calls");
    else
        CHECK(code == 0);
}

TEST_CASE_FIXTURE(OnPlace, "share: members whose folder is removed go on, and the next ones meet in a new one") {
    std::optional<Share> one{place.join({.name = "one"})};
    Member saver{place, {.name = "two", .answer_within = 1s}};
    void* const block = saver.arena("weights").allocate(page);
    std::filesystem::remove_all(place.folder);
    CHECK(saver.share.members().size() == 2);
    check_says<Unavailable>("ENOENT", [&] { (void)publish(saver.share, saver, block); });
    one.reset();
    std::memset(block, 1, page);
    (void)saver.arena("alone").allocate(60 * page); // nobody leads any more
    CHECK_THROWS_AS((void)saver.arena("more").allocate(60 * page), OutOfMemory);
    CHECK(saver.share.members().size() == 1);
    const Share three = place.join({.name = "three"});
    CHECK(three.members().size() == 1);
}

TEST_CASE_FIXTURE(OnPlace, "share: handles that were moved from, assigned and given long times") {
    Share share{place.device(), {.answer_within = std::chrono::milliseconds::max(), .folder = place.folder}};
    const Share moved = std::move(share);
    CHECK(share.members().size() == 1); // NOLINT(bugprone-use-after-move): a move copies
    MemorySaver<> saver{moved.driver()};
    void* const block = fill(saver, "weights", page, 1);
    Lending first = moved.lend(saver);
    Lending second;
    first = std::move(second); // ends it, although `second` lives
    CHECK(!moved.members().at(0).lends);
    (void)publish(moved, saver, block);
    Attached model = moved.attach("model", saver);
    const Attached other = std::move(model);
    CHECK(model.tag() == other.tag()); // NOLINT(bugprone-use-after-move)
}

TEST_CASE_FIXTURE(OnPlace, "share: members of two devices do not meet in one folder") {
    const Place other;
    const Share share = place.join({.name = "one"});
    check_says<Misuse>("share another device", [&] { (void)Share{other.device(), {.folder = place.folder}}; });
    CHECK(share.members().size() == 1);
}

TEST_CASE_FIXTURE(OnPlace, "share: who cleans old files from /tmp passes by a folder as long as it has members") {
    const detail::ShareFd folder = owned(::open(place.folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const auto may_clean = [&] { return ::flock(folder.get(), LOCK_EX | LOCK_NB) == 0; };
    {
        const Share share = place.join({});
        const Share another = place.join({});
        CHECK_FALSE(may_clean());
    }
    CHECK(may_clean());
}

TEST_CASE_FIXTURE(OnPlace, "share: a folder with a long name works") {
    std::string deep = place.folder;
    for (int i = 0; i < 3; ++i) {
        deep += '/' + std::string(100, 'd');
        REQUIRE(::mkdir(deep.c_str(), 0700) == 0);
    }
    const Share one{place.device(), {.folder = deep}};
    const Share two{place.device(), {.folder = deep}};
    CHECK(two.members().size() == 2);
}

TEST_CASE_FIXTURE(InFolder, "share: strangers on the leader's socket are rejected, and do no harm") {
    const Share share = place.join({.name = "leader"});
    const auto rejected = [&](const std::string& noise) { // the connection ends
        const detail::ShareFd stranger = folder.connect();
        REQUIRE(::send(stranger.get(), noise.data(), noise.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(noise.size()));
        char byte = 0;
        return ::recv(stranger.get(), &byte, 1, 0) <= 0;
    };
    detail::ShareMessage message;
    for (const std::size_t bytes : {std::size_t{1}, sizeof message, std::size_t{4000}})
        CHECK(rejected(std::string(bytes, 'z')));
    message.kind = detail::ShareMessage::Kind::want; // no hello first
    CHECK(rejected({reinterpret_cast<const char*>(&message), sizeof message}));
    CHECK(share.members().size() == 1);
}

TEST_CASE_FIXTURE(OnPlace, "share: memory of a member that is killed goes to waiting members") {
    Member saver{place, {.name = "survivor"}};
    void* const block = fill(saver, "weights", 30 * page, 4);
    saver.pause();
    Ready child{[&] {
        Member own{place, {.name = "victim"}};
        (void)own.arena("all").allocate(60 * page);
        stay();
    }};
    CHECK_THROWS_AS((void)saver.resume(), OutOfMemory);
    std::thread killer{[&] {
        std::this_thread::sleep_for(30ms);
        child.kill(SIGKILL);
    }};
    saver.resume("weights", {.room_within = 60s});
    killer.join();
    CHECK(child.wait() == -SIGKILL);
    CHECK(all_are(block, 4, 30 * page));
    CHECK(come_to(saver.share, 1));
}

// bench/waits measures how soon.
TEST_CASE("share: a killed leader's memory is granted when its process has ended" * doctest::skip(test::sanitized)) {
    for (int round = 0; round < 3; ++round) {
        const Place place;
        Ready old{[&] {
            const HostDriver device = place.device();
            PageHandle pages;
            say(device.create(60 * page, pages).ok() ? 'r' : 'n');
            wait_to_be_killed();
        }};
        const detail::ShareFolder folder{"", place.folder};
        detail::ShareFd lock = folder.lead();
        detail::ShareFd listener = folder.listen();
        REQUIRE(listener);
        std::thread leader{[&] { // in the place of the one that is killed, whose connections end before it does
            const detail::ShareFd process = owned(static_cast<int>(::syscall(SYS_pidfd_open, old.pid(), 0)));
            const detail::ShareMessage welcome{.kind = detail::ShareMessage::Kind::welcome};
            CHECK(detail::send_message(accepted(listener).get(), welcome, process.get()));
            listener.reset();
            lock.reset();
        }};
        const Share share = place.join({.name = "next"});
        leader.join();
        Doing waiting{
            [&] { CHECK(share.driver().ask_for_room(60 * page, std::chrono::nanoseconds{60s}.count()).ok()); }};
        std::this_thread::sleep_for(std::chrono::milliseconds{120 + 7 * round});
        old.kill_now();
    }
}

TEST_CASE_FIXTURE(OnPlace, "share: leaders that are killed one after the other are not taken for another version") {
    std::vector<std::unique_ptr<Child>> leaders;
    for (int i = 0; i < 12; ++i)
        leaders.push_back(std::make_unique<Child>([&] {
            const detail::ShareFolder folder{"", place.folder};
            detail::ShareFd lock;
            say('r');
            while (!lock) lock = folder.lead();
            const detail::ShareFd listener = folder.listen();
            pollfd polled{listener.get(), POLLIN, 0};
            (void)::poll(&polled, 1, -1);
            (void)::kill(::getpid(), SIGKILL); // before it has answered
        }));
    for (const auto& each : leaders) REQUIRE(each->next() == 'r');
    CHECK_NOTHROW((void)place.join({.name = "patient"}));
    for (const auto& each : leaders) (void)::kill(each->pid(), SIGKILL);
}

TEST_CASE_FIXTURE(OnPlace, "share: a leader that ends normally is replaced at once") {
    std::optional<Share> first{place.join({.name = "first"})};
    const Share second = place.join({.name = "second"});
    CHECK(second.members().size() == 2);
    first.reset();
    CHECK(come_to(second, 1));
    const Share third = place.join({.name = "third"});
    CHECK(third.members().size() == 2);
}

TEST_CASE_FIXTURE(OnPlace, "share: a child that is forked at any moment has no descriptor of a share") {
    std::vector<pid_t> children;
    {
        const detail::ShareFolder folder{"", place.folder};
        const detail::ShareFd listener = folder.listen("leader");
        std::atomic<bool> over{false};
        Threads threads{2, [&](std::size_t kind) {
                            while (!over) (void)(kind == 0 ? folder.lead() : folder.connect());
                        }};
        for (int i = 0; i < (test::sanitized ? 50 : 300); ++i) {
            const pid_t child = ::fork();
            if (child == 0) ::_exit(share_support::has_share_descriptors(place) ? 1 : 0);
            children.push_back(child);
        }
        over = true;
        threads.join();
    }
    int with = 0;
    for (const pid_t child : children) {
        int status = 0;
        REQUIRE(::waitpid(child, &status, 0) == child);
        with += status != 0 ? 1 : 0;
    }
    CHECK(with == 0);
}

TEST_CASE_FIXTURE(OnPlace, "share: a child that is forked while pages are exported has no descriptor of them") {
    const auto machine = std::make_shared<SlowExport>(place.device());
    const Share share{AnyDriver{machine}, {.folder = place.folder}};
    MemorySaver<> saver{share.driver()};
    void* const block = saver.arena("weights").allocate(page);
    std::thread publishing{[&] { (void)publish(share, saver, block); }};
    CHECK(soon([&] { return machine->exported.load(); }));
    Child child{[] { return has_pages_twice() ? 1 : 0; }};
    CHECK(child.wait() == 0);
    publishing.join();
}

TEST_CASE("share: a forked child keeps its own files, whatever number they have") {
    detail::ShareFd parents = owned(::dup(STDIN_FILENO));
    const int number = parents.get();
    Child child{[&] {
        if (::dup2(STDERR_FILENO, number) != number) return 2;
        const detail::ShareFd mine = owned(number);
        parents.reset();
        return ::fcntl(number, F_GETFD) >= 0 ? 0 : 1;
    }};
    CHECK(child.wait() == 0);
}

TEST_CASE_FIXTURE(OnPlace,
                  "share: a program that closes all descriptors has an error, and keeps the files that it opens then") {
    const bool closes = either("closes them", "may have none");
    Child child{[&] {
        ::alarm(30);
        std::optional<Share> share = place.join({.name = "a"});
        std::optional<MemorySaver<>> saver{share->driver()};
        void* const block = fill(*saver, "weights", page, 1);
        (void)publish(*share, *saver, block);
        const Lending lending = share->lend(*saver);
        if (closes && ::close_range(STDERR_FILENO + 1, ~0U, 0) != 0) return 2;
        const rlimit none{0, 0};
        if (!closes && ::setrlimit(RLIMIT_NOFILE, &none) != 0) return 2;
        std::vector<int> own;
        const std::size_t files = closes ? 50 : 0; // more than there were
        while (own.size() < files) own.push_back(::memfd_create("own", 0));
        const bool threw = !succeeds<Error>([&] { (void)saver->arena("more").allocate(page); });
        saver.reset();
        share.reset();
        for (const int each : own) {
            struct stat facts {};
            if (::fstat(each, &facts) != 0 || facts.st_size != 0) return 3;
        }
        return threw ? 0 : 4;
    }};
    CHECK(child.wait() == 0);
}

TEST_CASE_FIXTURE(OnPlace, "share: it has no eventfd, which it could not tell from the program's with that number") {
    const auto eventfds = [] {
        const auto all = descriptors();
        return std::count_if(all.begin(), all.end(),
                             [](const auto& each) { return contains(each.second, "[eventfd]"); });
    };
    const auto before = eventfds();
    Member member{place, {}};
    void* const block = fill(member, "weights", page, 1);
    (void)publish(member.share, member, block);
    CHECK(eventfds() == before);
}

TEST_CASE_FIXTURE(OnPlace, "share: a lender that takes longer to give than to answer is waited for") {
    Member a{place, {.name = "one", .answer_within = 1s}};
    Member b{place, {.name = "two", .answer_within = 1s}};
    (void)fill(a, "idle", 40 * page, 5);
    a.set_evictable("idle", true);
    const Lending lent = a.lend();
    const Hook hook = a.before_pause([](const PauseEvent&) { std::this_thread::sleep_for(1500ms); });
    CHECK(b.arena("weights").allocate(50 * page) != nullptr);
}

TEST_CASE("share: everything that lends may end while a hook of it runs, which has ended the lending") {
    const Place place;
    const Share two = place.join({.name = "two"});
    std::optional<Share> one{place.join({.name = "one"})};
    std::optional<MemorySaver<>> a{std::in_place, one->driver()};
    (void)fill(*a, "idle", 40 * page, 5);
    a->set_evictable("idle", true);
    std::optional<Lending> lent{one->lend(*a)};
    std::atomic<int> step{0};
    Hook hook = a->before_pause([&](const PauseEvent&) {
        lent.reset();
        step = 1;
        while (step.load() != 2) std::this_thread::sleep_for(1ms);
    });
    std::thread ends{[&] {
        while (step.load() != 1) std::this_thread::sleep_for(1ms);
        hook = {};
        a.reset();
        one.reset();
        step = 2;
    }};
    MemorySaver<> b{two.driver()};
    CHECK(b.arena("weights").allocate(50 * page) != nullptr);
    ends.join();
    CHECK(soon([&] { return two.members().size() == 1; }));
}

TEST_CASE("share: a forked child that destroys it waits for no thread of its parent" * doctest::skip(test::sanitized)) {
    const Place place;
    const HostDriver device = place.device();
    std::optional<Share> share{std::in_place, device,
                               ShareOptions{.linger = 1s, .answer_within = 3s, .folder = place.folder}};
    {
        MemorySaver<> saver{share->driver()};
        (void)fill(saver, "weights", page, 1);
        (void)saver.pause(); // cleared
    }
    std::atomic<bool> stop{false};
    std::thread busy{[&] {
        DeviceMemory memory;
        while (!stop.load()) (void)device.memory(memory);
    }};
    for (int i = 0; i < 20; ++i) {
        Child child{[&] {
            ::alarm(30);
            share.reset();
        }};
        CHECK(child.wait() == 0);
    }
    stop = true;
    busy.join();
}

// The sanitizers see what is used after its end.
TEST_CASE_FIXTURE(OnPlace, "share: a share may end after main, with the static objects of the program") {
    Child child{[&] {
        until_exit.emplace(place.join({.name = "static"}));
        std::exit(3);
    }};
    CHECK(child.wait() == 3);
}

TEST_CASE("share: members that are stopped are skipped") {
    const Place place;
    const auto stopped_one = [&](const char* name) {
        return [&place, name] {
            Member own{place, {.name = name}};
            (void)fill(own, "idle", 20 * page, 6);
            const Lending lent = own.lend();
            stay();
        };
    };
    SUBCASE("a leader: others go on alone") {
        Ready leader{stopped_one("leader")};
        Member saver{place, {.name = "other", .answer_within = 50ms}};
        share_support::stop(place, leader);
        (void)saver.arena("a").allocate(30 * page);
        CHECK_THROWS_AS((void)saver.arena("b").allocate(30 * page), OutOfMemory);
        CHECK(saver.share.members().size() == 1);
        leader.kill(SIGCONT);
        CHECK(come_to(saver.share, 2));
        CHECK(soon([&] { return served(saver, "b", 30 * page); })); // unless it takes too long to answer
        leader.kill(SIGKILL);
    }
    SUBCASE("a leader while others wait: they go on alone") {
        Ready leader{stopped_one("leader")};
        const Share holder = place.join({.name = "holder"});
        Member saver{place, {.name = "other", .answer_within = 50ms}};
        PageHandle pages;
        void* const block = fill(saver, "weights", 40 * page, 7);
        saver.pause();
        REQUIRE(holder.driver().create(40 * page, pages).ok());
        std::thread waiting{[&] { CHECK_NOTHROW((void)saver.resume("weights", {.room_within = 60s})); }};
        CHECK(soon([&] { return contains(table_of(holder.members()), "waits for"); }));
        share_support::stop(place, leader);
        std::this_thread::sleep_for(200ms);
        CHECK(holder.driver().release(pages).ok());
        waiting.join();
        CHECK(all_are(block, 7, 40 * page));
        leader.kill(SIGKILL);
    }
    SUBCASE("one that waits: others get what is free") {
        const Share holder = place.join({.name = "holder"});
        PageHandle pages;
        REQUIRE(holder.driver().create(40 * page, pages).ok());
        Ready waiter{[&] {
            Member own{place, {.name = "waiter"}};
            (void)own.arena("later", HostBackup{}).allocate(20 * page);
            own.pause();
            (void)own.arena("now").allocate(20 * page);
            say('r');
            own.resume("later", {.room_within = 1h});
            wait_to_be_killed();
        }};
        CHECK(soon([&] { return contains(table_of(holder.members()), "waits for"); }));
        share_support::stop(place, waiter);
        MemorySaver<> saver{holder.driver()};
        CHECK(soon([&] { return served(saver, "a", 2 * page); }));
        waiter.kill(SIGKILL);
        CHECK(holder.driver().release(pages).ok());
    }
    SUBCASE("one that is asked for room: the next one is asked") {
        Member saver{place, {.name = "leader", .answer_within = 50ms}};
        Ready stopped{stopped_one("stopped")};
        Ready other{stopped_one("other")};
        share_support::stop(place, stopped);
        CHECK(soon([&] { return served(saver, "a", 40 * page); })); // from the other one
        stopped.kill(SIGKILL);
        other.kill(SIGKILL);
    }
}

TEST_CASE("share: a forked child keeps neither the lock nor the connections of its parent, and cannot use the share") {
    const Place place;
    Child parent{[&] {
        const Share mine = place.join({.name = "parent"});
        if (::fork() == 0) {
            const bool refused = process_test::refused([&] { (void)mine.members(); });
            PageHandle pages;
            const bool no_pages = !mine.driver().create(page, pages).ok();
            say(refused && no_pages ? 'y' : 'n');
            (void)::close(STDERR_FILENO);
            // Outlives its parent, until the test ends.
            for (int tries = 0; tries < 1000 && std::filesystem::exists(place.folder); ++tries) (void)::usleep(10'000);
            ::_exit(0);
        }
        stay('p');
    }};
    const int first = parent.next();
    const int second = parent.next();
    CHECK(first + second == 'y' + 'p');
    const Share share = place.join({.name = "other"});
    CHECK(share.members().size() == 2);
    parent.kill_now();
    CHECK(come_to(share, 1)); // so it leads
}

TEST_CASE("share: a leader whose device does not say what is free leaves the lead, and does not take it again") {
    for (const StatusKind kind : {StatusKind::gone, StatusKind::other}) {
        const Place place;
        const FaultyDriver lost{place.device()};
        const Share leader{lost, {.name = "leader", .answer_within = 3s, .folder = place.folder}};
        for (int round = 0; round < 2; ++round) { // the second one leads because the first one does not
            Member healthy{place, {.name = "healthy"}};
            if (round == 0) lost.fail({.lasting = Lasting::onwards, .kind = kind});
            CHECK(all_are(healthy.arena("a").allocate(4 * page), 0, 4 * page));
            CHECK(come_to(healthy.share, 2));
        }
    }
}

TEST_CASE("share: a leader without descriptors goes on; members come when it has" * doctest::skip(test::sanitized)) {
    const Place place;
    Ready leader{[&] {
        const Share mine = place.join({.name = "leader"});
        {
            const int next = ::dup(STDERR_FILENO);
            (void)::close(next);
            const Limit none{RLIMIT_NOFILE, static_cast<rlim_t>(next)}; // 0 would make it poll in vain
            say('r');
            const std::clock_t before = std::clock(); // of the processor
            std::this_thread::sleep_for(300ms);
            say(std::clock() - before < CLOCKS_PER_SEC / 10 ? 'i' : 'b');
        }
        wait_to_be_killed();
    }};
    Member saver{place, {.name = "late", .answer_within = 20ms}};
    (void)saver.arena("a").allocate(4 * page); // alone
    CHECK(leader.next() == 'i');               // it was not busy with who could not come
    CHECK(come_to(saver.share, 2));
    leader.kill_now();
}

TEST_CASE("share: a process that can have no more threads is told so" * doctest::skip(test::sanitized)) {
    const Place place;
    Child child{[&] {
        Member saver{place, {.name = "before"}};
        void* const block = saver.arena("weights").allocate(page);
        std::size_t pages = 0;
        std::ifstream{"/proc/self/statm"} >> pages;
        std::string room(2_MiB, '\0'); // for all but stacks
        const Limit no_stacks{RLIMIT_AS, pages * 4096 + 4_MiB};
        while (succeeds<std::system_error>([] { std::thread{[] { wait_to_be_killed(); }}.detach(); })) {
        }
        std::string{}.swap(room);
        const auto none_left = [](auto act) {
            say(contains(text_of<Unavailable>(act), "no more threads") ? 'y' : 'n');
        };
        none_left([&] { (void)place.join({}); });
        none_left([&] { (void)saver.lend(); });
        none_left([&] { (void)publish(saver.share, saver, block); });
    }};
    CHECK(child.outcome() == "yyy0");
}

TEST_CASE("share: its threads handle none of the process's signals") {
    const auto threads = [] {
        std::map<std::string, std::string> blocked; // of each thread of this process, what it blocks
        for (const auto& each : std::filesystem::directory_iterator{"/proc/self/task"}) {
            std::ifstream status{each.path() / "status"};
            for (std::string line; std::getline(status, line);)
                if (line.compare(0, 7, "SigBlk:") == 0) blocked[each.path().filename().string()] = line.substr(8);
        }
        return blocked;
    };
    const Place place;
    const auto before = threads();
    Member saver{place, {}};
    const Lending lending = saver.lend();
    std::size_t more = 0;
    for (const auto& [thread, blocked] : threads()) {
        if (before.contains(thread)) {
            CHECK(before.at(thread) == blocked);
            continue;
        }
        more += 1;
        CHECK((std::stoull(blocked, nullptr, 16) >> (SIGUSR1 - 1) & 1) == 1);
        CHECK((std::stoull(blocked, nullptr, 16) >> (SIGTERM - 1) & 1) == 1);
    }
    CHECK(more >= 2);
}

TEST_CASE_FIXTURE(OnPlace, "share: many threads of many members ask at once, and everything is released") {
    std::vector<Share> shares;
    for (int i = 0; i < 3; ++i) shares.push_back(place.join({.name = "m" + std::to_string(i), .priority = i}));
    {
        std::vector<MemorySaver<>> savers;
        std::vector<Lending> lendings;
        for (const Share& share : shares) savers.emplace_back(share.driver());
        for (std::size_t i = 0; i < 3; ++i) lendings.push_back(shares[i].lend(savers[i]));
        Threads{6,
                [&](std::size_t i) {
                    MemorySaver<>& saver = savers[i % 3];
                    const std::string tag = "t" + std::to_string(i);
                    Arena arena = saver.arena(tag, HostBackup{});
                    void* block = nullptr;
                    for (int round = 0; round < 12; ++round) {
                        try {
                            const Use use = saver.use(tag, {.room_within = 2s, .timeout = 2s});
                            if (block == nullptr) {
                                block = arena.allocate(18 * page);
                                std::memset(block, static_cast<int>(i), 18 * page);
                            }
                            if (!all_are(block, static_cast<int>(i), 18 * page)) std::abort();
                        } catch (const OutOfMemory&) { // the others hold theirs
                        } catch (const NotIdle&) {
                        }
                    }
                }}
            .join();
    }
    CHECK(soon([&] { return held_by_all(shares[0]) == 0; })); // the leader hears of it from each member apart
    CHECK(free_bytes(place) == 64 * page);
}

TEST_CASE_FIXTURE(OnPair, "share: a hook of what is lent may take memory while another member waits for it") {
    fill(a, "weights", 40 * page, 1);
    std::size_t taken = 0;
    const Hook hook = a.before_pause([&](const PauseEvent&) {
        const Buffer<char> log{a.arena("log"), page};
        taken = log.size();
    });
    const Lending lent = a.lend();
    fill(b, "weights", 50 * page, 2);
    CHECK(taken == page);
    CHECK(soon([&] { return mapped(a, "weights") == 0; }));
}
} // namespace share_share_test
