// Whether this process is a child, forked from the one that made a thing. Does not know what thing.
#pragma once

#include "memsaver/base/error.hpp"

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <new>
#include <string>

namespace memsaver::inline v0_1 {

/// A page that the system empties in a forked child (MADV_WIPEONFORK, Linux 4.14): a child shares files and, on some
/// drivers, memory with its parent, and finds locks as other threads left them, so it must touch neither. Asking costs
/// one load. Where the system has no such page, nothing is ever known to be forked.
class ForkMark {
public:
    ForkMark() noexcept {
        void* const page = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED) return;
        if (::madvise(page, bytes, MADV_WIPEONFORK) != 0) {
            (void)::munmap(page, bytes);
            return;
        }
        here_ = new (page) std::atomic<bool>{true};
    }
    ForkMark(const ForkMark&) = delete;
    ForkMark& operator=(const ForkMark&) = delete;
    ~ForkMark() {
        if (here_ != nullptr) (void)::munmap(here_, bytes);
    }

    [[nodiscard]] bool forked() const noexcept { return here_ != nullptr && !here_->load(std::memory_order_relaxed); }
    /// Throws Misuse in a child.
    void require_parent(const char* what) const {
        if (forked()) {
            throw Misuse{std::string{what} +
                         ": this process was forked from the one that made the saver, which alone may use it"};
        }
    }

private:
    static constexpr std::size_t bytes = 4096;
    std::atomic<bool>* here_ = nullptr;
};

} // namespace memsaver::inline v0_1
