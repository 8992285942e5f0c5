// Shared by the tests of graphs: a stream, host memory that a graph copies to, and bodies of captures.
#pragma once

#include "support/machines.hpp"

namespace test {

inline constexpr CaptureMode capture_modes[] = {CaptureMode::global, CaptureMode::thread_local_, CaptureMode::relaxed};

/// Host memory that a graph copies to.
struct Outbox {
    Outbox(const AnyDriver& driver, std::size_t bytes) : driver_{driver}, bytes_{bytes} {
        REQUIRE(pages_.take(driver_, bytes_).ok());
    }
    /// Enqueues or records a copy of `from`.
    void fetch(const void* from, StreamRef stream) const {
        check(driver_.copy_to_host(pages_.data(), address_of(from), bytes_, stream), "copy to the outbox");
    }
    void clear() const { std::memset(pages_.data(), 0, bytes_); }
    [[nodiscard]] std::vector<unsigned char> bytes() const {
        const auto* const begin = reinterpret_cast<const unsigned char*>(pages_.data());
        return {begin, begin + bytes_};
    }

private:
    AnyDriver driver_;
    std::size_t bytes_;
    PinnedBuffer pages_;
};

/// Allocates every block of `bytes` that still fits into an arena with a capacity.
inline std::vector<void*> all_of(const Arena& arena, std::size_t bytes) {
    std::vector<void*> blocks;
    try {
        for (;;) blocks.push_back(arena.allocate(bytes));
    } catch (const Misuse&) { // the capacity is used up
    }
    return blocks;
}
inline bool has(const std::vector<void*>& blocks, const void* block) {
    return std::find(blocks.begin(), blocks.end(), block) != blocks.end();
}
inline void free_all(const Arena& arena, const std::vector<void*>& blocks) {
    for (void* const block : blocks) arena.deallocate(block, already_idle);
}

template <class D>
void fill_on(const D& driver, const void* block, std::size_t bytes, unsigned char byte, StreamRef stream) {
    check(driver.fill(address_of(block), byte, bytes, stream), "fill");
}

/// A capture by the program's own means: open from construction until `end`. Keeps the graph.
template <class D>
struct OwnCapture {
    OwnCapture(const D& driver, StreamRef stream, CaptureMode mode = CaptureMode::relaxed)
        : driver_{driver}, stream_{stream} {
        REQUIRE(driver_.begin_capture(stream_, mode).ok());
    }
    ~OwnCapture() {
        if (open_) (void)end();
        if (graph_ != GraphRef{}) CHECK(driver_.close_graph(graph_).ok());
    }
    /// Returns whether it is valid.
    bool end() {
        open_ = false;
        return driver_.end_capture(stream_, graph_).ok();
    }
    /// Launches the graph and waits.
    void replay() {
        REQUIRE(driver_.launch(graph_, stream_).ok());
        REQUIRE(driver_.drain().ok());
    }

private:
    D driver_;
    StreamRef stream_;
    GraphRef graph_{};
    bool open_ = true;
};

/// Launches and waits.
template <class D>
void replay(const D& driver, const Graph& graph, StreamRef stream) {
    graph.launch(stream);
    REQUIRE(driver.drain().ok());
}
} // namespace test
