// Definitions of use_options.hpp.
#pragma once

#include "memsaver/core/sizes.hpp"
#include "memsaver/saver/use_options.hpp"

#include <ostream>

namespace memsaver::inline v0_3 {

MEMSAVER_INLINE std::ostream& operator<<(std::ostream& out, const Reclaimed& what) {
    out << "reclaimed " << format_bytes(what.bytes()) << " (" << format_bytes(what.wanted_bytes)
        << " requested): " << format_bytes(what.unused_bytes) << " unused, ";
    if (what.elastic_bytes != 0) out << format_bytes(what.elastic_bytes) << " of elastic memory, ";
    out << format_bytes(what.evicted_bytes) << " of idle tags";
    return what.why_not_more.empty() ? out : out << "; " << what.why_not_more;
}

} // namespace memsaver::inline v0_3
