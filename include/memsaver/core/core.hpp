// Plain types: sizes, addresses, errors, events, reports. They know nothing about memory management.
#pragma once

#include "memsaver/core/macros_off.hpp"

#include "memsaver/core/closable.hpp"
#include "memsaver/core/definitions.hpp"
#include "memsaver/core/error.hpp"
#include "memsaver/core/event.hpp"
#include "memsaver/core/finally.hpp"
#include "memsaver/core/form.hpp"
#include "memsaver/core/function_ref.hpp"
#include "memsaver/core/handles.hpp"
#include "memsaver/core/order.hpp"
#include "memsaver/core/pointers.hpp"
#include "memsaver/core/ranges.hpp"
#include "memsaver/core/report.hpp"
#include "memsaver/core/sizes.hpp"
#include "memsaver/core/status.hpp"
#include "memsaver/core/tags.hpp"
#include "memsaver/core/text.hpp"
#include "memsaver/core/thread_mark.hpp"
#include "memsaver/core/time_limit.hpp"
#include "memsaver/core/usage.hpp"
#include "memsaver/core/version.hpp"

#include "memsaver/core/macros_on.hpp"
