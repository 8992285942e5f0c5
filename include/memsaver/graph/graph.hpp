// CUDA graphs whose memory is paused with a tag, and workspaces that graphs share.
#pragma once

#include "memsaver/core/macros_off.hpp"

#include "memsaver/graph/capture.hpp"
#include "memsaver/graph/workspace_pool.hpp"

#include "memsaver/core/macros_on.hpp"
