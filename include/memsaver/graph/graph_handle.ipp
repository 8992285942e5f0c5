// Definitions of graph_handle.hpp.
#pragma once

#include "memsaver/graph/graph_handle.hpp"

namespace memsaver::inline v0_3 {

MEMSAVER_INLINE detail::GraphBase& Graph::base() const {
    if (graph_ == nullptr) detail::misuse({"an empty or moved-from Graph was used"});
    return *graph_;
}

} // namespace memsaver::inline v0_3
