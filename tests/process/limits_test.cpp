// The limits of a process (ulimit): each is an error that names it, nothing is lost, no signal ends the program, and
// giving memory back needs none of them. Each limit is set in a child process.
#include "support/machines.hpp"

namespace process_limits_test {
using namespace test;
using process_test::Child;
using process_test::set_limit;

std::size_t address_bytes() {
    std::size_t pages = 0;
    std::ifstream{"/proc/self/statm"} >> pages;
    return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// Whether `act` throws an E that names a limit. Any other error ends the child, which prints it.
template <class E>
bool names(const std::string& limit, const std::function<void()>& act) {
    try {
        act();
    } catch (const E& error) {
        if (contains(error.what(), limit)) return true;
        throw;
    }
    return false;
}

/// A block of 8 MiB.
void* filled(const Arena& arena, int byte) {
    void* const block = arena.allocate(8_MiB);
    std::memset(block, byte, 8_MiB);
    return block;
}

/// Takes mappings until the system refuses more.
struct ManyMappings {
    ManyMappings() {
        const std::size_t page = 4096;
        void* const all = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (all == MAP_FAILED) return;
        pages = static_cast<char*>(all);
        // Each page that may be read splits the mapping in two more.
        for (std::size_t at = 0; at < bytes; at += 2 * page)
            if (::mprotect(pages + at, page, PROT_READ) != 0) break;
    }
    void end() { (void)::munmap(pages, bytes); }

    static constexpr std::size_t bytes = std::size_t{1} << 30U;
    char* pages = nullptr;
};

/// Runs `body` in a child, which must return 0 and print nothing.
void in_child(const std::function<int()>& body) {
    Child child{body};
    CHECK(child.outcome() == "0");
}

TEST_CASE("limits: a file backup that may not be that large is an error, no signal, and the tag stays active") {
    for (const std::size_t most : {std::size_t{0}, std::size_t{2_MiB}}) {
        in_child([&] {
            MemorySaver saver{HostDriver{256_MiB}};
            const Arena files = saver.arena("files", FileBackup{.directory = "/tmp", .retain = true});
            const Arena rest = saver.arena("rest", Discard{});
            void* const block = filled(files, 7);
            (void)rest.allocate(8_MiB);
            set_limit(RLIMIT_FSIZE, most);
            if (!names<DriverError>("RLIMIT_FSIZE", [&] { (void)saver.pause("files"); })) return 1;
            if (!filled_with(block, 8_MiB, 7) || files.usage().state != "active") return 2;
            if (saver.pause("rest").released_bytes < 8_MiB) return 3;
            set_limit(RLIMIT_FSIZE, RLIM_INFINITY);
            pause_and_resume(saver, "files");
            if (!filled_with(block, 8_MiB, 7)) return 4;
            std::memset(block, 8, 8_MiB);
            set_limit(RLIMIT_FSIZE, most); // smaller than the file
            if (!names<DriverError>("RLIMIT_FSIZE", [&] { (void)saver.pause("files"); })) return 5;
            if (!filled_with(block, 8_MiB, 8) || files.usage().state != "active") return 6;
            saver.drop("files");
            saver.close();
            return 0;
        });
    }
}

TEST_CASE("limits: a simulated device under a limit of file sizes can use all of it repeatedly") {
    in_child([] {
        set_limit(RLIMIT_FSIZE, 64_MiB);
        MemorySaver saver{HostDriver{4_GiB}};
        const Arena kept = saver.arena("kept", Discard{});
        const Arena turns = saver.arena("turns", HostBackup{.threads = 1});
        (void)kept.allocate(16_MiB);
        (void)saver.arena("hole").allocate(4_MiB); // too small for the others
        void* const behind = saver.arena("behind").allocate(4_MiB);
        std::memset(behind, 77, 4_MiB);
        saver.drop("hole");
        void* const block = turns.allocate(16_MiB);
        for (int i = 0; i < 16; ++i) {
            std::memset(block, i, 16_MiB);
            pause_and_resume(saver, "turns");
            if (!filled_with(block, 16_MiB, static_cast<unsigned char>(i)) || !filled_with(behind, 4_MiB, 77)) return 1;
        }
        if (!names<DriverError>("RLIMIT_FSIZE", [&] { (void)kept.allocate(128_MiB); })) return 2;
        if (!filled_with(block, 16_MiB, 15)) return 3;
        saver.close();
        return 0;
    });
}

TEST_CASE("limits: no more addresses: an error of its own for a block, the limit for a backup, and nobody is evicted") {
    in_child([] {
        int asked = 0;
        MemorySaver saver{HostDriver{4_GiB}, {.on_no_room = [&](const NoRoom&) { return ++asked < 3; }}};
        const Arena a = saver.arena("a", HostBackup{.threads = 1});
        const Arena b = saver.arena("b", Discard{});
        void* const block = a.allocate(64_MiB);
        std::memset(block, 7, 64_MiB);
        (void)b.allocate(64_MiB);
        set_limit(RLIMIT_AS, address_bytes() + 8_MiB);
        if (!names<OutOfAddresses>("RLIMIT_AS", [&] { (void)b.allocate(1_GiB); })) return 1;
        if (!names<OutOfHostMemory>("RLIMIT_AS", [&] { (void)saver.pause("a"); })) return 2;
        if (asked != 0 || a.usage().state != "active" || !filled_with(block, 64_MiB, 7)) return 3;
        set_limit(RLIMIT_AS, address_bytes() / 2); // giving back needs none
        if (saver.pause("b").released_bytes < 64_MiB) return 4;
        saver.drop("a");
        saver.drop("b");
        saver.close();
        return 0;
    });
}

TEST_CASE("limits: without mappings an error names the limit, memory goes back" * doctest::skip(test::sanitized)) {
    in_child([] {
        std::size_t most = 0;
        std::ifstream{"/proc/sys/vm/max_map_count"} >> most;
        if (most > 200'000) return 0; // more than this test's range has pages
        MemorySaver saver{HostDriver{4_GiB}};
        const Arena a = saver.arena("a", HostBackup{.threads = 1});
        const Arena b = saver.arena("b", Discard{});
        const Arena c = saver.arena("c", Discard{});
        (void)filled(a, 7);
        (void)b.allocate(8_MiB);
        (void)c.allocate(8_MiB);
        void* const freed = b.allocate(64_MiB);
        ManyMappings many;
        if (!names<Error>("vm.max_map_count", [&] { (void)saver.arena("d").allocate(512_MiB); })) return 1;
        if (saver.pause("c").released_bytes < 8_MiB) return 2;
        b.deallocate(freed, already_idle);
        (void)saver.trim();
        saver.drop("b");
        saver.drop("c");
        many.end();
        (void)saver.pause("a");
        many = {};
        saver.drop("a");
        saver.close();
        return 0;
    });
}

TEST_CASE("limits: without descriptors errors name the limit, memory goes back" * doctest::skip(test::sanitized)) {
    in_child([] {
        MemorySaver saver{HostDriver{256_MiB}};
        const Arena files = saver.arena("files", FileBackup{.directory = "/tmp"});
        const Arena host = saver.arena("host", HostBackup{.threads = 1});
        const Arena rest = saver.arena("rest", Discard{});
        void* const block = filled(files, 7);
        void* const other = filled(host, 8);
        (void)rest.allocate(8_MiB);
        set_limit(RLIMIT_NOFILE, 0);
        if (!names<Error>("RLIMIT_NOFILE", [&] { (void)saver.pause("files"); })) return 1;
        if (!filled_with(block, 8_MiB, 7)) return 2;
        // Whether a backup fits is not known: what the system has available is in files.
        if (!names<Error>("RLIMIT_NOFILE", [&] { (void)saver.pause("host"); })) return 3;
        if (!filled_with(other, 8_MiB, 8)) return 4;
        if (!names<Error>("RLIMIT_NOFILE", [] { const HostDriver another{1_MiB}; })) return 5;
        if (saver.pause("rest").released_bytes < 8_MiB) return 6;
        saver.drop("host");
        saver.close();
        return 0;
    });
}

TEST_CASE("limits: without threads copies name the limit, or run; memory goes back" * doctest::skip(test::sanitized)) {
    in_child([] {
        const HostDriver driver{256_MiB};
        MemorySaver saver{driver};
        const Arena host = saver.arena("host", HostBackup{.retain = true, .threads = 4});
        const Arena files = saver.arena("files", FileBackup{.directory = "/tmp", .retain = true, .threads = 4});
        const Arena rest = saver.arena("rest", Discard{});
        void* const one = filled(host, 7);
        void* const other = filled(files, 8);
        (void)rest.allocate(8_MiB);
        pause_and_resume(saver);                       // buffers and the device's threads are there now
        set_limit(RLIMIT_AS, address_bytes() + 1_MiB); // no stack of 8 MiB
        std::vector<StreamRef> streams(64);
        Status none;
        for (StreamRef& stream : streams) { // stacks of threads that ended are used again first
            if (!driver.open_stream(stream).ok()) return 1;
            if (none.ok()) none = driver.enqueue(stream, [] {});
        }
        if (none.ok() || !contains(none.name, "no more threads")) return 2;
        for (const StreamRef& stream : streams)
            if (!driver.close_stream(stream).ok()) return 3;
        for (const char* tag : {"host", "files"}) {
            try {
                (void)saver.pause(tag);
            } catch (const Error& error) {
                if (!contains(error.what(), "RLIMIT")) return 4;
            }
        }
        if (saver.pause("rest").released_bytes < 8_MiB) return 5;
        set_limit(RLIMIT_AS, RLIM_INFINITY);
        (void)saver.resume();
        return filled_with(one, 8_MiB, 7) && filled_with(other, 8_MiB, 8) ? 0 : 6;
    });
}

/// Closes a descriptor whose link in /proc begins with `begin`, and opens a file of the program's own in its place,
/// which holds `bytes` times the byte 'D'. Returns its descriptor.
int take_over(const std::string& begin, std::size_t bytes, const std::string& name) {
    for (const auto& [each, target] : process_test::descriptors()) {
        if (!target.starts_with(begin)) continue;
        (void)::close(each);
        const int own = ::open(name.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        (void)::unlink(name.c_str());
        const std::string rows(bytes, 'D');
        if (own != each || ::write(own, rows.data(), rows.size()) != static_cast<ssize_t>(rows.size())) return -1;
        return own;
    }
    return -1;
}

bool untouched(int own, std::size_t bytes) {
    std::vector<char> read(bytes);
    struct stat found {};
    return ::fstat(own, &found) == 0 && static_cast<std::size_t>(found.st_size) == bytes &&
           ::pread(own, read.data(), bytes, 0) == static_cast<ssize_t>(bytes) && filled_with(read.data(), bytes, 'D');
}

TEST_CASE("descriptors: a backup file that the program closed is noticed, and its successor is left alone") {
    for (const bool paused : {true, false}) {
        in_child([&] {
            const test::Folder folder;
            const std::string here = folder.path.string();
            MemorySaver saver{HostDriver{256_MiB}};
            const Arena files = saver.arena("files", FileBackup{.directory = here, .retain = true});
            void* const block = files.allocate(4_MiB);
            if (!paused) pause_and_resume(saver);
            std::memset(block, 7, 4_MiB);
            if (paused) (void)saver.pause();
            const int own = take_over(here, 8_MiB, here + "/own");
            if (own < 0) return 1;
            const auto noticed = [](const std::function<void()>& act) {
                return names<DriverError>("closed a file descriptor", act);
            };
            if (!paused) { // a save leaves the tag active
                if (!noticed([&] { (void)saver.pause(); })) return 2;
                return untouched(own, 8_MiB) && files.usage().state == "active" && filled_with(block, 4_MiB, 7) ? 0 : 3;
            }
            if (!noticed([&] { (void)saver.resume(); })) return 4;
            if (!noticed([&] { (void)saver.backup_view(block, 1_MiB); })) return 5;
            const char byte = 1;
            if (!noticed([&] { saver.write_backup(block, &byte, 1); })) return 6;
            (void)succeeds<DriverError>([&] { saver.drop("files"); }); // the file could not be closed
            saver.close();
            return untouched(own, 8_MiB) ? 0 : 7;
        });
    }
}
} // namespace process_limits_test
