// Pages of the host's own memory, for backups: what all drivers on Linux share. Does not pin them: a driver does that.
#pragma once

#include "memsaver/driver/system_status.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace memsaver::inline v0_1 {

class SystemPages {
public:
    /// The size of a huge page, and the alignment of what `map` answers.
    static constexpr std::size_t huge_page = 2_MiB;

    /// Addresses for `bytes`; pages come when they are populated or touched, huge ones where the system gives them.
    /// Kept out of core dumps and of forked children.
    static Status map(std::size_t bytes, void*& out) noexcept {
        if (bytes == 0) return system_status(EINVAL);
        if (bytes > std::numeric_limits<std::size_t>::max() - 2 * huge_page) return system_status(ENOMEM);
        const std::size_t rounded = align_up(bytes, huge_page);
        void* all = ::mmap(nullptr, rounded + huge_page, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (all == MAP_FAILED) return system_status(errno);
        auto* const first = static_cast<std::byte*>(all);
        const auto begin = reinterpret_cast<std::uintptr_t>(all);
        const std::size_t skipped = align_up(begin, huge_page) - begin;
        if (skipped != 0) (void)::munmap(first, skipped);
        (void)::munmap(first + skipped + rounded, huge_page - skipped);
        std::byte* const pages = first + skipped;
        (void)::madvise(pages, rounded, MADV_HUGEPAGE);      // slower without, not wrong
        (void)::madvise(pages, rounded, MADV_DONTFORK);      // copying on write would part a pinned page from its owner
        if (::madvise(pages, rounded, MADV_DONTDUMP) != 0) { // a secret must not end up in a core file
            const int error = errno;
            (void)::munmap(pages, rounded);
            return system_status(error);
        }
        out = pages;
        return {};
    }
    static Status unmap(void* pages, std::size_t bytes) noexcept {
        return ::munmap(pages, align_up(bytes, huge_page)) == 0 ? Status{} : system_status(errno);
    }

    /// Takes the pages now. What the system still refuses then is out_of_host_memory.
    ///
    /// Touching takes huge pages without the lock of the whole address space, which the kernel's own way of populating
    /// holds, and which pinning on other threads waits for; that way then finds little left to do.
    static Status populate(void* pages, std::size_t bytes) noexcept {
        constexpr int populate_write = 23; // MADV_POPULATE_WRITE of Linux 5.14, which old headers lack
        constexpr std::size_t one_page = 4096;
        if (::madvise(pages, std::min(bytes, one_page), populate_write) != 0 && errno != EINVAL && errno != ENOSYS) {
            return system_status(errno == EFAULT ? ENOMEM : errno); // told before a touch would be a fault
        }
        touch(pages, bytes, huge_page);
        if (::madvise(pages, bytes, populate_write) == 0) return {};
        if (errno != EINVAL && errno != ENOSYS) return system_status(errno == EFAULT ? ENOMEM : errno);
        touch(pages, bytes, static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)));
        return {};
    }

private:
    static void touch(void* pages, std::size_t bytes, std::size_t step) noexcept {
        for (std::size_t at = 0; at < bytes; at += step) {
            auto* const byte = static_cast<volatile unsigned char*>(pages) + at;
            *byte = *byte;
        }
    }
};

} // namespace memsaver::inline v0_1
