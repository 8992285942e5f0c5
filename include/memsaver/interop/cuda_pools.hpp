// Releases memory cached by CUDA's own allocators: stream-ordered pools (cudaMallocAsync, and frameworks that use it),
// and the memory of graphs that contain allocations.
#pragma once

#include "memsaver/core/macros_off.hpp"

#include "memsaver/saver/memory_saver.hpp"

#include <cstddef>
#include <vector>

namespace memsaver::inline v0_3 {

/// Bytes reserved by pools before and after trimming, whether in use or not.
struct TrimmedPools {
    std::size_t before_bytes = 0;
    std::size_t after_bytes = 0;
};

/// Releases unused memory of CUDA's pools after a pause: `Hook trim = saver.after_pause(trim_cuda_pools);`. Trims on
/// every device that has tags of the saver; a no-op if the driver has no pools.
///
/// Reports an event (`trimmed`, with the bytes held before and after), and adds a row "CUDA pools" to the report:
/// released bytes, and the remaining bytes as held bytes. Failures are reported as `ignored` events, because the pause
/// has succeeded.
struct TrimCudaPools {
    /// Also trim after every resume, before it returns, so that an engine that pauses and resumes in place holds no
    /// more memory than it needs, whatever ran in between (such as a weight update). Costs microseconds if there is
    /// nothing to trim.
    bool after_resume = true;
    /// Also release the memory that graphs with allocations keep between launches.
    bool graph_memory = true;
    /// Bytes that every pool may keep.
    std::size_t keep_bytes = 0;
    /// Additional pools of the program (cudaMemPool_t, CUmemoryPool), on the saver's device; each device's default pool
    /// is always trimmed. The pools must outlive the hook.
    std::vector<PoolRef> pools{};

    /// Trims now. Throws the exception for a failed driver call.
    [[nodiscard]] TrimmedPools trim(const AnyDriver& driver, bool own_pools = true) const;

    // Called by MemorySaver::after_pause and after_resume.

    /// Adds a hook that trims after every pause and, with `after_resume`, one that trims after every resume. The
    /// returned Hook owns both.
    [[nodiscard]] Hook install_after_pause(detail::SaverCore& core) const;
    /// Adds only a hook that trims after every resume.
    [[nodiscard]] Hook install_after_resume(detail::SaverCore& core) const;

private:
    static std::size_t held(const AnyDriver& driver, const PoolRef& pool);

    void run(detail::SaverCore& core, Report& report) const;
    static void note(const EventSink& events, int device, const TrimmedPools& trimmed, Report& report);
};

/// The type of `trim_cuda_pools`; costs nothing if unused. Its methods are those of TrimCudaPools{}.
struct TrimCudaPoolsByDefault {
    /// See TrimCudaPools::trim.
    [[nodiscard]] TrimmedPools trim(const AnyDriver& driver) const { return TrimCudaPools{}.trim(driver); }
    /// See TrimCudaPools::install_after_pause.
    [[nodiscard]] Hook install_after_pause(detail::SaverCore& core) const {
        return TrimCudaPools{}.install_after_pause(core);
    }
    /// See TrimCudaPools::install_after_resume.
    [[nodiscard]] Hook install_after_resume(detail::SaverCore& core) const {
        return TrimCudaPools{}.install_after_resume(core);
    }
};

/// Trims CUDA's own pools after every pause and every resume: `saver.after_pause(trim_cuda_pools)`.
inline constexpr TrimCudaPoolsByDefault trim_cuda_pools{};

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/interop/cuda_pools.ipp"
#endif

#include "memsaver/core/macros_on.hpp"
