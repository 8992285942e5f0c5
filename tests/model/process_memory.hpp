// The host memory of this process: bytes allocated by malloc, and resident bytes.
#pragma once

#include "memsaver/core/sizes.hpp"
#include "support/chosen_machine.hpp"

#include <cstddef>
#include <doctest/doctest.h>
#include <fstream>
#include <malloc.h>
#include <unistd.h>

namespace test {
using namespace memsaver;

/// A snapshot taken at construction. Checks nothing under sanitizers, which keep freed memory.
struct ProcessMemory {
    /// Checks that memory has not grown since: malloc has allocated at most `heap_slack` bytes more.
    void check_not_grown([[maybe_unused]] std::size_t heap_slack) const {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
        const ProcessMemory now;
        INFO("heap " << heap_ << " B, then " << now.heap_ << " B; resident " << format_bytes(resident_) << ", then "
                     << format_bytes(now.resident_));
        if (chosen_machine() == MachineKind::cuda) { // a GPU's driver allocates memory of its own
            CHECK(now.resident_ <= resident_ + 64_MiB);
        } else {
            CHECK(now.heap_ <= heap_ + heap_slack);
            CHECK(now.resident_ <= resident_ + 8_MiB);
        }
#endif
    }

private:
    static std::size_t heap() {
#if defined(__GLIBC_PREREQ) && __GLIBC_PREREQ(2, 33)
        const auto all = ::mallinfo2();
        return all.uordblks + all.hblkhd;
#else
        return 0;
#endif
    }
    static std::size_t resident() {
        (void)::malloc_trim(0);
        std::ifstream statm{"/proc/self/statm"};
        std::size_t pages = 0;
        statm >> pages >> pages;
        return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    }

    std::size_t heap_ = heap();
    std::size_t resident_ = resident();
};
} // namespace test
