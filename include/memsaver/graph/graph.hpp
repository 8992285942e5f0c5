// The door of graph/: CUDA graphs whose memory is paused with a tag, and workspaces that they share. It does not know
// who runs them.
#pragma once

#include "memsaver/graph/capture.hpp"
#include "memsaver/graph/capture_options.hpp"
#include "memsaver/graph/graph_handle.hpp"
#include "memsaver/graph/workspace_options.hpp"
#include "memsaver/graph/workspace_pool.hpp"
#include "memsaver/graph/workspace_stats.hpp"
