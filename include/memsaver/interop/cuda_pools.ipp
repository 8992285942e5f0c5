// Definitions of cuda_pools.hpp.
#pragma once

#include "memsaver/interop/cuda_pools.hpp"
#include "memsaver/saver/saver_core.hpp"

#include <algorithm>
#include <exception>
#include <utility>

namespace memsaver::inline v0_3 {

MEMSAVER_INLINE TrimmedPools TrimCudaPools::trim(const AnyDriver& driver, bool own_pools) const {
    std::vector<PoolRef> all{PoolRef{}};
    if (graph_memory) all.push_back(PoolRef::of_graphs());
    if (own_pools) all.insert(all.end(), pools.begin(), pools.end());
    TrimmedPools sums;
    for (const PoolRef& pool : all) {
        sums.before_bytes += held(driver, pool);
        check(driver.trim_pool(pool, keep_bytes), "trim a memory pool");
        sums.after_bytes += held(driver, pool);
    }
    return sums;
}

MEMSAVER_INLINE Hook TrimCudaPools::install_after_pause(detail::SaverCore& core) const {
    Hook paused = core.add_hook(detail::HookKind::after_pause,
                                [trim = *this, &core](PauseEvent& event) { trim.run(core, event.report); });
    return after_resume ? Hook{std::move(paused), install_after_resume(core)} : std::move(paused);
}

MEMSAVER_INLINE Hook TrimCudaPools::install_after_resume(detail::SaverCore& core) const { // the core outlives its hooks
    return core.add_hook(detail::HookKind::after_resume,
                         [trim = *this, &core](ResumeEvent& event) { trim.run(core, event.report); });
}

MEMSAVER_INLINE std::size_t TrimCudaPools::held(const AnyDriver& driver, const PoolRef& pool) {
    std::size_t bytes = 0;
    check(driver.pool_memory(pool, bytes), "query the size of a memory pool");
    return bytes;
}

MEMSAVER_INLINE void TrimCudaPools::run(detail::SaverCore& core, Report& report) const {
    const auto or_tell = [&](int device, const auto& act) { // the pause has succeeded: report failures, do not throw
                                                            // them
        try {
            act();
        } catch (const Unavailable&) { // this driver has no pools
        } catch (const std::exception& error) {
            detail::tell(core.events(), EventKind::ignored, "", device, {error.what()});
        }
    };
    or_tell(core.driver().device(), [&] {
        for (const AnyDriver& driver : core.drivers()) {
            or_tell(driver.device(),
                    [&] { note(core.events(), driver.device(), trim(driver, driver == core.driver()), report); });
        }
    });
}

MEMSAVER_INLINE void TrimCudaPools::note(const EventSink& events, int device, const TrimmedPools& trimmed,
                                         Report& report) {
    const std::size_t released = trimmed.before_bytes - std::min(trimmed.before_bytes, trimmed.after_bytes);
    detail::tell(events, EventKind::trimmed, "", device,
                 {"CUDA pools: ", detail::in_bytes(trimmed.before_bytes), " reserved before, ",
                  detail::in_bytes(trimmed.after_bytes), " after"},
                 released, trimmed.before_bytes);
    if (trimmed.before_bytes == 0) return;
    TagReport row;
    row.tag = "CUDA pools";
    row.device = device;
    row.released_bytes = released;
    row.held_bytes = trimmed.after_bytes;
    report.add(std::move(row));
}

} // namespace memsaver::inline v0_3
