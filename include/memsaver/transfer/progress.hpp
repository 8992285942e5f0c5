// Counts bytes that have been moved and tells whoever wants to know.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <utility>

namespace memsaver::inline v0_1 {

/// Told `(bytes done, bytes to do)`, from any thread. What it throws is swallowed.
using ProgressSink = std::function<void(std::size_t, std::size_t)>;

class Progress {
public:
    Progress(ProgressSink sink, std::size_t total) : sink_{std::move(sink)}, total_{total} {}

    void add(std::size_t bytes) noexcept {
        const std::size_t done = done_.fetch_add(bytes) + bytes;
        if (!sink_) return;
        try {
            sink_(done, total_);
        } catch (...) { // a sink's trouble is not the transfer's
        }
    }
    [[nodiscard]] std::size_t total() const noexcept { return total_; }

private:
    ProgressSink sink_;
    std::size_t total_;
    std::atomic<std::size_t> done_{0};
};

} // namespace memsaver::inline v0_1
