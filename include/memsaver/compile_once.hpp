// For programs of many files: what a saver of GPU memory is made of is compiled in one of them, not in each.
#pragma once

#include "memsaver/memsaver.hpp"

/// Include this instead of memsaver.hpp in the files that use `MemorySaver<CudaDriver>`; and in exactly one file of the
/// program, which includes nothing of memsaver before, with MEMSAVER_COMPILE_HERE defined. A file without that is
/// compiled in about half the time (docs/decisions/0016-compile-once.md has what was measured), and does the same;
/// calls of the larger functions are not inlined. Other drivers, policies of your own and everything that is not listed
/// here compile as ever.
#ifdef MEMSAVER_COMPILE_HERE
#define MEMSAVER_COMPILED_ONCE template class
#else
#define MEMSAVER_COMPILED_ONCE extern template class
#endif

namespace memsaver::inline v0_1 {

MEMSAVER_COMPILED_ONCE HostRegion<CudaDriver>;
MEMSAVER_COMPILED_ONCE PinnedTransfer<CudaDriver>;
MEMSAVER_COMPILED_ONCE HostStore<CudaDriver>;
MEMSAVER_COMPILED_ONCE FileStore<CudaDriver>;
MEMSAVER_COMPILED_ONCE RingTransfer<CudaDriver, HostStore<CudaDriver>>;
MEMSAVER_COMPILED_ONCE RingTransfer<CudaDriver, FileStore<CudaDriver>>;
MEMSAVER_COMPILED_ONCE StoredBooks<HostStore<CudaDriver>>;
MEMSAVER_COMPILED_ONCE StoredBooks<FileStore<CudaDriver>>;
MEMSAVER_COMPILED_ONCE StoredSlot<HostStore<CudaDriver>>;
MEMSAVER_COMPILED_ONCE StoredSlot<FileStore<CudaDriver>>;

MEMSAVER_COMPILED_ONCE ArenaPages<CudaDriver>;
MEMSAVER_COMPILED_ONCE QuarantinedRanges<CudaDriver>;
MEMSAVER_COMPILED_ONCE DeferredFrees<CudaDriver>;
MEMSAVER_COMPILED_ONCE Heaps<CudaDriver>;
MEMSAVER_COMPILED_ONCE ArenaMemory<CudaDriver>;
MEMSAVER_COMPILED_ONCE ArenaSlots<CudaDriver>;
MEMSAVER_COMPILED_ONCE ArenaCore<CudaDriver>;
MEMSAVER_COMPILED_ONCE ExtendingBlock<ArenaCore<CudaDriver>, CudaDriver>;
MEMSAVER_COMPILED_ONCE PauseStep<CudaDriver>;
MEMSAVER_COMPILED_ONCE ResumeStep<CudaDriver>;
MEMSAVER_COMPILED_ONCE TrimStep<CudaDriver>;

MEMSAVER_COMPILED_ONCE PlainGrowth<CudaDriver>;
MEMSAVER_COMPILED_ONCE PlainArena<CudaDriver>;
MEMSAVER_COMPILED_ONCE TagTable<CudaDriver>;
MEMSAVER_COMPILED_ONCE SaverCore<CudaDriver>;
MEMSAVER_COMPILED_ONCE MemorySaver<CudaDriver>;

} // namespace memsaver::inline v0_1

#undef MEMSAVER_COMPILED_ONCE
