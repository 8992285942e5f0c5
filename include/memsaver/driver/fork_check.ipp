// Definitions of fork_check.hpp.
#pragma once

#include "memsaver/driver/fork_check.hpp"

#include <atomic>
#include <string>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE ForkCheck::ForkCheck() noexcept {
    void* const page = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return;
    if (::madvise(page, bytes, MADV_WIPEONFORK) != 0) {
        (void)::munmap(page, bytes);
        return;
    }
    here_ = new (page) std::atomic<bool>{true};
}

MEMSAVER_INLINE ForkCheck::~ForkCheck() {
    if (here_ != nullptr) (void)::munmap(here_, bytes);
}

MEMSAVER_INLINE void ForkCheck::raise_forked(const char* what) {
    misuse({what, ": this is a forked process; only the process that created the saver can use it"});
}

} // namespace detail

} // namespace memsaver::inline v0_3
