// Definitions of elastic_range.hpp.
#pragma once

#include "memsaver/arena/elastic_range.hpp"
#include "memsaver/core/error.hpp"
#include "memsaver/core/sizes.hpp"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE void ElasticRange::round(const std::string& tag, std::size_t& bytes, std::size_t& step,
                                         std::size_t unit) {
    constexpr std::size_t most_addresses = std::size_t{1} << 56; // upper limit for any device
    const auto refuse_it = [&](const std::string& why) {
        throw Misuse{"tag \"" + tag + "\": an elastic range of " + format_bytes(bytes) + " with a granularity of " +
                     format_bytes(step) + " is invalid: " + why};
    };
    if (step == 0 || step > most_addresses)
        refuse_it("the granularity may be 1 byte to " + format_bytes(most_addresses) +
                  ", and is rounded up to a multiple of " + format_bytes(unit));
    const std::size_t rounded = align_up(step, unit);
    const std::size_t most = most_addresses - most_addresses % rounded;
    if (bytes == 0 || bytes > most)
        refuse_it("the size may be 1 byte to " + format_bytes(most) +
                  ", and is rounded up to a multiple of the granularity");
    step = rounded;
    const std::size_t rest = bytes % rounded; // a step need not be a power of two
    bytes += rest == 0 ? 0 : rounded - rest;
}

MEMSAVER_INLINE void ElasticRange::refuse(const char* what, std::size_t offset, std::size_t bytes,
                                          const std::string& why) const {
    throw Misuse{std::string{what} + " of " + format_bytes(bytes) + " at " + std::to_string(offset) +
                 " in an elastic range of " + format_bytes(this->bytes()) + " at " + format_address(address()) +
                 " in tag \"" + tag_ + "\": " + why};
}

MEMSAVER_INLINE void ElasticRange::check_part(const char* what, std::size_t offset, std::size_t bytes) const {
    if (bytes == 0) refuse(what, offset, bytes, "the size is 0");
    if (offset > this->bytes() || bytes > this->bytes() - offset)
        refuse(what, offset, bytes, "it extends past the end of the range");
}

MEMSAVER_INLINE Range ElasticRange::outward(const char* what, std::size_t offset, std::size_t bytes) const {
    check_part(what, offset, bytes);
    const std::size_t begin = offset / step_ * step_;
    const std::size_t last = (offset + bytes - 1) / step_ * step_; // the step that contains the last byte
    return {address() + begin, last + step_ - begin};
}

MEMSAVER_INLINE Range ElasticRange::inward(const char* what, std::size_t offset, std::size_t bytes) const {
    check_part(what, offset, bytes);
    const std::size_t begin = (offset + step_ - 1) / step_ * step_;
    const std::size_t end = (offset + bytes) / step_ * step_;
    return {address() + begin, end > begin ? end - begin : 0};
}

MEMSAVER_INLINE std::pair<Range, Range> ElasticRange::resizing(std::size_t bytes) const {
    if (bytes > this->bytes()) refuse("resize", 0, bytes, "it extends past the end of the range");
    std::size_t have = has_memory_.size();
    while (have != 0 && !has_memory_[have - 1]) --have;
    const std::size_t want = bytes / step_ + (bytes % step_ == 0 ? 0 : 1);
    const std::size_t grown = want > have ? want - have : 0;
    return {Range{address() + have * step_, grown * step_},
            Range{address() + want * step_, (has_memory_.size() - want) * step_}};
}

MEMSAVER_INLINE std::vector<Range> ElasticRange::steps(Range part, bool with_memory) const {
    std::vector<Range> found;
    for (Address at = part.address; at < part.end(); at += step_) {
        if (has_memory_[number(at)] == with_memory) found.push_back({at, step_});
    }
    return found;
}

MEMSAVER_INLINE std::vector<Range> ElasticRange::all_steps(Range part) const {
    std::vector<Range> found = steps(part, true);
    if (found.size() * step_ != part.bytes) {
        refuse("release", offset_of(part), part.bytes, "part of it is not committed, possibly already released");
    }
    return found;
}

MEMSAVER_INLINE void ElasticRange::note(const std::vector<Range>& steps, bool has_memory) noexcept {
    for (const Range& step : steps) has_memory_[number(step.address)] = has_memory;
    const std::size_t bytes = steps.size() * step_;
    if (has_memory) {
        committed_bytes_ += bytes;
        in_all_ += bytes;
    } else {
        committed_bytes_ -= bytes;
        in_all_ -= bytes;
    }
}

} // namespace detail

} // namespace memsaver::inline v0_3
