// All definitions of the library, for exactly one source file of a program; the others only declare, and compile in
// about a second. All of them are compiled with -DMEMSAVER_COMPILED, and none links memsaver::compiled. In a program
// whose other files are header-only this file does no harm.
#pragma once

#ifndef MEMSAVER_COMPILED
#ifdef MEMSAVER_INLINE
#error "include memsaver/impl.hpp before the other headers of memsaver, or compile with -DMEMSAVER_COMPILED"
#endif
#define MEMSAVER_COMPILED
#endif

#include "memsaver/core/form.hpp"

#ifdef MEMSAVER_USABLE
#include "memsaver/core/macros_off.hpp"

#include "memsaver/memsaver.hpp"

#include "memsaver/backup/impl.hpp"
#include "memsaver/core/impl.hpp"
#include "memsaver/driver/impl.hpp"
#include "memsaver/graph/impl.hpp"
#include "memsaver/host/impl.hpp"
#include "memsaver/interop/impl.hpp"
#include "memsaver/saver/impl.hpp"

#include "memsaver/core/macros_on.hpp"
#endif
