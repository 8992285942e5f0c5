// Definitions of event.hpp.
#pragma once

#include "memsaver/core/event.hpp"

namespace memsaver::inline v0_3 {

MEMSAVER_INLINE const char* name_of(EventKind kind) noexcept {
    switch (kind) {
    case EventKind::ignored: return "ignored";
    case EventKind::retried: return "retried";
    case EventKind::trimmed: return "trimmed";
    case EventKind::fell_back: return "fell_back";
    case EventKind::warned: return "warned";
    case EventKind::began: return "began";
    case EventKind::ended: return "ended";
    case EventKind::progress: return "progress";
    }
    return "unknown";
}

MEMSAVER_INLINE EventSink stderr_sink() {
    return [](const Event& event) {
        const bool many =
            event.kind == EventKind::progress || event.kind == EventKind::began || event.kind == EventKind::ended;
        if (many) return;
        std::string line = detail::text_of({"memsaver: ", name_of(event.kind), ": "});
        if (!event.tag.empty()) line += detail::text_of({"tag ", detail::in_quotes(event.tag), " on "});
        line += detail::text_of({"device ", detail::in_digits(event.device), ": ", event.text, "\n"});
        (void)std::fwrite(line.data(), 1, line.size(), stderr); // one call, so that lines do not interleave
    };
}

MEMSAVER_INLINE EventSink json_lines_sink(std::FILE* file) {
    return [file](const Event& event) {
        const std::string line = detail::json_of(event) + '\n';
        (void)std::fwrite(line.data(), 1, line.size(), file);
        (void)std::fflush(file);
    };
}

namespace detail {

MEMSAVER_INLINE void tell(const EventSink& sink, EventKind kind, std::string_view tag, int device, Bits text,
                          std::size_t bytes_done, std::size_t bytes_total) noexcept {
    if (!sink) return;
    try {
        sink({kind, std::string{tag}, device, text_of(text), bytes_done, bytes_total});
    } catch (...) { // exceptions of the sink do not concern the caller
    }
}

MEMSAVER_INLINE std::string json_quoted(const std::string& text) {
    std::string all = "\"";
    for (const char c : text) {
        const auto code = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            all += {'\\', c};
        } else if (code >= 0x20) {
            all += c;
        } else {
            char escape[8];
            std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(code));
            all += escape;
        }
    }
    return all + '"';
}

MEMSAVER_INLINE std::string json_of(const Event& event) {
    return text_of({"{\"kind\":\"", name_of(event.kind), "\",\"tag\":", json_quoted(event.tag),
                    ",\"device\":", in_digits(event.device), ",\"text\":", json_quoted(event.text), ",\"bytes_done\":",
                    in_digits(event.bytes_done), ",\"bytes_total\":", in_digits(event.bytes_total), "}"});
}

MEMSAVER_INLINE Span::Span(const EventSink& sink, const std::string& tag, int device, const char* text) noexcept {
    if (!sink) return;
    try {
        event_ = {EventKind::began, tag, device, text};
        sink_ = &sink;
        sink(event_);
    } catch (...) { // no memory for the text: nothing is reported; exceptions of the sink do not concern the caller
    }
}

MEMSAVER_INLINE Span& Span::operator=(Span&& other) noexcept {
    if (this != &other) {
        end();
        sink_ = std::exchange(other.sink_, nullptr);
        event_ = std::move(other.event_);
    }
    return *this;
}

MEMSAVER_INLINE void Span::end() noexcept {
    if (sink_ == nullptr) return;
    event_.kind = EventKind::ended;
    try {
        (*std::exchange(sink_, nullptr))(event_);
    } catch (...) { // as above
    }
}

} // namespace detail

} // namespace memsaver::inline v0_3
