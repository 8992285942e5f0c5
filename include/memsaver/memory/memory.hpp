// The door of memory/: move-only owners of what a driver gives. They do not know why it is held.
#pragma once

#include "memsaver/memory/extent.hpp"
#include "memsaver/memory/host_budget.hpp"
#include "memsaver/memory/host_region.hpp"
#include "memsaver/memory/host_regions.hpp"
#include "memsaver/memory/mapping.hpp"
#include "memsaver/memory/owned_event.hpp"
#include "memsaver/memory/owned_file.hpp"
#include "memsaver/memory/owned_stream.hpp"
#include "memsaver/memory/physical_block.hpp"
#include "memsaver/memory/pinned_buffer.hpp"
#include "memsaver/memory/reservation.hpp"
#include "memsaver/memory/settle.hpp"
