// What a driver may still hold after all its users are gone: resources whose closing call failed, if nothing is left to
// retry it. Independent of any test framework.
#pragma once

#include "memsaver/testing/testing.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace test {
using namespace memsaver;
using namespace memsaver::detail;

/// Call after a saver has ended without a failing call at its end. Returns one line for each kind of resource of which
/// more is left than calls of its kind failed before; empty if there is none. Memory, addresses, pins and host pages
/// are retried, so none of them may be left.
template <class D>
[[nodiscard]] std::string left_without_reason(const FaultyDriver<D>& driver) {
    const Outstanding left = driver.outstanding();
    std::string text;
    const auto at_most = [&](const char* things, std::size_t count, std::uint64_t most) {
        if (count <= most) return;
        text += std::to_string(count) + ' ' + things + ", where " + std::to_string(most) + " could not be closed\n";
    };
    at_most("events", left.events, driver.injected(Call::close_event));
    at_most("streams", left.streams, driver.injected(Call::close_stream));
    at_most("graphs", left.graphs, driver.injected(Call::close_graph));
    at_most("files", left.files, driver.injected(Call::close_file));
    at_most("reservations", left.reservations, 0);
    at_most("handles", left.handles, 0);
    at_most("mappings", left.mappings, 0);
    at_most("plain allocations", left.plain, 0);
    at_most("pins", left.pins, 0);
    at_most("ranges of host pages", left.host_pages, 0);
    return text.empty() ? text : text + driver.leaks();
}
} // namespace test
