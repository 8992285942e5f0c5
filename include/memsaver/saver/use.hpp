// Use: tags that are here for as long as it lives. Does not know how they come.
#pragma once

#include "memsaver/core/handles.hpp"
#include "memsaver/saver/use_options.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace memsaver::inline v0_2 {

namespace detail {
class SaverCore;
class UseRecord;
} // namespace detail

/// Tags that are in use, and so are not paused: their memory is here, at the addresses that it always had, from
/// MemorySaver::use until this ends and what `until` marked has passed. Move-only, may end on any thread. Held by the
/// thread that made it or moved it last, which does not wait for other uses meanwhile. Move it before that thread ends:
/// the system gives the ids of ended threads to new ones, which would be taken for the holder. A default one, one that
/// was moved from and one that was released hold nothing. Keeps the saver's core alive; after `close()`, and in a
/// forked child, its end is quiet.
class Use {
public:
    Use() noexcept;
    Use(Use&& other) noexcept;
    Use& operator=(Use&& other) noexcept;
    ~Use();

    /// The tags also stay until `stream`, of any device of theirs, has passed what it was given so far. Does not wait,
    /// and can be called for several. The stream may be closed afterwards. A stream that is being captured, and a use
    /// that holds nothing, are Misuse; throws what a failing driver call stands for, and then the use is as it was.
    void until(StreamRef stream);
    /// The same for the default stream of each of the tags' devices.
    void until(std::nullptr_t) { until(StreamRef{}); }
    /// The same for an event that was recorded, which may be recorded anew or closed afterwards.
    void until(EventRef event);

    /// Those of its tags whose bytes were dropped (by a policy that keeps none, or for once) since a use that was told
    /// of it, or that came before, has ended: they have to be filled anew.
    [[nodiscard]] std::vector<std::string> lost() const;

    /// Ends it now. What was submitted and not marked by `until` must have passed. Of one that holds nothing, does
    /// nothing. Does not throw.
    void release() noexcept;

    /// Whether it holds its tags.
    [[nodiscard]] explicit operator bool() const noexcept { return record_ != nullptr; }

private:
    friend class detail::SaverCore;
    Use(std::shared_ptr<detail::SaverCore> saver, std::unique_ptr<detail::UseRecord> record) noexcept;

    std::shared_ptr<detail::SaverCore> saver_; // declared first, so that it dies last
    std::unique_ptr<detail::UseRecord> record_;
};

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/saver/use.ipp"
#endif
