// Events: notifications that the library sends to a program, in addition to return values and exceptions.
#pragma once

#include "memsaver/core/form.hpp"
#include "memsaver/core/text.hpp"

#include <cstddef>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace memsaver::inline v0_3 {

/// The kind of an Event.
enum class EventKind : unsigned char {
    ignored,   ///< a failure that could not be thrown, in a destructor or during rollback of another failure
    retried,   ///< the device was out of memory; unused memory was released and the call retried
    trimmed,   ///< unused memory was released
    fell_back, ///< a slower method is used than the one requested
    warned,    ///< the call succeeded but may not be what the program intended; `text` gives the explicit alternative
    began,     ///< a pause, resume, exchange, trim, save, restore or capture, named in `text`; `ended` always follows
    ended,     ///< same `tag`, `device` and `text` as the matching `began`; may come from another thread
    progress,  ///< `bytes_done` of `bytes_total` have been copied
};

/// The argument of an EventSink.
struct Event {
    EventKind kind = EventKind::progress;
    std::string tag;             ///< the tag concerned; for `began` and `ended`, possibly several: "weights, kv_cache"
    int device = 0;              ///< the number of the device concerned
    std::string text;            ///< human-readable description
    std::size_t bytes_done = 0;  ///< for `progress`: bytes copied so far; for `trimmed` pools: bytes released
    std::size_t bytes_total = 0; ///< for `progress`: total bytes to copy; for `trimmed` pools: bytes held before
};

/// Called on the thread that reports the event, possibly while a lock is held: it must not call back into the saver,
/// which throws Misuse, nor end an Elastic, a WorkspacePool or an Arrival of it. Exceptions that it throws are
/// swallowed.
using EventSink = std::function<void(const Event&)>;

/// The name of the kind: "ignored", "retried" and so on.
[[nodiscard]] const char* name_of(EventKind kind) noexcept;

/// Writes a line to standard error for each event except `progress`, `began` and `ended`, which are frequent.
[[nodiscard]] EventSink stderr_sink();

/// Writes every event to `file` as a line of JSON: {"kind":"trimmed","tag":"weights","device":0,"text":"...",
/// "bytes_done":0,"bytes_total":0}. Each line is written as a whole and flushed. Bytes that are not valid UTF-8 are
/// passed through unchanged. Does not own the file, which must outlive the sink.
[[nodiscard]] EventSink json_lines_sink(std::FILE* file);

namespace detail {

/// Sends an event with this text to the sink, if there is one. Never throws.
[[gnu::cold]] void tell(const EventSink& sink, EventKind kind, std::string_view tag, int device, Bits text,
                        std::size_t bytes_done = 0, std::size_t bytes_total = 0) noexcept;

/// Quotes and escapes a text as a JSON string. Bytes that are not valid UTF-8 are passed through unchanged.
[[nodiscard]] std::string json_quoted(const std::string& text);

/// The event as one line of JSON, without the newline.
[[nodiscard]] std::string json_of(const Event& event);

/// Reports `began` on construction and `ended` on destruction, with the same tag, device and text. Destruction may
/// happen on another thread. Costs nothing without a sink. Move-only, never throws. The sink must outlive the span.
class Span {
public:
    Span() = default;
    Span(const EventSink& sink, const std::string& tag, int device, const char* text) noexcept;
    Span(Span&& other) noexcept : sink_{std::exchange(other.sink_, nullptr)}, event_{std::move(other.event_)} {}
    Span& operator=(Span&& other) noexcept;
    ~Span() { end(); }

    void end() noexcept;

private:
    const EventSink* sink_ = nullptr;
    Event event_;
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/core/event.ipp"
#endif
