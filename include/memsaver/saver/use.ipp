// Definitions of use.hpp.
#pragma once

#include "memsaver/core/pointers.hpp"
#include "memsaver/saver/residents.hpp"
#include "memsaver/saver/saver_core.hpp"
#include "memsaver/saver/saver_state.hpp"
#include "memsaver/saver/use.hpp"

#include <utility>

namespace memsaver::inline v0_3 {

MEMSAVER_INLINE Use::Use() noexcept = default;

MEMSAVER_INLINE Use::Use(std::shared_ptr<detail::SaverCore> saver, detail::UniquePtr<detail::UseRecord> record) noexcept
    : saver_{std::move(saver)}, record_{std::move(record)} {}

MEMSAVER_INLINE Use::Use(Use&& other) noexcept : saver_{std::move(other.saver_)}, record_{std::move(other.record_)} {
    if (record_ != nullptr && !saver_->forked()) saver_->state().tags_.residents().take_over(*record_);
}

MEMSAVER_INLINE Use& Use::operator=(Use&& other) noexcept {
    Use taken{std::move(other)}; // what this had ends with it
    saver_.swap(taken.saver_);
    std::swap(record_, taken.record_);
    return *this;
}

MEMSAVER_INLINE Use::~Use() { release(); }

MEMSAVER_INLINE void Use::until(StreamRef stream) {
    if (record_ == nullptr) detail::misuse({"until(stream) of an empty or moved-from Use"});
    saver_->boundary("until", [&] {
        detail::SaverState& state = saver_->state();
        for (const AnyDriver& driver : state.owners_of(*record_, stream)) {
            if (detail::being_captured(driver, stream))
                detail::misuse({"until(stream): the stream is being captured, so its work cannot be waited for"});
            state.tags_.residents().add_mark(*record_, detail::new_shared<detail::StreamMark>(driver, stream));
        }
    });
}

MEMSAVER_INLINE void Use::until(EventRef event) {
    if (record_ == nullptr) detail::misuse({"until(event) of an empty or moved-from Use"});
    saver_->boundary("until", [&] {
        if (!event) detail::misuse({"until(event): the event is null"});
        detail::SaverState& state = saver_->state();
        for (const AnyDriver& driver : state.owners_of(*record_, event))
            state.tags_.residents().add_mark(*record_, detail::new_shared<detail::StreamMark>(driver, event));
    });
}

MEMSAVER_INLINE std::vector<std::string> Use::lost() const {
    return record_ == nullptr ? std::vector<std::string>{}
                              : detail::translated([&] { return record_->lost(); }); // may run out of host memory
}

MEMSAVER_INLINE void Use::release() noexcept {
    if (record_ == nullptr) return;
    if (saver_->forked()) {
        (void)record_.release(); // it belongs to the parent
    } else {
        saver_->state().tags_.residents().end(std::move(record_));
    }
    saver_.reset();
}

} // namespace memsaver::inline v0_3
