// `Use`: keeps tags resident for as long as it lives. Knows nothing about how tags are resumed.
#pragma once

#include "memsaver/core/handles.hpp"
#include "memsaver/core/pointers.hpp"
#include "memsaver/fwd.hpp"
#include "memsaver/saver/use_options.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace memsaver::inline v0_3 {

/// Keeps tags in use, so that they are not paused: their memory is resident, at its usual addresses, from
/// MemorySaver::use until this object is destroyed and the work marked by `until` has completed. Move-only; may be
/// destroyed on any thread. It is held by the thread that made it or moved it last, and that thread does not wait for
/// other uses; once that thread has ended, no thread holds it. A default-constructed, moved-from or released Use holds
/// nothing. Keeps the saver's core alive; after `close()`, and in a forked child, the destructor is silent.
class Use {
public:
    Use() noexcept;
    Use(Use&& other) noexcept;
    Use& operator=(Use&& other) noexcept;
    ~Use();

    /// Keeps the tags resident until `stream` has completed all work submitted to it so far. The stream may belong to
    /// any of the tags' devices, and may be closed after the call. Does not wait; may be called for several streams.
    /// Throws Misuse if the stream is being captured or the use holds nothing, or the exception for a failed driver
    /// call; then the use is unchanged.
    void until(StreamRef stream);
    /// As above, for the default stream of each of the tags' devices.
    void until(std::nullptr_t) { until(StreamRef{}); }
    /// As above, for a recorded event, which may be recorded again or closed after the call.
    void until(EventRef event);

    /// Returns the tags whose bytes were discarded (by a policy that keeps none, or by a one-time override) and must be
    /// filled again. A loss is reported to every use until one that was told of it has ended.
    [[nodiscard]] std::vector<std::string> lost() const;

    /// Ends the use now. Submitted work that was not marked by `until` must have completed. A no-op if the use holds
    /// nothing.
    void release() noexcept;

    /// Returns whether the use holds its tags.
    [[nodiscard]] explicit operator bool() const noexcept { return record_ != nullptr; }

private:
    friend class detail::SaverCore;
    Use(std::shared_ptr<detail::SaverCore> saver, detail::UniquePtr<detail::UseRecord> record) noexcept;

    std::shared_ptr<detail::SaverCore> saver_; // declared first, so that it is destroyed last
    detail::UniquePtr<detail::UseRecord> record_;
};

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/saver/use.ipp"
#endif
