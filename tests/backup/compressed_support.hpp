// Compressed with small sizes.
#pragma once

#include "memsaver/backup/compressed.hpp"

#include <utility>

namespace test {
using namespace memsaver;

/// Two pieces of two chunks.
template <class P>
Compressed<P> compressed(P policy) {
    return {.policy = std::move(policy), .piece_bytes = 2_MiB, .pieces = 2};
}
} // namespace test
