// A paged key-value cache that grows with the load, and gives room back when another tag needs it. On a GPU, kernels
// read its pages through a page table; their addresses never change.
#include <memsaver/memsaver.hpp>

#include <cstddef>
#include <iostream>
#include <vector>

using namespace memsaver;

namespace {

/// Memory comes and goes in steps of four pages. Pages that a sequence gives up keep theirs for the next one, until
/// somebody asks for it. For one thread.
class PagedCache {
public:
    static constexpr std::size_t page_bytes = 1_MiB;
    static constexpr std::size_t step_bytes = 4 * page_bytes;

    PagedCache(const Arena& arena, std::size_t steps) : pages_of_(steps), has_memory_(steps), used_(4 * steps) {
        kv_ = arena.elastic(steps * step_bytes, {.granularity = step_bytes,
                                                 .on_reclaim = [this](std::size_t wanted) { return shrink(wanted); }});
    }

    /// The lowest free page. OutOfMemory: no room for a step, so a sequence has to go.
    std::size_t take() {
        std::size_t page = 0;
        while (used_.at(page)) ++page;
        kv_.commit(page * page_bytes, page_bytes); // rounded outward; nothing to do where the step has memory
        used_[page] = has_memory_[page / 4] = true;
        pages_of_[page / 4] += 1;
        return page;
    }
    void give(std::size_t page) {
        used_[page] = false;
        pages_of_[page / 4] -= 1;
    }
    [[nodiscard]] char* data(std::size_t page) const { return static_cast<char*>(kv_.data()) + page * page_bytes; }
    [[nodiscard]] std::size_t bytes() const { return kv_.committed_bytes(); }

private:
    /// Steps in which no page is used go, the last first.
    std::size_t shrink(std::size_t wanted) {
        std::size_t released = 0;
        for (std::size_t step = pages_of_.size(); step-- != 0 && released < wanted;) {
            if (!has_memory_[step] || pages_of_[step] != 0) continue;
            kv_.release(step * step_bytes, step_bytes); // gone once the device has passed its work so far
            has_memory_[step] = false;
            released += step_bytes;
        }
        return released;
    }

    std::vector<int> pages_of_; // that are used, of each step
    std::vector<bool> has_memory_;
    std::vector<bool> used_; // each page
    Elastic kv_;
};

} // namespace

int main() {
    MemorySaver<> saver{HostDriver{96_MiB}}; // on a GPU: CudaDriver{0}
    PagedCache cache{saver.arena("kv_cache"), 1024};
    std::vector<std::size_t> pages;
    for (int i = 0; i < 80; ++i) cache.data(pages.emplace_back(cache.take()))[0] = static_cast<char>(i);
    std::cout << "under load: " << format_bytes(cache.bytes()) << '\n';
    for (int i = 20; i < 80; ++i) cache.give(pages[static_cast<std::size_t>(i)]);

    const Buffer<char> draft{saver.arena("draft"), 60_MiB}; // finds no room, so the cache is asked
    std::cout << "beside a draft model: " << format_bytes(cache.bytes()) << '\n' << saver.usage();
    const bool shrunk = cache.bytes() < 40_MiB;
    for (int i = 0; i < 20; ++i) {
        if (cache.data(pages[static_cast<std::size_t>(i)])[0] != static_cast<char>(i)) return 1; // what is used stays
    }
    return shrunk ? 0 : 1;
}
