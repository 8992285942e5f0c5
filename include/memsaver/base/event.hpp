// What the library tells a program that wants to know, besides what it returns and throws.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace memsaver::inline v0_1 {

enum class EventKind : unsigned char {
    ignored,   ///< a failure where nothing could be thrown: in a destructor, or while another failure was undone
    retried,   ///< the device had no room; memory that nobody used was given back and the call tried again
    trimmed,   ///< memory that nobody used was given back
    fell_back, ///< something is done in a slower way than was asked for
    began,     ///< a pause, resume, trim, save, restore or capture, as `text` says; `ended` follows, whatever happens
    ended,     ///< the same `tag`, `device` and `text` as when it began, perhaps on another thread
    progress,  ///< `bytes_done` of `bytes_total` have been copied
};

struct Event {
    EventKind kind = EventKind::progress;
    std::string tag;
    int device = 0;
    std::string text;
    std::size_t bytes_done = 0;
    std::size_t bytes_total = 0;
};

/// Called on whatever thread has something to tell, perhaps in the middle of a call that holds a lock: it must not call
/// back into the saver. What it throws is swallowed.
using EventSink = std::function<void(const Event&)>;

/// Tells a sink, if there is one; never throws.
template <class MakeEvent>
void tell(const EventSink& sink, MakeEvent&& make_event) noexcept {
    if (!sink) return;
    try {
        sink(make_event());
    } catch (...) { // a sink's trouble is not its teller's
    }
}

} // namespace memsaver::inline v0_1
