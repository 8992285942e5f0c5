// What CUDA's own allocators keep: stream-ordered pools (cudaMallocAsync, and frameworks that use it), and the memory
// of graphs with allocations of their own. Does not know what is in them.
#pragma once

#include "memsaver/saver/memory_saver.hpp"

#include <cstddef>
#include <vector>

namespace memsaver::inline v0_2 {

/// Bytes that pools held before and after they were trimmed, whether in use or not.
struct TrimmedPools {
    std::size_t before_bytes = 0;
    std::size_t after_bytes = 0;
};

/// Gives back, after a pause, what pools keep and nobody uses: `Hook trim = saver.after_pause(trim_cuda_pools);`. On
/// every device that the saver's tags live on; where the driver has no pools it does nothing.
///
/// What it did is told as an event (`trimmed`, with the bytes held before and after), and is a row "CUDA pools" in the
/// report: released bytes, and as held bytes what is left. What fails is told as `ignored`: the pause has succeeded.
struct TrimCudaPools {
    /// Also after every resume, before it returns: an engine that pauses in place and goes on then has no more than it
    /// needs, whatever ran in between (a weight update). Costs microseconds where there is nothing to trim.
    bool after_resume = true;
    /// Also the memory that graphs with allocations of their own keep between launches.
    bool graph_memory = true;
    /// Bytes that every pool may keep.
    std::size_t keep_bytes = 0;
    /// Pools of the program's own (cudaMemPool_t, CUmemoryPool), on the saver's device; each device's default pool is
    /// trimmed anyway. They live as long as the hook.
    std::vector<PoolRef> pools{};

    /// Trims now. Throws what a failing driver call stands for.
    [[nodiscard]] TrimmedPools trim(const AnyDriver& driver, bool own_pools = true) const;

    // What MemorySaver::after_pause and after_resume ask for.

    /// Adds a hook that trims after every pause and, with `after_resume`, one that trims after every resume. Both end
    /// with what it answers.
    [[nodiscard]] Hook install_after_pause(detail::SaverCore& core) const;
    /// Adds a hook that trims after every resume, and after nothing else.
    [[nodiscard]] Hook install_after_resume(detail::SaverCore& core) const;

private:
    static std::size_t held(const AnyDriver& driver, const PoolRef& pool);

    void run(detail::SaverCore& core, Report& report) const;
    static void note(const EventSink& events, int device, const TrimmedPools& trimmed, Report& report);
};

/// The type of `trim_cuda_pools`; costs nothing where that is not used. Its methods are those of a TrimCudaPools{}.
struct TrimCudaPoolsByDefault {
    /// As TrimCudaPools::trim.
    [[nodiscard]] TrimmedPools trim(const AnyDriver& driver) const;
    /// As TrimCudaPools::install_after_pause.
    [[nodiscard]] Hook install_after_pause(detail::SaverCore& core) const;
    /// As TrimCudaPools::install_after_resume.
    [[nodiscard]] Hook install_after_resume(detail::SaverCore& core) const;
};

/// What CUDA's own pools keep goes back after every pause and every resume: `saver.after_pause(trim_cuda_pools)`.
inline constexpr TrimCudaPoolsByDefault trim_cuda_pools{};

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/interop/cuda_pools.ipp"
#endif
