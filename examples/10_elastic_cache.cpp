// A paged key-value cache that grows with the load and releases memory when another tag needs it. On a GPU, kernels
// read its pages through a page table; the addresses of the pages never change.
#include <memsaver/memsaver.hpp>

#include <cstddef>
#include <iostream>
#include <vector>

using namespace memsaver;

namespace {

/// Commits and releases memory in steps of four pages. A page that a sequence frees keeps its memory for the next
/// sequence until a reclaim releases the step. Not thread-safe.
class PagedCache {
public:
    static constexpr std::size_t page_bytes = 1_MiB;
    static constexpr std::size_t step_bytes = 4 * page_bytes;

    PagedCache(const Arena& arena, std::size_t steps) : pages_of_(steps), has_memory_(steps), used_(4 * steps) {
        kv_ = arena.elastic(steps * step_bytes, {.granularity = step_bytes,
                                                 .on_reclaim = [this](std::size_t wanted) { return shrink(wanted); }});
    }

    /// Returns the lowest free page. Throws OutOfMemory if there is no memory for another step; the caller must evict a
    /// sequence.
    std::size_t take() {
        std::size_t page = 0;
        while (used_.at(page)) ++page;
        kv_.commit(page * page_bytes, page_bytes); // rounds outward to whole steps; a no-op if the step is committed
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
    /// Releases steps without used pages, highest first.
    std::size_t shrink(std::size_t wanted) {
        std::size_t released = 0;
        for (std::size_t step = pages_of_.size(); step-- != 0 && released < wanted;) {
            if (!has_memory_[step] || pages_of_[step] != 0) continue;
            kv_.release(step * step_bytes, step_bytes); // released after all work submitted so far
            has_memory_[step] = false;
            released += step_bytes;
        }
        return released;
    }

    std::vector<int> pages_of_; // number of used pages in each step
    std::vector<bool> has_memory_;
    std::vector<bool> used_; // for each page
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

    const Buffer<char> draft{saver.arena("draft"), 60_MiB}; // does not fit, so on_reclaim is called
    std::cout << "after allocating a draft model: " << format_bytes(cache.bytes()) << '\n' << saver.usage();
    const bool shrunk = cache.bytes() < 40_MiB;
    for (int i = 0; i < 20; ++i) {
        if (cache.data(pages[static_cast<std::size_t>(i)])[0] != static_cast<char>(i)) return 1; // used pages stay
    }
    return shrunk ? 0 : 1;
}
