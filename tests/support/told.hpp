// Records events from any thread.
#pragma once

#include "memsaver/core/event.hpp"

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace test {
using namespace memsaver;

struct Told {
    [[nodiscard]] EventSink sink() {
        return [events = events_](const Event& event) {
            const std::lock_guard lock{events->mutex};
            events->list.push_back(event);
        };
    }
    [[nodiscard]] std::vector<Event> all() const {
        const std::lock_guard lock{events_->mutex};
        return events_->list;
    }
    [[nodiscard]] std::vector<Event> of(EventKind kind) const {
        std::vector<Event> some = all();
        std::erase_if(some, [&](const Event& event) { return event.kind != kind; });
        return some;
    }
    [[nodiscard]] std::vector<std::string> texts(EventKind kind = EventKind::ignored) const {
        std::vector<std::string> texts;
        for (const Event& event : of(kind)) texts.push_back(event.text);
        return texts;
    }
    void clear() {
        const std::lock_guard lock{events_->mutex};
        events_->list.clear();
    }

private:
    struct Events {
        std::mutex mutex;
        std::vector<Event> list;
    };
    std::shared_ptr<Events> events_ = std::make_shared<Events>();
};
} // namespace test
