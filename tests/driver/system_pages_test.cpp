#include "backup/backup_support.hpp"

namespace driver_system_pages_test {
using namespace test;

std::size_t resident(void* pages, std::size_t bytes) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    std::vector<unsigned char> there(bytes / page);
    REQUIRE(::mincore(pages, bytes, there.data()) == 0);
    std::size_t count = 0;
    for (const unsigned char bits : there) count += bits & 1U;
    return count * page;
}

TEST_CASE("host pages are kept out of core dumps and forks, and ask for huge pages") {
    void* pages = nullptr;
    REQUIRE(SystemPages::map_host(4_MiB, pages).ok());
    const std::string flags = mapping_flags(pages);
    CHECK(contains(flags, " dd "));
    CHECK(contains(flags, " dc "));
    if (std::filesystem::exists("/sys/kernel/mm/transparent_hugepage/enabled")) CHECK(contains(flags, " hg "));
    CHECK(SystemPages::unmap_host(pages, 4_MiB).ok());
}

TEST_CASE("populating allocates the memory of the range and keeps existing bytes") {
    void* pages = nullptr;
    REQUIRE(SystemPages::map_host(8_MiB, pages).ok());
    auto* const bytes = static_cast<unsigned char*>(pages);
    CHECK(resident(pages, 8_MiB) == 0);
    CHECK(SystemPages::populate_host(bytes + 2_MiB, 4_MiB).ok());
    CHECK(resident(bytes, 2_MiB) == 0);
    CHECK(resident(bytes + 2_MiB, 4_MiB) == 4_MiB);
    CHECK(resident(bytes + 6_MiB, 2_MiB) == 0);
    bytes[2_MiB] = 7;
    bytes[6_MiB - 1] = 8;
    CHECK(SystemPages::populate_host(pages, 8_MiB).ok());
    CHECK(resident(pages, 8_MiB) == 8_MiB);
    CHECK(bytes[2_MiB] == 7);
    CHECK(bytes[6_MiB - 1] == 8);
    CHECK(SystemPages::unmap_host(pages, 8_MiB).ok());
}

TEST_CASE("failures to map or populate are reported") {
    void* pages = &pages;
    CHECK(SystemPages::map_host(0, pages).kind == StatusKind::other);
    CHECK(SystemPages::map_host(std::numeric_limits<std::size_t>::max(), pages).kind == StatusKind::out_of_host_memory);
    CHECK(SystemPages::map_host(std::numeric_limits<std::size_t>::max() / 2, pages).kind ==
          StatusKind::out_of_host_memory);
    CHECK(pages == &pages);
    REQUIRE(SystemPages::map_host(2_MiB, pages).ok());
    REQUIRE(SystemPages::unmap_host(pages, 2_MiB).ok());
    CHECK(SystemPages::populate_host(pages, 2_MiB).kind == StatusKind::out_of_host_memory); // nothing is mapped there
    CHECK(SystemPages::unmap_host(reinterpret_cast<void*>(std::uintptr_t{1}), 2_MiB).kind == StatusKind::other);
    const int empty = ::memfd_create("empty", MFD_CLOEXEC);
    pages = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, empty, 0);
    REQUIRE(pages != MAP_FAILED);
    if (::madvise(pages, 4096, 23) != 0 && errno == EFAULT) // MADV_POPULATE_WRITE: behind the end of a file
        CHECK(SystemPages::populate_host(pages, 4096).kind == StatusKind::out_of_host_memory);
    CHECK(::munmap(pages, 4096) + ::close(empty) == 0);
}
} // namespace driver_system_pages_test
