// The door of saver/: what programs use. It does not know graphs.
#pragma once

#include "memsaver/saver/arena_handle.hpp"
#include "memsaver/saver/buffer.hpp"
#include "memsaver/saver/hooks.hpp"
#include "memsaver/saver/memory_saver.hpp"
#include "memsaver/saver/region.hpp"
#include "memsaver/saver/usage.hpp"
