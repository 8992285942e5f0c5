// The definitions of core/, for one file of a program: see memsaver/impl.hpp.
#pragma once

#include "memsaver/core/core.hpp"

#include "memsaver/core/definitions.ipp"
#include "memsaver/core/error.ipp"
#include "memsaver/core/event.ipp"
#include "memsaver/core/order.ipp"
#include "memsaver/core/ranges.ipp"
#include "memsaver/core/report.ipp"
#include "memsaver/core/sizes.ipp"
#include "memsaver/core/status.ipp"
#include "memsaver/core/tags.ipp"
#include "memsaver/core/text.ipp"
#include "memsaver/core/thread_mark.ipp"
#include "memsaver/core/usage.ipp"
