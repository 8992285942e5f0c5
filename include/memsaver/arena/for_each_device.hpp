// Does the same for several devices at once. Does not know what.
#pragma once

#include "memsaver/backup/backup.hpp"
#include "memsaver/transfer/transfer.hpp"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <exception>
#include <mutex>
#include <vector>

namespace memsaver::inline v0_1 {

/// Calls `act(item)` for every item; those of different devices at the same time, those of one device in order. The
/// first device's run here, each other one's on a thread of its own, near that device, or here too where no thread is
/// to be had. Where `act` throws, the rest of that device is left out. All have ended when it returns; then the first
/// exception is thrown again. Throws bad_alloc before anything has run.
template <class Item, class Act>
void for_each_device(std::vector<Item>& items, Act&& act) {
    std::vector<int> device_of; // asked before anything runs: an item that `act` ends on one thread is none to ask
    std::vector<std::size_t> firsts;
    device_of.reserve(items.size());
    for (const Item& item : items) {
        const int device = item.driver().device();
        const bool known = std::find(device_of.begin(), device_of.end(), device) != device_of.end();
        if (!known) firsts.push_back(device_of.size());
        device_of.push_back(device);
    }
    std::mutex mutex;
    std::exception_ptr failure;
    const auto run = [&](std::size_t first) noexcept {
        for (std::size_t i = first; i < items.size(); ++i) {
            if (device_of[i] != device_of[first]) continue;
            try {
                act(items[i]);
            } catch (...) {
                const std::lock_guard lock{mutex};
                if (!failure) failure = std::current_exception();
                return;
            }
        }
    };
    {
        std::deque<Crew> threads; // which end with it
        for (std::size_t k = 1; k < firsts.size(); ++k) {
            const std::size_t first = firsts[k];
            try {
                threads.emplace_back(CrewOptions{1, {}, numa_node_of(items[first].driver())}).start(1, [&run, first] {
                    run(first);
                });
            } catch (...) { // not even memory for a thread; nothing of this device has run
                run(first);
            }
        }
        if (!firsts.empty()) run(firsts.front());
    }
    if (failure) std::rethrow_exception(failure);
}

} // namespace memsaver::inline v0_1
