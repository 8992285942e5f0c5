// Keeps what could not be closed.
#pragma once

#include "memsaver/core/closable.hpp"
#include "memsaver/core/definitions.hpp"

#include <memory>
#include <mutex>

namespace memsaver::inline v0_3 {

namespace detail {

/// Owners that are no longer needed but could not be closed yet. Needs no host memory, and closes what is left once
/// more, by its destructor, when it is destroyed. Thread-safe; no lock is held while something is closed.
class Attic {
public:
    Attic() = default;
    Attic(const Attic&) = delete;
    Attic& operator=(const Attic&) = delete;
    ~Attic() = default;

    /// Closes `what` and drops it. If that fails, keeps it for `retry` and returns the failure. It may be
    /// kept already.
    Status add(std::shared_ptr<Closable> what) noexcept;
    /// Closes everything kept so far again. Returns the first failure.
    Status retry() noexcept;
    [[nodiscard]] bool empty() const noexcept;

private:
    mutable std::mutex mutex_;
    std::shared_ptr<Closable> first_;
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/driver/attic.ipp"
#endif
