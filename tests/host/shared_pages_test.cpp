// One simulated device for several processes: capacity, pages that pass from one to another, and processes that are
// killed.
#include "host_support.hpp"
#include "memsaver/host/page_source.hpp"
#include "memsaver/saver/saver.hpp"
#include "memsaver/share/message.hpp"
#include "support/machines.hpp"

namespace host_shared_pages_test {
using namespace test;
using namespace process_test;

constexpr std::size_t page = 64_KiB;
constexpr std::size_t capacity = 16 * page;

std::string unique_name() {
    static int count = 0;
    return "test-" + std::to_string(::getpid()) + '-' + std::to_string(++count);
}

std::string base() { return "/dev/shm/memsaver-" + std::to_string(::geteuid()); }

HostDriver open_machine(const std::string& name, std::size_t bytes = capacity) {
    return HostDriver{bytes, {.machine = name, .granularity = page}};
}

std::size_t free_bytes(const HostDriver& driver) { return memory_of(driver).free_bytes; }

/// Pages that other processes may get.
struct Pages : host_test::Mapped {
    Pages(const HostDriver& made_by, std::size_t size) : Mapped{made_by, size, shared(made_by, size)} {}
    Pages(const HostDriver& made_by, std::size_t size, int descriptor)
        : Mapped{made_by, size, imported(made_by, descriptor)} {}
    static PageHandle shared(const HostDriver& driver, std::size_t bytes) {
        PageHandle pages;
        REQUIRE(driver.create_shared(bytes, pages).ok());
        return pages;
    }
    static PageHandle imported(const HostDriver& driver, int descriptor) {
        PageHandle pages;
        REQUIRE(driver.import_pages(descriptor, pages).ok());
        return pages;
    }
    [[nodiscard]] int exported() const {
        int descriptor = -1;
        REQUIRE(driver.export_pages(handle, descriptor).ok());
        return descriptor;
    }
    [[nodiscard]] unsigned char* data() const { return host_test::bytes_at(address); }
};

/// A machine that other processes open, too.
struct Shared {
    const std::string name = unique_name();
    const HostDriver driver = open_machine(name);
};

/// A pair of sockets over which a descriptor can be sent.
struct Line {
    Line() { REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0); }
    ~Line() { close(0), close(1); }

    void close(int end) {
        if (ends[end] >= 0) (void)::close(std::exchange(ends[end], -1));
    }
    void send(int descriptor) const { REQUIRE(send_message(ends[1], {}, descriptor)); }
    [[nodiscard]] ShareFd receive() const {
        ShareMessage message;
        ShareFd descriptor;
        REQUIRE(receive_message(ends[0], message, descriptor) == ShareReceived::message);
        return descriptor;
    }

    int ends[2]{-1, -1};
};

/// A child that has sent a page of 7s, and keeps it.
[[noreturn]] int send_pages(const std::string& name, const Line& line) {
    const HostDriver mine = open_machine(name);
    const Pages pages{mine, page};
    std::memset(pages.data(), 7, page);
    line.send(pages.exported());
    stay();
}

TEST_CASE("shared machine: all its drivers take from one capacity") {
    const std::string name = unique_name();
    {
        const HostDriver one = open_machine(name);
        const HostDriver other = open_machine(name);
        Pages pages{one, 4 * page};
        CHECK(free_bytes(other) == 12 * page);
        Address plain = 0;
        REQUIRE(other.allocate_plain(2 * page, plain).ok());
        REQUIRE(other.put_in_pool({}, 3 * page).ok());
        CHECK(free_bytes(one) == 7 * page);
        CHECK(one.counts().held_bytes == 9 * page);
        PageHandle more;
        CHECK(one.create(8 * page, more).kind == StatusKind::out_of_memory);
        CHECK(one.create(7 * page, more).ok());
        CHECK(other.create(page, more).kind == StatusKind::out_of_memory);
        CHECK(other.free_plain(plain).ok());
        CHECK(free_bytes(one) == 2 * page);
        pages.give_back();
        CHECK(free_bytes(other) == 6 * page);
        CHECK(one.violations().empty());
    }
    CHECK_FALSE(std::filesystem::exists(base() + '/' + name)); // the last one removes the folder
}

TEST_CASE("shared machine: pages that the system does not have are not taken") {
    const HostDriver driver = open_machine(unique_name(), std::size_t{1} << 55U);
    PageHandle handle;
    CHECK(driver.create_shared(std::size_t{1} << 54U, handle) == HostStatus::out_of_host_memory);
    CHECK(free_bytes(driver) == std::size_t{1} << 55U);
}

TEST_CASE("shared machine: it has a name for everybody, and exports pages") {
    const HostDriver driver = open_machine("a b");
    std::string identity;
    REQUIRE(driver.identity(identity).ok());
    CHECK(identity == "host machine a b");
    CHECK(driver.features().exports);
    CHECK_FALSE(HostDriver{}.features().exports);
    CHECK(HostDriver{}.identity(identity).kind == StatusKind::unsupported);
    CHECK(HostDriver{1_GiB, {.machine = ""}}.identity(identity).kind == StatusKind::unsupported);
}

