// The door of arena/: one tag's memory on one device. It does not know other tags.
#pragma once

#include "memsaver/arena/arena_base.hpp"
#include "memsaver/arena/arena_core.hpp"
#include "memsaver/arena/operation_options.hpp"
#include "memsaver/arena/order.hpp"
#include "memsaver/arena/run_steps.hpp"
#include "memsaver/arena/tagged_arena.hpp"
