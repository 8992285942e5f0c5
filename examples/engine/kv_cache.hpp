// The memory of a paged cache of keys and values, in the tag "cache", whose bytes are discarded. PageTable assigns the
// pages.
#pragma once

#include "kernels.hpp"
#include "model_size.hpp"

#include <memsaver/memsaver.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

namespace engine {

class KvCache {
public:
    /// Allocates the pages that fit into `bytes`, in one buffer per layer.
    KvCache(const memsaver::Arena& arena, const ModelSize& size, int page_tokens, std::size_t bytes)
        : page_tokens_{page_tokens} {
        const std::size_t page_bytes = size.kv_bytes() * static_cast<std::size_t>(page_tokens);
        const std::size_t pages = bytes / (page_bytes * static_cast<std::size_t>(size.layers));
        if (pages < 2) throw std::invalid_argument{"the cache is too small: it needs at least two pages"};
        pages_ = static_cast<int>(std::min<std::size_t>(pages, std::numeric_limits<int>::max()));
        for (int i = 0; i < size.layers; ++i)
            layers_.emplace_back(arena, static_cast<std::size_t>(pages_) * (page_bytes / sizeof(bf16)));
    }

    [[nodiscard]] bf16* layer(std::size_t index) const { return layers_.at(index).data(); }
    [[nodiscard]] std::size_t layer_bytes() const { return layers_.front().size_bytes(); }
    [[nodiscard]] int pages() const noexcept { return pages_; }
    [[nodiscard]] int page_tokens() const noexcept { return page_tokens_; }

private:
    int page_tokens_;
    int pages_ = 0;
    std::vector<memsaver::Buffer<bf16>> layers_;
};

} // namespace engine