TEST_CASE("shared machine: impossible names and sizes are refused") {
    for (const std::string& bad : {std::string{"a/b"}, std::string{".."}, std::string{".x"}, std::string(65, 'x')}) {
        check_says<Misuse>("valid are names of at most 64 characters without '/'", [&] { (void)open_machine(bad); });
    }
    CHECK_THROWS_AS((void)open_machine(std::string{"a\0b", 3}), Misuse);
    const std::string name = unique_name();
    {
        const HostDriver driver = open_machine(name);
        check_says<Misuse>("has 1.00 MiB in units of 64.00 KiB as long as it is used, not 2.00 MiB",
                           [&] { (void)open_machine(name, 2 * capacity); });
        CHECK_THROWS_AS((HostDriver{capacity, {.machine = name, .granularity = 2 * page}}), Misuse);
    }
    const HostDriver larger = open_machine(name, 2 * capacity); // a machine that nobody uses any more is another one
    CHECK(free_bytes(larger) == 2 * capacity);
}

TEST_CASE_FIXTURE(Shared, "shared machine: a machine of another version is refused") {
    const int file = ::open((base() + '/' + name + "/machine").c_str(), O_WRONLY);
    REQUIRE(::pwrite(file, "memsaver 9", 10, 0) == 10);
    (void)::close(file);
    check_says<Unavailable>("another version of memsaver", [&] { (void)open_machine(name); });
}

TEST_CASE_FIXTURE(Shared, "shared machine: pages outlive their maker in a descriptor, mapping or message, no longer") {
    Line line;
    Child child{[&] { return send_pages(name, line); }};
    line.close(1);
    REQUIRE(child.next() == 'r');
    child.kill_now();
    CHECK(free_bytes(driver) == 15 * page); // in a message that nobody has received yet
    Pages pages{driver, page, line.receive().get()};
    CHECK(pages.data()[page - 1] == 7);
    REQUIRE(driver.release(pages.handle).ok()); // mapped only
    CHECK(free_bytes(driver) == 15 * page);
    CHECK(pages.data()[0] == 7);
    REQUIRE(driver.unmap(pages.address, page).ok());
    CHECK(free_bytes(driver) == capacity);
}

TEST_CASE_FIXTURE(Shared, "shared machine: a forked child that ends leaves its parent's locks alone") {
    const Pages pages{driver, page};
    Child child{[&] {
        { const HostDriver mine = open_machine(unique_name()); } // a machine of its own works
        const HostDriver copy = driver;
        (void)::close(STDOUT_FILENO); // what doctest has not written yet is the parent's to write
        std::exit(0);                 // NOLINT(concurrency-mt-unsafe): with the destructors of what is static
    }};
    CHECK(child.wait() == 0);
    CHECK(free_bytes(driver) == 15 * page);
    CHECK_THROWS_AS(open_machine(name, 2 * capacity), Misuse);
}

TEST_CASE_FIXTURE(Shared, "shared machine: processes that are killed at any moment leave the capacity whole") {
    for (int round = 0; round < 40; ++round) {
        Ready child{[&] {
            const HostDriver mine = open_machine(name);
            say('r');
            for (;;) {
                Pages pages{mine, page};
                (void)::close(pages.exported());
                pages.give_back();
            }
        }};
        (void)::usleep(static_cast<useconds_t>(round * 50));
        child.kill_now();
        REQUIRE(free_bytes(driver) == capacity);
    }
}

TEST_CASE_FIXTURE(Shared, "shared machine: two processes never have more than there is") {
    const auto grab = [&] {
        const HostDriver mine = open_machine(name);
        for (int round = 0; round < 200; ++round) {
            std::vector<PageHandle> mine_now;
            for (PageHandle handle; mine.create(3 * page, handle).ok();) mine_now.push_back(handle);
            if (mine_now.size() > 5) return 1; // 15 of 16 pages
            if (mine.counts().held_bytes > capacity) return 2;
            for (const PageHandle handle : mine_now)
                if (!mine.release(handle).ok()) return 3;
        }
        return 0;
    };
    Child one{grab};
    Child other{grab};
    CHECK(one.wait() == 0);
    CHECK(other.wait() == 0);
    CHECK(free_bytes(driver) == capacity);
}

TEST_CASE("shared machine: without descriptors an error names the limit" * doctest::skip(test::sanitized)) {
    const std::string name = unique_name();
    Child child{[&] {
        const HostDriver driver = open_machine(name, 1024 * page);
        const Limit few{RLIMIT_NOFILE, 64};
        std::vector<PageHandle> made;
        Status status;
        for (PageHandle handle; (status = driver.create(page, handle)).ok();) made.push_back(handle);
        if (!contains(status.name, "RLIMIT_NOFILE")) return 2;
        for (const PageHandle handle : made)
            if (!driver.release(handle).ok()) return 3;
        return free_bytes(driver) == 1024 * page ? 0 : 4;
    }};
    CHECK_MESSAGE(child.wait() == 0, child.rest());
}

TEST_CASE_FIXTURE(Shared, "shared machine: a folder that others may use is refused") {
    const std::string folder = base() + '/' + name;
    REQUIRE(::chmod(folder.c_str(), 0755) == 0);
    check_says<Unavailable>(folder + ": EPERM: not a folder that only this user may use",
                            [&] { (void)open_machine(name); });
    REQUIRE(::chmod(folder.c_str(), 0700) == 0);
    (void)open_machine(name);
}
} // namespace host_shared_pages_test
