// Makes room on a device from memory that no tag uses. Does not know who wants it.
#pragma once

#include "memsaver/arena/arena.hpp"
#include "memsaver/saver/tag_table.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

namespace memsaver::inline v0_1 {

/// Trims the arenas of a table without waiting for anything or anybody. Thread safe; takes the table's lock for a look
/// only.
template <Driver D>
class Relief {
public:
    Relief(TagTable<D>& tags, const EventSink& events) : tags_{tags}, events_{events} {}

    /// Gives back unused memory on a device. `busy`: arenas whose turns the caller holds. Whether there was any.
    bool on(int device, const std::vector<ArenaCore<D>*>& busy = {}) {
        std::size_t released = 0;
        for (const auto& tag : tags_.snapshot()) {
            if (tag.core == nullptr || tag.driver.device() != device) continue;
            const bool ours = std::find(busy.begin(), busy.end(), tag.core) != busy.end();
            const auto turn = ours ? std::nullopt : tag.core->try_turn();
            if (ours || turn) released += trim_now(*tag.core);
        }
        if (released == 0) return false;
        tell(events_, [&] {
            return Event{EventKind::retried, "", device,
                         "no room: gave back " + format_bytes(released) + " that nobody used"};
        });
        return true;
    }
    /// The same on every device of `busy`.
    bool on_all(const std::vector<ArenaCore<D>*>& busy) {
        bool any = false;
        std::vector<int> devices;
        for (const ArenaCore<D>* core : busy) {
            if (std::find(devices.begin(), devices.end(), core->device()) != devices.end()) continue;
            devices.push_back(core->device());
            any = on(core->device(), busy) || any;
        }
        return any;
    }

    /// Answers what `act()` answers; where that finds no room on `device`, once more if some could be made.
    template <class Act>
    auto or_again(int device, Act&& act) {
        try {
            return act();
        } catch (const OutOfMemory&) {
            if (!on(device)) throw;
        }
        return act();
    }

private:
    TagTable<D>& tags_;
    const EventSink& events_;
};

} // namespace memsaver::inline v0_1
