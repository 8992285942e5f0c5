// Detects whether this process is a forked child of the process that made an object.
#pragma once

#include "memsaver/core/error.hpp"

#include <sys/mman.h>

#include <atomic>
#include <cstddef>

namespace memsaver::inline v0_3::detail {

/// A page that the kernel clears in a forked child (MADV_WIPEONFORK, Linux 4.14). A child shares files and, on some
/// drivers, memory with its parent, and inherits locks in any state, so it must touch neither. A query costs one load.
/// Without such pages, forks are not detected.
class ForkCheck {
public:
    ForkCheck() noexcept {
        void* const page = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED) return;
        if (::madvise(page, bytes, MADV_WIPEONFORK) != 0) {
            (void)::munmap(page, bytes);
            return;
        }
        here_ = new (page) std::atomic<bool>{true};
    }
    ForkCheck& operator=(ForkCheck&&) = delete;
    ~ForkCheck() {
        if (here_ != nullptr) (void)::munmap(here_, bytes);
    }

    [[nodiscard]] bool forked() const noexcept { return here_ != nullptr && !here_->load(std::memory_order_relaxed); }
    /// Throws Misuse in a forked child.
    void require_parent(const char* what) const {
        if (forked()) [[unlikely]]
            raise_forked(what);
    }

private:
    [[noreturn]] static void raise_forked(const char* what) {
        misuse({what, ": this is a forked process; only the process that created the saver can use it"});
    }

    static constexpr std::size_t bytes = 4096;
    std::atomic<bool>* here_ = nullptr;
};

} // namespace memsaver::inline v0_3::detail
