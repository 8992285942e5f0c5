// Host memory that the library takes for itself: shared by the tags of a device, no larger than what passes through,
// budgeted, shown by `usage`, and given back by `trim`.
#include "support/machines.hpp"

namespace saver_host_memory_test {
using namespace test;

std::string tag(int number) { return "lora/" + std::to_string(number); }

/// Tags with a filled block each.
template <class D>
struct Adapters {
    Adapters(const D& driver, int count, std::size_t bytes_of_each, const AnyPolicy& policy) : saver{driver} {
        for (int i = 0; i < count; ++i)
            blocks.emplace_back(driver, saver.arena(tag(i), policy), bytes_of_each, static_cast<std::uint64_t>(i));
    }
    void check_bytes() const {
        for (const auto& block : blocks) CHECK(block.whole());
    }
    MemorySaver<D> saver;
    std::vector<Filled<D>> blocks{};
};

TEST_CASE("tags share host memory and rings, which are no larger than asked; trim gives rings of files back") {
    const Folder folder;
    const FileBackup files{.directory = folder.path.string(), .threads = 1, .ring_bytes = 16_MiB};
    struct Case {
        AnyPolicy policy;
        int tags;
        std::size_t bytes, most;
    };
    for (const Case& each : {Case{HostBackup{.threads = 1}, 20, 64_KiB, 2 * 20 * 64_KiB},
                             Case{HostBackup{.storage = Storage::pageable, .threads = 1}, 20, 64_KiB, 4_MiB},
                             Case{files, 6, 2_MiB, 16_MiB}}) {
        CAPTURE(each.policy.describe());
        const HostDriver host{256_MiB};
        MemorySaver<HostDriver> saver{host};
        for (int i = 0; i < each.tags; ++i) (void)saver.arena(tag(i), each.policy).allocate(each.bytes);
        (void)saver.pause();
        CHECK(host.counts().pinned_bytes <= each.most);
        (void)saver.resume();
        (void)saver.trim();
        if (each.policy == AnyPolicy{files}) CHECK(host.counts().pinned_bytes == 0);
    }
}

TEST_CASE("one small tag takes as much host memory as it has, rounded up to small pages") {
    for (const Storage storage : {Storage::pinned, Storage::pageable}) {
        const HostDriver host{256_MiB};
        Adapters one{host, 1, 64_KiB, HostBackup{.storage = storage, .threads = 1}};
        one.saver.prepare();
        CHECK(host.counts().pinned_bytes == 64_KiB);
        (void)one.saver.pause();
        CHECK(host.counts().pinned_bytes == 64_KiB);         // prepared: nothing more
        CHECK(one.saver.usage().host_bytes() <= 2 * 64_KiB); // pageable: the pages, and what they pass through
        (void)one.saver.resume();
        one.check_bytes();
    }
}

TEST_CASE("usage shows the host memory that is taken, in its table and as JSON, until it is given back") {
    const Folder folder;
    const HostDriver host{256_MiB};
    const FileBackup files{.directory = folder.path.string(), .threads = 2};
    Adapters all{host, 3, 2_MiB, files};
    CHECK(all.saver.usage().host_bytes() == 0);
    (void)all.saver.pause();
    const Usage usage = all.saver.usage();
    CHECK(usage.host_bytes() == host.counts().pinned_bytes);
    CHECK(usage.host_bytes() >= 2_MiB);
    CHECK(to_json(usage).find("\"host_bytes\":" + std::to_string(usage.host_bytes())) != std::string::npos);
    const std::string table = printed(usage);
    CHECK(table.find("host: " + format_bytes(usage.host_bytes())) != std::string::npos);
    (void)all.saver.trim(); // all tags are paused
    CHECK(all.saver.usage().host_bytes() == 0);
    CHECK(host.counts().pinned_bytes == 0);
    (void)all.saver.resume();
    all.check_bytes();
    CHECK(all.saver.usage().host_bytes() == host.counts().pinned_bytes);
}

TEST_CASE("usage shows host memory that could not be given back") {
    const Folder folder;
    for (const AnyPolicy& policy :
         {AnyPolicy{HostBackup{.retain = false, .threads = 1}},
          AnyPolicy{FileBackup{.directory = folder.path.string(), .threads = 1, .ring_bytes = 4_MiB}}}) {
        for (const Call call : {Call::unpin_host, Call::unmap_host}) {
            CAPTURE(policy.name());
            CAPTURE(std::string{call_name(call)});
            const FaultyDriver<HostDriver> driver{HostDriver{64_MiB}};
            Adapters<FaultyDriver<HostDriver>> all{driver, 1, 3_MiB, policy};
            all.saver.pause();
            driver.fail({.call = call, .lasting = Lasting::onwards});
            all.saver.resume();
            (void)all.saver.trim();
            CHECK(driver.host_bytes() != 0);
            CHECK(all.saver.usage().host_bytes() == driver.host_bytes());
            driver.heal();
            all.saver.pause();
            all.saver.resume();
            (void)all.saver.trim();
            CHECK(driver.host_bytes() == 0);
            CHECK(all.saver.usage().host_bytes() == 0);
            all.check_bytes();
        }
    }
}

TEST_CASE("host memory that is not there is refused before it is touched, and the tags stay as they are") {
    const Folder folder;
    const FaultyDriver<HostDriver> driver{HostDriver{256_MiB}};
    Adapters all{driver, 2, 2_MiB, FileBackup{.directory = folder.path.string(), .threads = 1}};
    driver.fail({.call = Call::host_available, .lasting = Lasting::onwards});
    CHECK_THROWS_AS((void)all.saver.pause(), Error);
    CHECK(driver.pinned_bytes() == 0);
    all.check_bytes();
    driver.heal();
    (void)all.saver.pause();
    (void)all.saver.trim();
    driver.fail({.call = Call::host_available, .lasting = Lasting::onwards});
    CHECK_THROWS_AS((void)all.saver.resume(), Error);
    driver.heal();
    (void)all.saver.resume();
    all.check_bytes();
}
} // namespace saver_host_memory_test
