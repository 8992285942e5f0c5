// Something that takes time, as a sink is told of it: that it began, and that it has ended.
#pragma once

#include "memsaver/base/event.hpp"

#include <string>
#include <utility>

namespace memsaver::inline v0_1 {

/// Tells `began` when it is made and, however that comes about, `ended` when it dies, with the same tag, device and
/// text; perhaps on another thread. Costs nothing where nobody listens. Move-only, never throws. The sink outlives it.
class Span {
public:
    Span() = default;
    Span(const EventSink& sink, const std::string& tag, int device, const char* text) noexcept {
        if (!sink) return;
        try {
            told_ = {EventKind::began, tag, device, text};
            sink_ = &sink;
        } catch (...) { // no memory for the text: nothing is told
            return;
        }
        tell(sink, [&] { return told_; });
    }
    Span(Span&& other) noexcept : sink_{std::exchange(other.sink_, nullptr)}, told_{std::move(other.told_)} {}
    Span& operator=(Span&& other) noexcept {
        if (this != &other) {
            end();
            sink_ = std::exchange(other.sink_, nullptr);
            told_ = std::move(other.told_);
        }
        return *this;
    }
    ~Span() { end(); }

    void end() noexcept {
        if (sink_ == nullptr) return;
        told_.kind = EventKind::ended;
        tell(*std::exchange(sink_, nullptr), [&] { return told_; });
    }

private:
    const EventSink* sink_ = nullptr;
    Event told_;
};

} // namespace memsaver::inline v0_1
