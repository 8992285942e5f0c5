// What the library tells a program that wants to know, besides what it returns and throws.
#pragma once

#include "memsaver/core/form.hpp"

#include <cstddef>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>

namespace memsaver::inline v0_2 {

/// What an Event tells of.
enum class EventKind : unsigned char {
    ignored,   ///< a failure where nothing could be thrown: in a destructor, or while another failure was undone
    retried,   ///< the device had no room; memory that nobody used was given back and the call tried again
    trimmed,   ///< memory that nobody used was given back
    fell_back, ///< something is done in a slower way than was asked for
    warned,    ///< something was done as asked that may not have been meant; `text` says how to ask for it by name
    began,     ///< a pause, resume, trim, save, restore or capture, as `text` says; `ended` follows, whatever happens
    ended,     ///< the same `tag`, `device` and `text` as when it began, perhaps on another thread
    progress,  ///< `bytes_done` of `bytes_total` have been copied
};

/// What an EventSink is told.
struct Event {
    EventKind kind = EventKind::progress;
    std::string tag;             ///< the tag concerned; of `began` and `ended`, perhaps several: "weights, kv_cache"
    int device = 0;              ///< the number of the device concerned
    std::string text;            ///< what happened, for people
    std::size_t bytes_done = 0;  ///< copied so far, of `progress`; given back, of pools that were `trimmed`
    std::size_t bytes_total = 0; ///< to copy in all, of `progress`; held before, of such pools
};

/// Called on whatever thread has something to tell, perhaps in the middle of a call that holds a lock: it must not call
/// back into the saver. What it throws is swallowed.
using EventSink = std::function<void(const Event&)>;

/// "ignored", "retried" and so on.
[[nodiscard]] const char* name_of(EventKind kind) noexcept;

/// Writes a line for each event to standard error, but for `progress`, `began` and `ended`, which are many.
[[nodiscard]] EventSink stderr_sink();

/// Writes every event to `file` as a line of JSON: {"kind":"trimmed","tag":"weights","device":0,"text":"...",
/// "bytes_done":0,"bytes_total":0}. Each line is written as a whole and flushed; bytes that are no UTF-8 pass as they
/// are. Does not own the file, which must outlive the sink.
[[nodiscard]] EventSink json_lines_sink(std::FILE* file);

namespace detail {

/// Tells a sink, if there is one; never throws.
template <class MakeEvent>
void tell(const EventSink& sink, MakeEvent&& make_event) noexcept {
    if (!sink) return;
    try {
        sink(make_event());
    } catch (...) { // a sink's trouble is not its teller's
    }
}

/// A text as JSON has it, in quotation marks; bytes that are no UTF-8 pass as they are.
[[nodiscard]] std::string json_quoted(const std::string& text);

/// The event as one line of JSON, without the line's end.
[[nodiscard]] std::string json_of(const Event& event);

/// Tells `began` when it is made and, however that comes about, `ended` when it dies, with the same tag, device and
/// text; perhaps on another thread. Costs nothing where nobody listens. Move-only, never throws. The sink outlives it.
class Span {
public:
    Span() = default;
    Span(const EventSink& sink, const std::string& tag, int device, const char* text) noexcept;
    Span(Span&& other) noexcept : sink_{std::exchange(other.sink_, nullptr)}, told_{std::move(other.told_)} {}
    Span& operator=(Span&& other) noexcept;
    ~Span() { end(); }

    void end() noexcept;

private:
    const EventSink* sink_ = nullptr;
    Event told_;
};

} // namespace detail

} // namespace memsaver::inline v0_2

#ifndef MEMSAVER_COMPILED
#include "memsaver/core/event.ipp"
#endif
