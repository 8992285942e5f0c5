// One of the files that memsaver::compiled is made of: the definitions of core/. Written by
// cmake/checks/check_tree.py --write-compiled.
#include "memsaver/core/core.hpp"

#include "memsaver/core/error.ipp"
#include "memsaver/core/event.ipp"
#include "memsaver/core/order.ipp"
#include "memsaver/core/ranges.ipp"
#include "memsaver/core/report.ipp"
#include "memsaver/core/sizes.ipp"
#include "memsaver/core/status.ipp"
#include "memsaver/core/tags.ipp"
#include "memsaver/core/usage.ipp"
