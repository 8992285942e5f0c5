// What a stream has been given so far, for arenas of other devices.
#pragma once

#include "memsaver/arena/arena.hpp"
#include "memsaver/memory/memory.hpp"

#include <utility>

namespace memsaver::inline v0_1 {

template <Streams D>
class StreamMark final : public WorkMark {
public:
    /// `driver`: of the stream's device. Throws what a failing driver call stands for.
    StreamMark(D driver, StreamRef stream) : driver_{std::move(driver)} {
        check(event_.open(driver_, stream), "open an event");
        check(driver_.record(event_.get(), stream), "record an event");
    }

    Status query(bool& passed) const noexcept override { return driver_.query(event_.get(), passed); }
    Status wait() const noexcept override { return driver_.wait(event_.get()); }

private:
    D driver_;
    OwnedEvent<D> event_;
};

} // namespace memsaver::inline v0_1
