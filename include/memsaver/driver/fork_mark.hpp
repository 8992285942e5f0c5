// Whether this process is a child, forked from the one that made a thing. Does not know what thing.
#pragma once

#include "memsaver/core/error.hpp"

#include <sys/mman.h>

#include <atomic>
#include <cstddef>

namespace memsaver::inline v0_2 {

namespace detail {

/// A page that the system empties in a forked child (MADV_WIPEONFORK, Linux 4.14): a child shares files and, on some
/// drivers, memory with its parent, and finds locks as other threads left them, so it must touch neither. Asking costs
/// one load. Where the system has no such page, nothing is ever known to be forked.
class ForkMark {
public:
    ForkMark() noexcept;
    ForkMark(const ForkMark&) = delete;
    ForkMark& operator=(const ForkMark&) = delete;
    ~ForkMark();

    [[nodiscard]] bool forked() const noexcept { return here_ != nullptr && !here_->load(std::memory_order_relaxed); }
    /// Throws Misuse in a child.
    void require_parent(const char* what) const {
        if (forked()) [[unlikely]]
            raise_forked(what);
    }

private:
    [[noreturn]] static void raise_forked(const char* what);

    static constexpr std::size_t bytes = 4096;
    std::atomic<bool>* here_ = nullptr;
};

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/driver/fork_mark.ipp"
#endif
