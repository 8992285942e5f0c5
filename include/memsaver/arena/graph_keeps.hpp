// What ends with a captured graph.
#pragma once

#include "memsaver/core/vector.hpp"

#include <memory>
#include <mutex>
#include <utility>

namespace memsaver::inline v0_3::detail {

/// What a graph uses, and what therefore ends with it: blocks freed while it was captured, gates, elastic ranges.
/// Thread-safe.
class GraphKeeps {
public:
    void add(std::shared_ptr<const void> what) {
        const std::lock_guard lock{mutex_};
        all_.push_back(std::move(what));
    }

private:
    std::mutex mutex_;
    Vector<std::shared_ptr<const void>> all_;
};

} // namespace memsaver::inline v0_3::detail
