// One tag's memory on one device, and its operations. Knows nothing about other tags.
#pragma once

#include "memsaver/core/macros_off.hpp"

#include "memsaver/arena/arriving.hpp"
#include "memsaver/arena/elastic_range.hpp"
#include "memsaver/arena/exchange.hpp"

#include "memsaver/core/macros_on.hpp"
