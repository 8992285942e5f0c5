// Detects whether this process is a forked child of the process that made an object.
#pragma once

#include "memsaver/core/error.hpp"

#include <sys/mman.h>

#include <atomic>
#include <cstddef>

namespace memsaver::inline v0_3 {

namespace detail {

/// A page that the kernel clears in a forked child (MADV_WIPEONFORK, Linux 4.14). A child shares files and, on some
/// drivers, memory with its parent, and inherits locks in any state, so it must touch neither. A query costs one load.
/// Without such pages, forks are not detected.
class ForkCheck {
public:
    ForkCheck() noexcept;
    ForkCheck(const ForkCheck&) = delete;
    ForkCheck& operator=(const ForkCheck&) = delete;
    ~ForkCheck();

    [[nodiscard]] bool forked() const noexcept { return here_ != nullptr && !here_->load(std::memory_order_relaxed); }
    /// Throws Misuse in a forked child.
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

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/driver/fork_check.ipp"
#endif
