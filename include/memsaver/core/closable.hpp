// What may fail to close.
#pragma once

#include "memsaver/core/status.hpp"

#include <memory>

namespace memsaver::inline v0_3::detail {

/// An owner whose end may fail. If it does, an Attic keeps it.
class Closable {
public:
    Closable& operator=(Closable&&) = delete;
    virtual ~Closable() = default;

    /// Gives back everything. Returns the first failure; the next call retries the rest.
    virtual Status close() noexcept = 0;

private:
    friend class Attic;
    std::shared_ptr<Closable> next_; // in an attic
};

} // namespace memsaver::inline v0_3::detail
