// Definitions of usage.hpp.
#pragma once

#include "memsaver/core/event.hpp"
#include "memsaver/core/lists.hpp"
#include "memsaver/core/ranges.hpp"
#include "memsaver/core/sizes.hpp"
#include "memsaver/core/text.hpp"
#include "memsaver/core/usage.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ostream>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE std::string text_of(const Holder& row) {
    std::string text = text_of({in_quotes(row.tag), " ", in_bytes(row.bytes), row.state.empty() ? "" : " ", row.state});
    return row.users == 0 ? text : text + text_of({" by ", in_digits(row.users)});
}

MEMSAVER_INLINE std::string line_of(const std::vector<Holder>& holders, std::size_t elsewhere) {
    constexpr std::size_t shown = 4;
    detail::Vector<const Holder*> sorted;
    const bool one_device = all_in(holders, [&](const Holder& row) { return row.device == holders.front().device; });
    for (const Holder& row : holders) {
        if (row.bytes != 0) sorted.push_back(&row);
    }
    sort_by(sorted, [](const Holder* row) { return ~static_cast<std::uint64_t>(row->bytes); }); // the largest first
    std::string text;
    for (std::size_t i = 0; i < std::min(shown, sorted.size()); ++i) {
        text += text_of({i == 0 ? "held: " : ", ", text_of(*sorted[i])});
        if (!one_device) text += text_of({" on device ", in_digits(sorted[i]->device)});
    }
    if (sorted.size() > shown) text += text_of({", and ", in_digits(sorted.size() - shown), " more"});
    if (elsewhere != 0)
        text += text_of({sorted.empty() ? "held: " : ", ", in_bytes(elsewhere), " outside this saver's tags"});
    return text;
}

} // namespace detail

MEMSAVER_INLINE std::ostream& operator<<(std::ostream& out, const Holder& row) { return out << detail::text_of(row); }

MEMSAVER_INLINE std::ostream& operator<<(std::ostream& out, const Usage& usage) {
    using Line = std::vector<std::string>;
    const bool residency = detail::any_in(usage, [](const ArenaUsage& row) { return row.evictable; });
    detail::Vector<Line> lines{{"tag", "device", "policy", "state", "reserved", "mapped", "peak", "used", "backed up"}};
    if (residency) lines[0].insert(lines[0].end(), {"users", "age", "priority"});
    for (const ArenaUsage& row : usage) {
        Line& line = lines.emplace_back(Line{row.tag, std::to_string(row.device), row.policy, row.state,
                                             format_bytes(row.reserved_bytes), format_bytes(row.mapped_bytes),
                                             format_bytes(row.peak_mapped_bytes), format_bytes(row.used_bytes),
                                             format_bytes(row.backed_up_bytes)});
        if (!residency) continue;
        char age[32];
        std::snprintf(age, sizeof age, "%.1f s", std::chrono::duration<double>{row.age}.count());
        line.insert(line.end(), {std::to_string(row.users), row.evictable ? age : "-",
                                 row.evictable ? std::to_string(row.priority) : "-"});
    }
    const std::size_t columns = lines[0].size();
    detail::Vector<std::size_t> widths(columns);
    for (const Line& line : lines) {
        for (std::size_t i = 0; i < columns; ++i) widths[i] = std::max(widths[i], line[i].size());
    }
    for (std::size_t n = 0; n < lines.size(); ++n) {
        for (std::size_t i = 0; i < columns; ++i) {
            const std::string room(widths[i] - lines[n][i].size(), ' ');
            const bool left = i == 0 || i == 2 || i == 3; // text is left-aligned, numbers are right-aligned
            out << (i == 0 ? "" : "  ") << (left ? lines[n][i] + room : room + lines[n][i]);
        }
        out << '\n';
        if (n == 0) continue;
        if (const std::size_t held = usage.arenas_[n - 1].held_bytes; held != 0)
            out << "  of these, " << format_bytes(held) << " could not be released yet\n";
    }
    for (const DeviceUsage& device : usage.devices_) {
        out << "device " << device.device << ": ";
        if (!device.known) {
            out << "memory query failed, " << format_bytes(device.mapped_bytes) << " used by these tags\n";
            continue;
        }
        out << format_bytes(device.used_bytes) << " of " << format_bytes(device.total_bytes) << " used, "
            << format_bytes(device.mapped_bytes) << " by these tags, " << format_bytes(device.unexplained_bytes)
            << " by others\n";
    }
    if (usage.host_bytes_ != 0) out << "host: " << format_bytes(usage.host_bytes_) << " used by these tags\n";
    return out;
}

MEMSAVER_INLINE std::string to_json(const Usage& usage) {
    using detail::in_digits, detail::json_quoted;
    std::string json = "{\"arenas\":[";
    const auto begin = [&] { json += json.back() == '[' ? "{" : ",{"; };
    const auto field = [&](const char* name, const detail::Bit& value) {
        json += detail::text_of({json.back() == '{' ? "" : ",", detail::in_quotes(name), ":", value});
    };
    for (const ArenaUsage& row : usage) {
        begin();
        field("tag", json_quoted(row.tag));
        field("device", in_digits(row.device));
        field("policy", json_quoted(row.policy));
        field("state", json_quoted(row.state));
        field("reserved_bytes", in_digits(row.reserved_bytes));
        field("mapped_bytes", in_digits(row.mapped_bytes));
        field("held_bytes", in_digits(row.held_bytes));
        field("used_bytes", in_digits(row.used_bytes));
        field("paused_bytes", in_digits(row.paused_bytes));
        field("backed_up_bytes", in_digits(row.backed_up_bytes));
        field("blocks", in_digits(row.blocks));
        field("elastic_bytes", in_digits(row.elastic_bytes));
        field("peak_mapped_bytes", in_digits(row.peak_mapped_bytes));
        field("pauses", in_digits(row.pauses));
        field("users", in_digits(row.users));
        field("evictable", row.evictable ? "true" : "false");
        field("priority", in_digits(row.priority));
        field("age_ns", in_digits(row.age.count()));
        json += '}';
    }
    json += "],\"devices\":[";
    for (const DeviceUsage& row : usage.devices()) {
        begin();
        field("device", in_digits(row.device));
        field("total_bytes", in_digits(row.total_bytes));
        field("used_bytes", in_digits(row.used_bytes));
        field("mapped_bytes", in_digits(row.mapped_bytes));
        field("unexplained_bytes", in_digits(row.unexplained_bytes));
        field("known", row.known ? "true" : "false");
        json += '}';
    }
    const ResidencyUsage& residency = usage.residency();
    json += "],\"residency\":{";
    field("hits", in_digits(residency.hits));
    field("misses", in_digits(residency.misses));
    field("waits", in_digits(residency.waits));
    field("evictions", in_digits(residency.evictions));
    field("brought_bytes", in_digits(residency.brought_bytes));
    field("restored_bytes", in_digits(residency.restored_bytes));
    field("evicted_bytes", in_digits(residency.evicted_bytes));
    field("saved_bytes", in_digits(residency.saved_bytes));
    json += '}';
    field("host_bytes", in_digits(usage.host_bytes()));
    return json + '}';
}

} // namespace memsaver::inline v0_3
